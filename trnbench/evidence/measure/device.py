"""Devices that JAX finds, their capabilities, and facts for every measured row.

`Capabilities` holds all differences between CPUs, NVIDIA GPUs and NeuronCores. They follow from the
backend's names and the environment, so that tests can try an absent backend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from trnbench.errors import EnvironmentFault
from trnbench.facts.records import Record

DeviceChoice = Literal["auto", "cpu", "cuda", "neuron"]
Backend = Literal["cpu", "cuda", "neuron"]

INSTALL: Mapping[str, str] = {
    "auto": "pip install 'trnbench[measure]'",
    "cpu": "pip install 'trnbench[measure]'",
    "cuda": "pip install 'trnbench[measure]' 'jax[cuda13]'",
    "neuron": "pip install 'trnbench[measure]' jax-neuronx "
    "--extra-index-url https://pip.repos.neuron.amazonaws.com",
}
"""Installation commands of JAX, by kind of device."""
_JAX_NAMES: Mapping[str, Backend] = {
    "cpu": "cpu",
    "gpu": "cuda",
    "cuda": "cuda",
    "neuron": "neuron",
    "trn": "neuron",
}
_COMPILES_SLOWLY = ("neuron",)
"""Backends that take minutes for a new shape."""
_FORMATS: Mapping[Backend, tuple[str, ...]] = {
    "cpu": ("fp32", "bf16", "fp16"),
    "cuda": ("bf16", "fp8_e4m3fn", "fp16", "fp32"),
    "neuron": ("bf16", "fp8_e4m3", "fp16", "fp32"),
}
"""Formats to try, the training format first; failing formats are skipped with a remark."""
_CHIPS: Mapping[Backend, Sequence[tuple[str, str]]] = {
    "cpu": (),
    "cuda": (
        (r"a100.*40", "a100-40gb"),
        (r"a100", "a100-80gb"),
        (r"h100 80gb hbm3", "h100"),
        (r"h200", "h200"),
        (r"\bb200", "b200"),
        (r"\bb300", "b300"),
    ),
    "neuron": (
        (r"nc[-_ ]?v2|trn1|trainium1", "trainium1"),
        (r"nc[-_ ]?v3|trn2|trainium2", "trainium2"),
        (r"nc[-_ ]?v4|trn3|trainium3", "trainium3"),
    ),
}
"""Patterns of device names and the catalogue's chips; the first match wins."""
_UNCOMPARED = 3
"""XLA's level of tuning that compares no results; 4, the usual one, does."""
_KEPT_VARIABLES = (
    *("XLA_FLAGS", "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "NEURON_CC_FLAGS"),
    *("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG"),
)
"""Variables that influence measurements, recorded in every row."""


class Device(Protocol):
    """Interface of one device of a backend; tests use a fake one."""

    @property
    def platform(self) -> str: ...

    @property
    def device_kind(self) -> str: ...

    def memory_stats(self) -> Mapping[str, int] | None: ...


class Capabilities(Record):
    """Identity and capabilities of the devices at hand."""

    backend: Backend
    kind: str
    devices: int
    chip: str | None
    """The catalogue's chip, by the devices' name."""
    formats: tuple[str, ...]
    logical_size: int | None = None
    """Physical NeuronCores per device."""
    shares_host: bool = False
    """True when all devices compute on the same processors."""
    compiles_slowly: bool = False
    """True when a new shape takes minutes, so that few are tried."""
    fused_attention: str | None = None
    """JAX's name of the backend's kernel."""
    memory_bytes: float | None = None

    @property
    def training_format(self) -> str:
        return self.formats[0]


def capabilities(
    devices: Sequence[Device], environment: Mapping[str, str] = os.environ
) -> Capabilities:
    """Capabilities of devices, by the backend's names."""
    first = devices[0]
    backend = _JAX_NAMES.get(first.platform.lower())
    if backend is None:
        known = ", ".join(dict.fromkeys(_JAX_NAMES.values()))
        raise EnvironmentFault(
            f"JAX runs on {first.platform!r} here; trnbench measures {known}",
            hint="--device cpu measures the host",
        )
    kind = first.device_kind
    statistics = first.memory_stats() or {}
    size = environment.get("NEURON_LOGICAL_NC_CONFIG", "") if backend == "neuron" else ""
    return Capabilities(
        backend=backend,
        kind=kind,
        devices=len(devices),
        chip=chip_of(backend, kind),
        formats=_FORMATS[backend],
        logical_size=int(size) if size.isdigit() else None,
        shares_host=backend == "cpu",
        compiles_slowly=backend in _COMPILES_SLOWLY,
        fused_attention="cudnn" if backend == "cuda" else None,
        memory_bytes=float(statistics["bytes_limit"]) if "bytes_limit" in statistics else None,
    )


def chip_of(backend: str, kind: str) -> str | None:
    """The catalogue's chip by a device's name; None if unknown."""
    patterns = (pair for of, pairs in _CHIPS.items() if of == backend for pair in pairs)
    return next((chip for words, chip in patterns if re.search(words, kind.lower())), None)


def formats_of(backend: str) -> tuple[str, ...]:
    """Formats that are tried on a backend; none on an unknown one."""
    return next((names for of, names in _FORMATS.items() if of == backend), ())


def host_flags(flags: str, devices: int) -> str:
    """XLA_FLAGS for this number of host devices, other flags unchanged.

    Kernels that are tried while compiling are not compared with each other: results are checked
    here, and the comparison takes most of the compile time.
    """
    name, level = "--xla_force_host_platform_device_count", "--xla_gpu_autotune_level"
    kept = [flag for flag in flags.split() if not flag.startswith(f"{name}=")]
    if not any(flag.startswith(f"{level}=") for flag in kept):
        kept.append(f"{level}={_UNCOMPARED}")
    return " ".join([*kept, f"{name}={devices}"])


def open_devices(choice: DeviceChoice, host_devices: int) -> list[Device]:
    """Devices that JAX finds; JAX must not have been imported yet.

    A host without accelerators is divided into `host_devices`.
    """
    os.environ["XLA_FLAGS"] = host_flags(os.environ.get("XLA_FLAGS", ""), host_devices)
    if choice != "auto":
        os.environ["JAX_PLATFORMS"] = choice
    try:
        import jax
    except ImportError as error:
        raise EnvironmentFault(
            f"JAX is not installed ({error})", hint=f"install it: {INSTALL[choice]}"
        ) from None
    try:
        return list(jax.devices())
    except (RuntimeError, AssertionError) as error:  # the latter where a plugin is missing
        first = (str(error).splitlines() or ["its plugin is not installed"])[0][:160]
        raise EnvironmentFault(
            f"JAX finds no {choice} device: {first}",
            hint=f"install what it needs: {INSTALL[choice]}; or measure the host: --device cpu",
        ) from None


def peak_memory_bytes(devices: Sequence[Device]) -> float | None:
    """Peak memory of any device so far, bytes; None if the backend reports none."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    return float(max(filter(None, peaks))) if all(peaks) else None


def kept_variables(environment: Mapping[str, str] = os.environ) -> str:
    return " ".join(
        f"{name}={environment[name]}" for name in _KEPT_VARIABLES if name in environment
    )

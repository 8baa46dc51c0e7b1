"""Facts on the machine at hand: processors, memory, driver, clocks, power, load."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trnbench.evidence.measure import nvml
from trnbench.facts.processes.children import said_by

_PROCESSOR = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_SUPPLIES = Path("/sys/class/power_supply")
_PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
    "jax-neuronx",
    "libneuronxla",
    "neuronx-cc",
)
_BUSY = 0.5
"""Load per processor, before measuring, above which a remark is made."""
_TOOL_S = 10.0
"""Timeout of device tools."""


def processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def processor_name() -> str:
    return _told("model name") or platform.processor() or platform.machine()


def cache_bytes() -> float | None:
    """Size of a processor's last-level cache, bytes, if known."""
    sizes = [_text(path) for path in _CACHES.glob("index*/size")]
    kib = [float(text[:-1]) for text in sizes if text.endswith("K") and text[:-1].isdigit()]
    return max(kib) * 1024 if kib else None


def memory_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def software() -> str:
    """Releases of the measured software."""
    versions = [f"python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return "; ".join(versions)


def driver(backend: str) -> dict[str, str]:
    """Driver, power limit, memory protection and a host's clock, by column, as far as told."""
    if backend == "cpu":
        mhz = _told("cpu MHz")
        return {"driver": platform.release(), "clock": f"{float(mhz):.0f} MHz" if mhz else ""}
    if backend == "cuda":
        gpu = nvml.opened()
        return gpu.fixed() if gpu else {}
    return {"driver": _text(Path("/sys/module/neuron/version"))}


def watch(backend: str) -> Callable[[], Mapping[str, str]]:
    """A function that tells the clock and the throttling of a device at work, by column."""
    gpu = nvml.opened() if backend == "cuda" else None
    return gpu.working if gpu else dict


def neuron_memory_bytes(logical_size: int | None) -> float | None:
    """Memory of a logical NeuronCore by `neuron-ls`, bytes; None where it does not tell."""
    lines = said_by(["neuron-ls", "--json-output"], longest_s=_TOOL_S)
    try:
        first = json.loads("\n".join(lines))[0]
        size = logical_size or int(first.get("logical_neuroncore_config", 1))
        return float(first["memory_size"]) / int(first["nc_count"]) * size
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def remarks(backend: str) -> tuple[str, ...]:
    """Remarks on disturbances of measurements, before any is taken."""
    found = []
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > _BUSY * processors():
        found.append(f"the host is busy: load {load:.1f} on {processors()} processors")
    states = {_text(path) for path in _SUPPLIES.glob("BAT*/status")}
    if "Discharging" in states:
        found.append("the machine runs on battery")
    if backend == "neuron":
        found.append("nobody has yet run these measurements on NeuronCores: check them with care")
    return tuple(found)


def _told(key: str) -> str:
    for line in _text(_PROCESSOR).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""

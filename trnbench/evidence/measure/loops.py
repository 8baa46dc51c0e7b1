"""Programs on all devices at once, and the time of one run.

All devices work during a measurement: on a host they share processors and memory, on a node power
and links, and a training step uses them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnbench.engines.execute.numbers.accuracy import available_bytes
from trnbench.errors import EnvironmentFault
from trnbench.evidence.measure.device import Capabilities
from trnbench.evidence.measure.pieces import Array
from trnbench.evidence.measure.timing import Repeats, Timing, timed
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show

_SPARE = 0.8
"""Share of the memory that may be filled."""
_DTYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8_e4m3fn": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
}


class AllDevices(Record, eq=False):
    """JAX with its devices, for all measurements."""

    jax: Any
    devices: Sequence[Any]
    can: Capabilities
    rule: Repeats

    def dtype(self, number_format: str) -> Any:  # noqa: ANN401
        """JAX's type of a format."""
        name = _DTYPES[number_format]
        if not hasattr(self.jax.numpy, name):
            raise EnvironmentFault(f"this JAX has no numbers of type {name}")
        return getattr(self.jax.numpy, name)

    def mesh(self, **axes: int) -> Any:  # noqa: ANN401
        """A mesh of the first devices, by axes in the order of ranks, outermost first."""
        count = int(np.prod(list(axes.values())))
        places = np.array(self.devices[:count]).reshape(tuple(axes.values()))
        return self.jax.sharding.Mesh(places, tuple(axes))

    def on_all(self, function: Callable[..., Any], mesh: Any) -> Callable[..., Any]:  # noqa: ANN401
        """A compiled program: `function` of each device's own part of all arguments.

        The first dimension of every argument and result runs over the devices.
        """
        spec = self.jax.sharding.PartitionSpec(mesh.axis_names)
        parted = self.jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)
        return self.jax.jit(parted)  # type: ignore[no-any-return]

    def placed(self, mesh: Any, array: Array) -> Array:  # noqa: ANN401
        """An array parted over the devices by its first dimension."""
        spec = self.jax.sharding.PartitionSpec(mesh.axis_names)
        return self.jax.device_put(array, self.jax.sharding.NamedSharding(mesh, spec))

    def random(self, mesh: Any, shape: tuple[int, ...], number_format: str, seed: int) -> Array:  # noqa: ANN401
        """Normal numbers, another array on each device."""
        rng = np.random.default_rng(seed)
        count = int(np.prod(mesh.devices.shape))
        drawn = rng.standard_normal((count, *shape), dtype=np.float32)
        return self.placed(mesh, drawn.astype(self.dtype(number_format)))

    def time(self, program: Callable[..., Any], *arguments: Array) -> Timing:
        """Time of a compiled program until all its results are ready."""
        return timed(lambda: self.jax.block_until_ready(program(*arguments)), self.rule)

    def check_memory(self, bytes_per_device: float, what: str) -> None:
        """Refuse work that exceeds the devices' memory, before any allocation."""
        needed, free = bytes_per_device, self.can.memory_bytes
        if self.can.shares_host or free is None:
            needed, free = bytes_per_device * len(self.devices), float(available_bytes())
        if needed > _SPARE * free:
            raise EnvironmentFault(
                f"{what} needs {show(needed, Dimension.BYTES)} of memory, "
                f"{show(_SPARE * free, Dimension.BYTES)} of {show(free, Dimension.BYTES)} may be "
                "filled",
                hint="take a smaller suite, or fewer devices with --host-devices",
            )

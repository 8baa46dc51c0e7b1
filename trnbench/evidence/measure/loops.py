"""Programs on all devices at once, repeated until their median time is precise enough.

All devices work during a measurement: on a host they share processors and memory, on a node power
and links, and a training step uses them all.

The 95 % confidence interval of the median of n repeats is 1.57 interquartile ranges over sqrt(n),
the notch of a box plot (McGill, Tukey, Larsen 1978). Repeats beyond three interquartile ranges of
the quartiles are counted as outliers, and kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnbench.engines.execute.numbers.accuracy import available_bytes
from trnbench.errors import EnvironmentFault
from trnbench.evidence.measure.device import Capabilities
from trnbench.evidence.measure.pieces import Array
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, show

Clock = Callable[[], float]

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
_NOTCH = 1.57
_FENCE = 3.0


class Repeats(Record):
    """Stopping rule: the median is known to `precision`, or `budget_s` is spent."""

    precision: float = 0.02
    least: int = 5
    most: int = 100
    budget_s: float = 1.0
    warm_up: int = 1


class Timing(Record):
    """Statistics of a run's repeats, s of wall time."""

    median_s: float
    low_s: float
    """5th percentile; `high_s`: 95th."""
    high_s: float
    processor_s: float
    """Busy time of all host processors per repeat."""
    known_to: float
    """Half width of the median's confidence interval, over the median."""
    repeats: int
    outliers: int

    @property
    def spread(self) -> float:
        """Half the range of the middle 90 % of repeats, over the median."""
        return (self.high_s - self.low_s) / 2 / self.median_s

    def each(self, runs: int, *, less_s: float = 0.0) -> Timing:
        """Timing of each of `runs` runs in a repeat, without the repeat's own cost `less_s`."""
        share = max(self.median_s - less_s, 0.1 * self.median_s) / self.median_s / runs
        return replace(
            self,
            median_s=self.median_s * share,
            low_s=self.low_s * share,
            high_s=self.high_s * share,
            processor_s=self.processor_s * share,
        )


def timed(
    run: Callable[[], object],
    rule: Repeats,
    *,
    clock: Clock = time.perf_counter,
    processor: Clock = time.process_time,
) -> Timing:
    """Timing of a run after its warm-up."""
    for _ in range(rule.warm_up):
        run()
    taken: list[float] = []
    begun, begun_processor = clock(), processor()
    while True:
        before = clock()
        run()
        taken.append(clock() - before)
        # Too few repeats have no meaningful quartiles.
        if len(taken) < rule.least:
            continue
        timing = _summed_up(taken, processor() - begun_processor)
        spent = clock() - begun
        if timing.known_to <= rule.precision or len(taken) >= rule.most or spent >= rule.budget_s:
            return timing


def _summed_up(taken: list[float], processor_s: float) -> Timing:
    seconds = np.asarray(taken)
    low, first, median, third, high = np.percentile(seconds, (5, 25, 50, 75, 95)).tolist()
    fence = _FENCE * (third - first)
    outside = (seconds < first - fence) | (seconds > third + fence)
    return Timing(
        median_s=median,
        low_s=low,
        high_s=high,
        processor_s=processor_s / len(taken),
        known_to=_NOTCH * (third - first) / len(taken) ** 0.5 / median if median else 0.0,
        repeats=len(taken),
        outliers=int(outside.sum()),
    )


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

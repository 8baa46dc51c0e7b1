"""Programs on all devices at once, repeated until their time is precise enough.

All devices work during a measurement: on a host they share processors and memory, on a node power
and links, and a training step uses them all.

Repeats come in blocks. A block's time is its median, which a hiccup of the host does not move; the
time of a run is the least of the blocks' medians, as others at work only ever add to it. Blocks
beyond three interquartile ranges of the quartiles are outliers: counted, and no part of the spread.
The 95 % confidence interval of the median of n blocks is 1.57 interquartile ranges over sqrt(n),
the notch of a box plot (McGill, Tukey, Larsen 1978).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trnbench.engines.execute.numbers.accuracy import available_bytes
from trnbench.errors import EnvironmentFault
from trnbench.evidence.measure.device import Capabilities
from trnbench.evidence.measure.pieces import Array
from trnbench.facts.records import Record, field, replace
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
_LAUNCH_SHARE = 0.02
_MOST_CALLS = 500


class Repeats(Record):
    """Stopping rule: the median is known to `precision`, or `budget_s` is spent."""

    precision: float = 0.02
    block: int = 3
    """Repeats of a block, fewer where the budget holds too few blocks."""
    least: int = 5
    """Blocks, at least; `most`: at most."""
    most: int = 40
    budget_s: float = 1.0
    warm_s: float = 0.0
    """Time of warming up, with a run at least."""


class Timing(Record):
    """Statistics of a run's repeats, s of wall time."""

    seconds: float
    """Least median of a block."""
    low_s: float
    """5th percentile of the repeats; `high_s`: 95th."""
    high_s: float
    spread: float
    """Half the range of the blocks' medians without outliers, over the least."""
    processor_s: float
    """Busy time of all host processors per repeat."""
    known_to: float
    """Half width of the median's confidence interval, over the median."""
    repeats: int
    outliers: int
    """Blocks far from the others."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Clock and throttling of the device under this load, by column."""

    def each(self, runs: int, *, less_s: float = 0.0) -> Timing:
        """Timing of each of `runs` runs in a repeat, without the repeat's own cost `less_s`."""
        share = max(self.seconds - less_s, 0.1 * self.seconds) / self.seconds / runs
        return replace(
            self,
            seconds=self.seconds * share,
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
    warmed = clock()
    run()
    while clock() - warmed < rule.warm_s:
        run()
    taken: list[float] = []
    begun, begun_processor = clock(), processor()
    block = rule.block
    while True:
        before = clock()
        run()
        taken.append(clock() - before)
        if len(taken) == 1:
            block = min(max(int(rule.budget_s / (rule.least * max(taken[0], 1e-9))), 1), block)
        blocks, rest = divmod(len(taken), block)
        # Too few blocks have no meaningful quartiles.
        if rest or blocks < rule.least:
            continue
        timing = _summed_up(taken, block, processor() - begun_processor)
        spent = clock() - begun
        if timing.known_to <= rule.precision or blocks >= rule.most or spent >= rule.budget_s:
            return timing


def _summed_up(taken: list[float], block: int, processor_s: float) -> Timing:
    medians = np.median(np.asarray(taken).reshape(-1, block), axis=1)
    first, median, third = np.percentile(medians, (25, 50, 75)).tolist()
    fence = _FENCE * (third - first)
    outside = (medians < first - fence) | (medians > third + fence)
    least, most = medians[~outside].min(), medians[~outside].max()
    low, high = np.percentile(taken, (5, 95)).tolist()
    return Timing(
        seconds=float(least),
        low_s=low,
        high_s=high,
        spread=float((most - least) / 2 / least) if least else 0.0,
        processor_s=processor_s / len(taken),
        known_to=_NOTCH * (third - first) / len(medians) ** 0.5 / median if median else 0.0,
        repeats=len(taken),
        outliers=int(outside.sum()),
    )


class AllDevices(Record, eq=False):
    """JAX with its devices, for all measurements."""

    jax: Any
    devices: Sequence[Any]
    can: Capabilities
    rule: Repeats
    launch_s: float = 0.0
    """Time of a program without work, from its call to its end."""
    sum_bits: int | None = None
    """Bits of mantissa of sums of 8-bit products; None: those of fp32."""
    watch: Callable[[], Mapping[str, str]] = dict
    """State of the devices at work, by column."""
    drawing: dict[object, Callable[[int], Array]] = field(default_factory=dict)
    """Compiled generators of random arrays, by shape, format and place."""

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

    def over_all(self, mesh: Any) -> Any:  # noqa: ANN401
        """Sharding over all devices by the first dimension."""
        return self.jax.sharding.NamedSharding(
            mesh, self.jax.sharding.PartitionSpec(mesh.axis_names)
        )

    def placed(self, mesh: Any, array: Array) -> Array:  # noqa: ANN401
        """An array parted over the devices by its first dimension."""
        return self.jax.device_put(array, self.over_all(mesh))

    def random(self, mesh: Any, shape: tuple[int, ...], number_format: str, seed: int) -> Array:  # noqa: ANN401
        """Normal numbers, another array on each device."""
        count = int(np.prod(mesh.devices.shape))
        return self.normal((count, *shape), self.dtype(number_format), self.over_all(mesh), seed)

    def normal(self, shape: tuple[int, ...], dtype: Any, sharding: Any, seed: int) -> Array:  # noqa: ANN401
        """Normal numbers of one array, drawn where they are kept."""
        key = shape, dtype, sharding
        if key not in self.drawing:
            random, wide = self.jax.random, self.jax.numpy.float32

            def draw(number: int) -> Array:
                return random.normal(random.key(number), shape, wide).astype(dtype)

            self.drawing[key] = self.jax.jit(draw, out_shardings=sharding)
        return self.drawing[key](seed)

    def time(self, program: Callable[..., Any], *arguments: Array) -> Timing:
        """Timing of a program, without its launch.

        An accelerator gets so many calls in a row that waiting for the last is at most
        `_LAUNCH_SHARE` of their time; processors of a host would do both at once.
        """
        wait = self.jax.block_until_ready
        wait(program(*arguments))
        calls = 1
        if not self.can.shares_host:
            begun = time.perf_counter()
            wait(program(*arguments))
            alone = time.perf_counter() - begun
            alone = max(alone - self.launch_s, 0.1 * alone)
            calls = min(max(math.ceil(self.launch_s / _LAUNCH_SHARE / alone), 1), _MOST_CALLS)

        def run() -> None:
            for _ in range(calls - 1):
                program(*arguments)
            wait(program(*arguments))

        timing = timed(run, self.rule).each(calls, less_s=self.launch_s)
        working = program(*arguments)
        timing = replace(timing, state=self.watch())
        wait(working)
        return timing

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

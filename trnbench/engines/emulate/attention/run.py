"""Fused attention of one rank, played: time, busy seconds of every engine, share of the peak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from trnbench.engines.emulate.attention.backward import BackwardStream
from trnbench.engines.emulate.attention.forward import ForwardStream
from trnbench.engines.emulate.attention.instructions import Maker
from trnbench.engines.emulate.tensor_engine.plan import FS_PER_S
from trnbench.engines.emulate.tensor_engine.stream import CoreEngine, Machine, Replay, StreamPart
from trnbench.errors import InputError
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import instructions_of
from trnbench.machine.tiling import attention as tiling
from trnbench.machine.tiling.legality import rate_of
from trnbench.program.matrix import matrix_product

STAGES = 4  # Visits of a step: loading, scored, weighed, summed
IN_PSUM = ("scores", "turned", "sums", "gradients")  # Pools whose places are banks


class AttentionRun(Record):
    """Result of a call on the busiest core of a rank."""

    kernel: tiling.FusedKernel
    time_s: float
    busy: Mapping[str, float]  # Busy share of the time, by engine and queue
    psum_banks: int  # Banks of PSUM that the kernel holds
    partition_bytes: float  # Bytes of every partition of SBUF that the kernel holds


def run_attention(
    call: tiling.AttentionCall,
    chip: Chip,
    *,
    cores: int = 1,
    kernel: tiling.FusedKernel | None = None,
    shorten: bool = True,
) -> AttentionRun:
    """Run of one call on the `cores` cores of a rank of a chip.

    Repetitions are skipped exactly unless `shorten` is False. `kernel` is the chip's usual one.
    """
    unit = chip.unit
    if not isinstance(unit, NeuronCores):
        raise InputError(f"{chip.name} has no NeuronCores to emulate attention on")
    kernel = tiling.usual_kernel(unit) if kernel is None else kernel
    if kernel == "library" and unit.dma.transpose_rate_in_sbuf is None:
        raise InputError(f"{chip.name} has no DMA transpose, which the kernel needs; use training")
    runs = [
        _core(parts, chip, unit, kernel, shorten)
        for parts in tiling.parts_of_cores(call, cores, kernel)
    ]
    return max(runs, key=lambda run: run.time_s)


def _core(
    calls: Sequence[tiling.AttentionCall],
    chip: Chip,
    unit: NeuronCores,
    kernel: tiling.FusedKernel,
    shorten: bool,
) -> AttentionRun:
    call = calls[0]
    product = matrix_product(1, 1, 1, format_a=call.number_format)
    costs = instructions_of(chip, unit, rate_of(product, unit, "native"))
    maker = Maker(unit, costs, format_named(call.number_format).bits / 8)
    kind = BackwardStream if call.backward else ForwardStream
    stream = kind(call, kernel, maker)
    machine = Machine(stream.pools, latency_s=costs.start_latency_s, throttle=unit.tensor.throttle)
    # Heads are equal streams; only those that add to an earlier head's sums differ in loads.
    steps = _Steps()
    heads: list[tuple[StreamPart, int]] = []
    for one in calls:
        runs, shared = list(tiling.visits(one, kernel)), tiling.shared_heads(one, kernel)
        heads.append((steps.of(runs), one.heads - shared))
        heads.append((steps.of(map(tiling.summed_on, runs)), shared))
    made = [stream.step(*step) for step in steps.found]
    if shorten:
        total, busy = Replay(machine, made).run(heads)
    else:
        for part, times in heads:
            for _ in range(times):
                for step, count in part:
                    for _ in range(count):
                        machine.play(made[step])
        total, busy = machine.end_fs, tuple(machine.busy)
    names = [*(engine.name.lower() for engine in CoreEngine), "dma"]
    return AttentionRun(
        kernel=kernel,
        time_s=total / FS_PER_S,
        busy={name: fs / total for name, fs in zip(names, busy, strict=True)},
        psum_banks=sum(stream.pools.get(use, 0) for use in IN_PSUM),
        partition_bytes=stream.partition_bytes,
    )


class _Steps:
    """Numbers for the distinct steps of streams: the visits at each stage."""

    def __init__(self) -> None:
        self.found: list[tuple[tiling.Visit | None, ...]] = []
        self._kinds: dict[tiling.Visit | None, int] = {None: 0}
        self._numbers: dict[tuple[int, ...], int] = {}

    def of(self, runs: Iterable[Sequence[tiling.PlacedVisit]]) -> StreamPart:
        numbers = (self._number(line) for run in runs for line in _lines(self._numbered(run)))
        return [(number, sum(1 for _ in same)) for number, same in groupby(numbers)]

    def _numbered(self, run: Sequence[tiling.PlacedVisit]) -> list[int]:
        """Visits' numbers, and 0 where loads wait: keys have one buffer to be filled,
        which is free when the last keys' visit is summed.
        """
        kinds, found, since = self._kinds, list[int](), STAGES
        for placed in run:
            if placed.visit.new_keys:
                found += [kinds[None]] * (STAGES - 1 - since)
                since = 0
            found.append(kinds.setdefault(placed.visit, len(kinds)))
            since += 1
        return found

    def _number(self, line: tuple[int, ...]) -> int:
        number = self._numbers.get(line)
        if number is None:
            number = self._numbers[line] = len(self.found)
            kinds = list(self._kinds)
            self.found.append(tuple(kinds[kind] for kind in line))
        return number


def _lines(run: Sequence[int]) -> Iterator[tuple[int, ...]]:
    drained = [0] * (STAGES - 1)
    line = [*drained, *run, *drained]
    return zip(*(line[STAGES - 1 - stage :] for stage in range(STAGES)), strict=False)

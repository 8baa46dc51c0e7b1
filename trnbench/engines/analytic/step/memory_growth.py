"""The largest micro-batch with which layouts fit, without the memory of each.

Where tensors grow evenly with the micro-batch, a stage that takes b samples at a time needs

    fixed + each b + sum of kept min(limit b, samples)

Its states and buffers are `fixed`, its working sets and messages take `each` byte of a sample. A
block keeps as many micro-batches as its schedule lets be in flight, the `limit`, and never more
than all `samples` of a replica. That is the least of several straight lines, one for each choice
between the sides of every minimum: the largest b that fits is the largest one of any line.

An interleaved pipeline with one group of micro-batches, its largest ones, keeps all samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from trnbench.engines.analytic.step.memory_flights import Flights, StageFlights
from trnbench.engines.analytic.step.memory_reader import BlockPart, StageReader
from trnbench.facts.arrays import BoolArray, FloatArray, some
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.program.points import Pick
from trnbench.program.stages import StageClass, StageRole, is_behind
from trnbench.program.step import StepProgram
from trnbench.program.tensor import NOTHING, ONE, array

ENDLESS = array(1e15)
"""Micro-batches of a step that has more than any pipeline holds."""
ROUNDED = 1e-12
"""Part of the memory by which rounding may change what a layout needs."""
_EVEN = 1e-14
"""Part of a number by which rounding may bend a straight line."""

_ALIKE = (), (1,)
"""Ends of the shapes of arrays that do not depend on the micro-batch."""

EvenGrowth: TypeAlias = tuple[FloatArray, FloatArray]
"""Bytes at no sample, and bytes of each sample."""

WorkingSet: TypeAlias = tuple[tuple[FloatArray, FloatArray], ...]
"""Number of blocks on a stage and bytes of one of them, by kind: the largest one counts."""


class BlockGrowth(Record, eq=False):
    """Bytes of one block over a grid, with one place along the micro-batches."""

    staying: FloatArray
    """For the whole step."""
    kept: FloatArray
    """Of each sample in flight."""


class StageGrowth(Record, eq=False):
    """Bytes of a class of stages over a grid, with one place along the micro-batches."""

    stage: StageClass
    blocks: Mapping[str, BlockGrowth]
    """One block of each kind of the program."""
    each: FloatArray
    """Messages and working sets, of each sample."""
    working: tuple[WorkingSet, ...]
    """Parts of working sets of each sample that only some of these stages have."""
    always: tuple[WorkingSet, ...]
    """Parts of working sets that are there at any size."""


class Pipelines(Record, eq=False):
    """Numbers of some layouts that depend on the schedule and the degrees, computed once."""

    pick: Pick
    """Takes numbers of these layouts out of arrays that do not depend on the micro-batch."""
    limits: Flights = field(default_factory=dict)
    """Most micro-batches in flight on each class of stages."""
    there: Memo[StageRole, BoolArray] = field(default_factory=Memo)
    """True of layouts that have a stage of a class."""


class Room(Record, eq=False):
    """Bytes of a rank of some layouts that are left for what stages hold."""

    pipelines: Pipelines
    bytes: FloatArray
    lost: float
    """Bytes for each byte that comes and goes, with what an allocator loses of it."""


class LargestMicroBatch(Record, eq=False):
    """Samples up to which micro-batches of some layouts fit, and where rounding may decide that."""

    samples: FloatArray
    in_doubt: BoolArray


def growths_of(reader: StageReader, stages: Sequence[StageClass]) -> Sequence[StageGrowth] | None:
    """How classes of stages grow, of a reader of a whole grid; None where some do not evenly."""
    lines = _Lines(reader.sizes)
    blocks: dict[str, BlockGrowth] = {}
    for kind, parts in reader.held.items():
        block = _of_block(parts, lines)
        if block is None:
            return None
        blocks[kind] = block
    found: list[StageGrowth] = []
    for stage in stages:
        growth = _of_stage(reader, stage, blocks, lines)
        if growth is None:
            return None
        found.append(growth)
    return found


class _Lines:
    """Straight lines on which arrays of bytes lie over micro-batch sizes, each found once."""

    def __init__(self, sizes: FloatArray) -> None:
        self._sizes = sizes
        # By the array's identity, with the array, which keeps it: stages share most arrays.
        self._found: dict[int, tuple[FloatArray, EvenGrowth | None]] = {}

    def of(self, size: FloatArray) -> EvenGrowth | None:
        """The line of an array; None where it does not grow evenly."""
        found = self._found.get(id(size))
        if found is None:
            found = self._found[id(size)] = size, _line(size, self._sizes)
        return found[1]


def _line(size: FloatArray, sizes: FloatArray) -> EvenGrowth | None:
    if sizes.size == 1:
        return NOTHING, np.asarray(size / sizes.ravel()[0])
    if size.shape[-1:] in _ALIKE:
        return size, NOTHING
    first, last = size[..., :1], size[..., -1:]
    least, most = sizes[..., :1], sizes[..., -1:]
    each = (last - first) / (most - least)
    start = first - each * least
    start = start * (np.abs(start) > _EVEN * first) if start.any() else NOTHING
    even = np.abs(start + each * sizes - size) <= _EVEN * size
    return (start, each) if even.all() else None


def _of_block(parts: Iterable[BlockPart], lines: _Lines) -> BlockGrowth | None:
    staying, kept = NOTHING, NOTHING
    for part in parts:
        if part.lifetime == "slot":
            continue
        if part.lifetime == "step":
            staying = staying + part.bytes
            continue
        line = lines.of(part.bytes)
        if line is None or line[0].any():
            return None
        kept = kept + line[1]
    return BlockGrowth(staying=staying, kept=kept) if staying.shape[-1:] in _ALIKE else None


def _of_stage(
    reader: StageReader,
    stage: StageClass,
    blocks: Mapping[str, BlockGrowth],
    lines: _Lines,
) -> StageGrowth | None:
    each, working, always = NOTHING, [], []
    for message in stage.messages:
        line = lines.of(message.size_bytes)
        if line is None or line[0].any():
            return None
        each = each + line[1] * reader.buffers * (message.count > 0)
    for part in reader.working_sets(stage):
        found = [(count, line) for count, size in part if (line := lines.of(size)) is not None]
        growing = tuple((count, slope) for count, (_, slope) in found if some(slope))
        there = tuple((count, start) for count, (start, _) in found if some(start))
        # The largest of several is no straight line where some grow and others do not.
        if len(found) < len(part) or (growing and there and len(part) > 1):
            return None
        always += [there] if there else []
        if len(part) == 1 and growing:
            each = each + growing[0][1]
        else:
            working += [growing] if growing else []
    return StageGrowth(
        stage=stage, blocks=blocks, each=each, working=tuple(working), always=tuple(always)
    )


def largest_micro_batch(
    program: StepProgram, growths: Sequence[StageGrowth], room: Room
) -> LargestMicroBatch:
    """Samples up to which the micro-batches of some layouts fit on all classes of stages."""
    pipelines, grid = room.pipelines, program.grid
    pick = pipelines.pick
    replica = pick(grid.global_batch) / pick(grid.dp)
    rounded = ROUNDED * float(np.max(room.bytes))
    # Beyond all samples of a replica no size is a layout's.
    samples, in_doubt, least = np.asarray(replica + 0.5), np.asarray(False), np.inf
    for growth in growths:
        each, lines, full = _lines(program, growth, room, replica)
        slopes = [float(each.min())]
        if slopes[0] <= 0:
            # Where nothing grows all sizes fit or none.
            for spare, slope in lines:
                in_doubt = in_doubt | (slope <= 0) & (np.abs(spare) <= rounded)
            slopes = [float(np.min(of, where=of > 0, initial=np.inf)) for _, of in lines]
        least = min(least, *slopes)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = reduce(np.maximum, (spare / slope for spare, slope in lines))
        if full is not None:
            # One group of micro-batches keeps all samples; smaller ones are half as large.
            group = replica / pick(grid.pp)
            spare = full - each * group
            most = np.where(spare < 0, np.minimum(most, group - 0.5), most)
            in_doubt = in_doubt | (np.abs(spare) <= rounded)
        there = pipelines.there.of(growth.stage.role, partial(_there, pick, growth.stage))
        samples = np.minimum(samples, most if there.all() else np.where(there, most, np.inf))
        if not (samples >= 1).any():
            break
    # Sizes are whole: rounding decides where the largest is a whole number but for some bytes.
    samples = np.maximum(samples, 0.5)
    near = ~(np.abs(samples - np.rint(samples)) * least > rounded)
    return LargestMicroBatch(samples=samples, in_doubt=in_doubt | near)


def _lines(
    program: StepProgram, growth: StageGrowth, room: Room, replica: FloatArray
) -> tuple[FloatArray, list[EvenGrowth], FloatArray | None]:
    """Bytes of each sample of a stage, its straight lines, and bytes left by all kept samples.

    A line is the bytes that are left for samples, and those of each. The last is None where no
    schedule keeps all samples at its largest size alone.
    """
    pick, lost, stage = room.pipelines.pick, room.lost, growth.stage
    schedule, limits = program.layout.schedule, room.pipelines.limits
    flights = StageFlights(program.grid, schedule, pick, limits, ENDLESS)
    each, left = pick(lost * growth.each), room.bytes
    for part in growth.working:
        each = each + lost * _largest(pick, part)
    for part in growth.always:
        left = left - lost * _largest(pick, part)
    kept = {"": NOTHING, "head": NOTHING}
    for kind, blocks in stage.blocks.items():
        block, where = growth.blocks[kind], "head" if is_behind(kind) else ""
        count = pick(blocks)
        left = left - count * pick(block.staying)
        kept[where] = kept[where] + count * pick(lost * block.kept)
    lines, full = [(left, each)], left
    for where, size in kept.items():
        if size is NOTHING:
            continue
        limit = flights.of(stage, where).until_backward
        limited = [(spare, slope + size * limit) for spare, slope in lines]
        # A step has a micro-batch at least, and no more than all.
        if (limit <= 1).all():
            lines = limited
        else:
            whole = [(spare - size * replica, slope) for spare, slope in lines]
            lines = whole if (limit >= ENDLESS).all() else limited + whole
        if schedule == "interleaved":
            full = full - size * replica
    return each, lines, full if schedule == "interleaved" else None


def _there(pick: Pick, stage: StageClass) -> BoolArray:
    return pick(stage.multiplicity) > 0


def _largest(pick: Pick, part: WorkingSet) -> FloatArray:
    """Bytes of the largest of several blocks that a stage has."""
    each = (pick(size) if count is ONE else pick(size) * (pick(count) > 0) for count, size in part)
    return reduce(np.maximum, each)

"""Seconds of a played step by category, and busy seconds of the parts meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.emulate.schedule.play import PlayedSchedule
from trnbench.engines.emulate.step.blocks import BlockRun
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, in_turn
from trnbench.engines.emulate.step.stages import BlockCounts, stage_counts
from trnbench.facts.records import Record
from trnbench.program.slots import (
    ENDINGS,
    PARTS,
    PURPOSES,
    SLOTS,
    STEP_CATEGORIES,
    Lane,
    Purpose,
    Slot,
    StepCategory,
)


class PlayedStages(Record, eq=False):
    """The stages of a pipeline: blocks of their chunks, their exchanges, waits for the host."""

    chunks: tuple[tuple[BlockCounts, ...], ...]
    blocks: Mapping[str, BlockRun]
    lanes: Mapping[Purpose, Lane]
    waited: tuple[Mapping[Slot, float], ...]
    """Seconds of waits for the host in a micro-batch, by stage and slot."""
    waited_once_s: float
    """Seconds of waits for the host by the optimizer."""
    message: BusyRun
    latency_s: float
    send_lane: Lane


class Account(Record, eq=False):
    """Divisors of the seconds of a played step: its slowest stage, and costs paid once."""

    stages: PlayedStages
    micro_batches: int
    slowest: int
    launch_s: float
    """Cost of the stack per micro-batch."""
    once_s: float
    """Cost of the stack per step."""
    closing: BusyRun

    @property
    def blocks(self) -> tuple[tuple[BlockRun, float], ...]:
        """Instances of each kind of block on the slowest stage."""
        counts = stage_counts(self.stages.chunks[self.slowest])
        return tuple((self.stages.blocks[kind], count) for kind, count in counts.items())

    def exposed_s(self, purpose: Purpose) -> float:
        """Exposed seconds of a purpose's exchanges in a micro-batch."""
        return sum(
            count * block.exposed_s(purpose, slot) for block, count in self.blocks for slot in SLOTS
        )


def by_category(
    account: Account, played: PlayedSchedule, silent_s: float
) -> Mapping[StepCategory, float]:
    """Seconds of a played step, its slowest stage standing for the pipeline.

    `silent_s`: when the last slot ends where messages take no time.
    """
    stages, slowest = account.stages, account.slowest
    found: dict[StepCategory, float] = dict.fromkeys(STEP_CATEGORIES, 0.0)
    shares: dict[StepCategory, float] = {"host": sum(stages.waited[slowest].values())}
    for part in PARTS:
        shares[part] = sum(
            count * block.parts.get(part, NO_RUN).time_s for block, count in account.blocks
        )
    shares["fixed"] += account.launch_s
    exposed = {purpose: account.exposed_s(purpose) for purpose in PURPOSES}
    compute_s, exchanged_s = float(played.compute_s[slowest]), float(played.collectives_s[slowest])
    for name, seconds in shares.items():
        found[name] = compute_s * seconds / sum(shares.values())
    for purpose, seconds in exposed.items():
        if seconds > 0:
            found[purpose] = exchanged_s * seconds / sum(exposed.values())
    pipeline_s = float(played.pipeline_s)
    found["pipeline"] = pipeline_s - silent_s
    found["bubble"] = silent_s - compute_s - exchanged_s
    found["optimizer"] = float(played.optimizer_s.max())
    found["data"] += float(played.step_s) - pipeline_s - found["optimizer"]
    found["fixed"] += account.once_s
    found["host"] += stages.waited_once_s
    return found


def busy(account: Account) -> Mapping[StepCategory, BusyRun]:
    """Busy seconds in each category over a step, on the slowest stage."""
    times = float(account.micro_batches)
    found: dict[StepCategory, BusyRun] = {}
    for part in PARTS:
        found[part] = in_turn(
            block.parts.get(part, NO_RUN).times(count * times) for block, count in account.blocks
        )
    for purpose in PURPOSES:
        found[purpose] = in_turn(
            block.exchanges.get((purpose, slot), NO_RUN).times(count * times)
            for block, count in account.blocks
            for slot in SLOTS
        )
    ends = [
        block.ending.get(what, NO_RUN).times(count)
        for block, count in account.blocks
        for what in ENDINGS
    ]
    found["data"] = in_turn((found["data"], *ends, account.closing))
    found["optimizer"] = in_turn(block.update.times(count) for block, count in account.blocks)
    found["pipeline"] = account.stages.message.times(times * len(account.stages.chunks[0]))
    return found

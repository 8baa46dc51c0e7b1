"""A training step played from its program and its places: seconds and busy seconds by category.

    StepProgram, one scalar layout
       |                           |
       |  compute, attention       |  exchanges
       v                           v
    tensor_engine/, attention/    collective/          a kernel instruction by instruction,
       |                           |                   a collective message by message
       '----------- blocks --------'                   seconds and busy seconds of a block's slots
                      |
                   stages                              seconds of every chunk of every stage
                      |
                  schedule/                            slot after slot, with lanes and overlaps
                      |
                   account                             seconds by category, as the closed form has

Each level is played once per kind and then counted: a product for equal sizes, a block for all its
layers, a collective for all groups of its kind. Only the pipeline is played in full.

    slots   [F0][F1]      [B0]  [B1]      a stage's slots in the schedule's order
    links   [tp][tp]      [tp]  [tp]      exchanges inside slots occupy their lane
    network     [send]  [get]             messages wait for the lane, then travel

The pipeline runs twice: with its messages and with messages that take no time. The difference is
what messages cost; the rest of the idle time of the slowest stage is the bubble.

Shared with the closed form: the program, where its ranks lie, tiles and messages, data sheets, and
what a calibration knows of software (shares of peaks, factors, overlaps, costs of a layer, a
micro-batch and a step, the scatter of nodes). Every duration is this engine's own, but for compute
on chips that have no tile emulator: those seconds are handed in, and the step names them. So a
difference between the two engines is an approximation of the closed form, not another input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.engines.emulate.schedule.play import PlayedSchedule, play
from trnbench.engines.emulate.schedule.timeline import Timeline, timeline
from trnbench.engines.emulate.schedule.times import Jitter, Straggler
from trnbench.engines.emulate.step.compute import BlockParts, RankUse, computed, rank_of
from trnbench.engines.emulate.step.exchanges import (
    Chooser,
    PlayedExchanges,
    PlayedSite,
    gradient_traffic,
)
from trnbench.engines.emulate.step.host import (
    Crossing,
    HostPace,
    host_of,
    host_updates_s,
    slots_a_micro_batch,
)
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, Runs, in_turn
from trnbench.engines.emulate.step.stages import (
    BlockCounts,
    PlayedStages,
    block_run,
    busy,
    by_category,
    chunk_counts,
    overlap_rules,
    stage_counts,
    stage_times,
)
from trnbench.errors import InputError
from trnbench.facts.arrays import slowest_node
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.machine.placement import place
from trnbench.program.schedule import slot_order, splits_backward
from trnbench.program.slots import SLOTS, Lane, Purpose, Slot, StepCategory, purpose_of
from trnbench.program.step import StepProgram

REAL, SILENT = 0, 1  # Two plays side by side, the second with messages that take no time
COMPUTED: tuple[StepCategory, ...] = ("matrix", "attention", "element-wise", "optimizer")
"""Operations that are not played on chips without a tile emulator."""


class PlayedCluster(Record, eq=False):
    """A platform with the stacks that run on it, and everything played there so far."""

    platform: Platform
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    use: RankUse
    choose: Chooser
    host: HostPace | None = None  # needed only for an optimizer on the host
    runs: Runs = field(default_factory=Memo)
    sites: Memo[tuple[RankUse, int], PlayedSite] = field(default_factory=Memo)

    @property
    def ranks_of_a_node(self) -> float:
        return self.site.node_ranks / self.platform.joined_nodes

    @property
    def site(self) -> PlayedSite:
        """The nodes on which exchanges are played."""
        platform, use = self.platform, self.use
        return self.sites.of(
            (use, platform.joined_nodes),
            lambda: PlayedSite(
                stack=self.collectives,
                node=place(platform, logical_size=use.logical_size),
                node_ranks=use.node_ranks or platform.ranks(use.logical_size),
                choose=self.choose,
            ),
        )


class Disturbance(Record):
    """Nodes drawn late by a seed, not as late as expected, and stages that are known to lag."""

    seed: int | None = None
    stragglers: tuple[Straggler, ...] = ()


class PlayedStep(Record, eq=False):
    """A step as it ran, in seconds."""

    by_category: Mapping[StepCategory, float]
    """Seconds that add up to `time_s`; inside the pipeline those of the slowest stage.

    `pipeline`: delay of the last slot by messages between stages. `bubble`: idle seconds that the
    slowest stage would have without these messages.
    """
    busy: Mapping[StepCategory, BusyRun]  # of the machine's parts, hidden work included
    unplayed: tuple[StepCategory, ...]  # Categories whose seconds were handed in
    slowest_stage: int
    slots: int
    played: PlayedSchedule  # Account of every stage, without the stack's costs once a step
    timeline: Timeline | None  # Events of every stage, if asked for

    @property
    def time_s(self) -> float:
        return sum(self.by_category.values())


def play_step(
    program: StepProgram,
    machine: PlayedCluster,
    disturbed: Disturbance | None = None,
    *,
    handed_in: Mapping[str, BlockParts] | None = None,
    with_timeline: bool = False,
) -> PlayedStep:
    """Played step of a scalar program that is legal and that the platform can run.

    Compute takes the expected seconds of the slowest node; with a seed, those of the slowest of
    drawn nodes. The optimizer always takes the expected seconds. `handed_in`: the compute of each
    block where a chip cannot play it.
    """
    disturbed = disturbed or Disturbance()
    platform, efficiency = machine.platform, machine.efficiency
    rank = rank_of(platform.chip, efficiency, program.grid, machine.use, machine.runs)
    parts = handed_in if rank is None else computed(rank, program)
    if parts is None:
        raise InputError(f"{platform.chip.name} has no NeuronCores to play compute on")
    stack = efficiency.stack
    exchanges = PlayedExchanges(program=program, site=machine.site, efficiency=efficiency)
    # Without a seed all nodes count as late as the slowest is expected to be; with one, lateness is
    # drawn per stage in the schedule and must not be counted here as well.
    nodes = np.ceil(program.grid.ranks("world") / machine.ranks_of_a_node)
    slowdown = float(slowest_node(stack.node_scatter, nodes))
    typical = 1.0 if disturbed.seed is not None else slowdown
    factor = float(efficiency.whole_factor)
    stages = _stages(program, machine, exchanges, parts, (factor * typical, factor * slowdown))
    order = slot_order(
        program.layout.schedule,
        pp=len(stages.chunks),
        vpp=len(stages.chunks[0]),
        micro_batches=stages.micro_batches,
    )
    jitter = None if disturbed.seed is None else _jitter(program, machine, disturbed.seed)
    times = stage_times(stages)
    traffic = gradient_traffic(exchanges, tuple(program.blocks.values()))
    rules = overlap_rules(stages, stack.overlaps, traffic)
    both = play(order, times, rules, jitter=jitter, stragglers=disturbed.stragglers)
    played = both.at(REAL)
    slowest = int(np.argmax(played.compute_s + played.collectives_s))
    silent_s = float(both.at(SILENT).pipeline_s)
    return PlayedStep(
        by_category=by_category(stages, slowest, played, silent_s),
        busy=busy(stages, slowest),
        unplayed=COMPUTED if rank is None else (),
        slowest_stage=slowest,
        slots=order.kind.size,
        played=played,
        timeline=(
            timeline(
                order, times, rules, at=(REAL,), jitter=jitter, stragglers=disturbed.stragglers
            )
            if with_timeline
            else None
        ),
    )


def _host_updates_s(
    program: StepProgram, machine: PlayedCluster, chunks: Sequence[Sequence[BlockCounts]]
) -> tuple[float, ...]:
    if program.grid.optimizer_offload != "host" or not program.trains:
        return ()
    if machine.host is None:
        raise InputError("an optimizer on the host needs the pace of a host to be played")
    on_node = min(int(program.grid.ranks("world")), int(machine.ranks_of_a_node))
    return host_updates_s(program, chunks, machine.host, on_node)


def _stages(
    program: StepProgram,
    machine: PlayedCluster,
    exchanges: PlayedExchanges,
    parts: Mapping[str, BlockParts],
    factors: tuple[float, float],
) -> PlayedStages:
    """The stages of a step; `factors` on seconds of micro-batches, and of the optimizer."""
    split = splits_backward(program.layout.schedule)
    blocks = {
        kind: block_run(block, parts[kind], exchanges, factors, split=split)
        for kind, block in program.blocks.items()
    }
    send_lane = exchanges.message_lane()
    crossing: list[Crossing] = ["experts"] if exchanges.experts_cross else []
    if int(program.grid.pp) > 1 and send_lane == "network":
        crossing.append("pipeline")
    host = host_of(
        program,
        machine.platform,
        machine.efficiency.stack,
        cores_in_use=machine.platform.chip.unit.cores_per_rank(machine.use.logical_size)
        * machine.site.node_ranks,
        crossing=crossing,
    )
    chunks = chunk_counts(program)
    waited: list[Mapping[Slot, float]] = []
    once_s = 0.0
    for stage in chunks:
        counts = stage_counts(stage)
        if host is None:
            waited.append({})
            continue
        lengths: dict[Slot, float] = {
            slot: sum(count * blocks[kind].length_s(slot) for kind, count in counts.items())
            for slot in (SLOTS if split else SLOTS[:-1])
        }
        waited.append(host.waited(counts, lengths))
        update_s = sum(count * blocks[kind].update.time_s for kind, count in counts.items())
        once_s = max(once_s, host.waited_once(counts, update_s))
    stack, trains = machine.efficiency.stack, program.trains
    piped = int(program.grid.pp) > 1
    launch_s = float(stack.micro_batch_s) + float(stack.piped_micro_batch_s) * piped
    # Half of what a micro-batch launches is for its way back.
    launch_s = launch_s if trains else launch_s / 2
    slots = slots_a_micro_batch(stack.host, int(program.grid.vpp))
    return PlayedStages(
        chunks=chunks,
        blocks=blocks,
        lanes=_lanes(program, exchanges),
        micro_batches=int(program.micro_batches),
        launch_s=factors[0] * launch_s * slots,
        once_s=float(machine.efficiency.whole_factor) * float(stack.step_s) * trains,
        waited=tuple(waited),
        waited_once_s=once_s,
        host_updates_s=_host_updates_s(program, machine, chunks),
        message=exchanges.message() if piped else NO_RUN,
        latency_s=exchanges.latency_s() if piped else 0.0,
        send_lane=send_lane,
        closing=in_turn(exchanges.collective(op) for op in program.closing),
    )


def _lanes(program: StepProgram, exchanges: PlayedExchanges) -> Mapping[Purpose, Lane]:
    """Each purpose's lane inside slots: the network if any of its groups spans nodes."""
    lanes: dict[Purpose, Lane] = {}
    for block in program.blocks.values():
        for op in block.collectives:
            if op.phase != "optimizer" and float(op.count):
                purpose = purpose_of(op.axis)
                if lanes.get(purpose) != "network":
                    lanes[purpose] = exchanges.lane(op)
    return lanes


def _jitter(program: StepProgram, machine: PlayedCluster, seed: int) -> Jitter:
    """Scatter of the nodes of a stage's ranks; replicas share the stage."""
    per_node, ranks = machine.ranks_of_a_node, int(program.grid.ranks_per_stage)
    return Jitter(
        sigma=float(machine.efficiency.stack.node_scatter),
        ranks_per_stage=int(-(-ranks // per_node)),
        stages_together=max(int(per_node // ranks), 1),
        seed=seed,
    )

"""The time of a job's step in closed form: its phases, one after the other.

Model. A phase of passes is a step of its own program; one that trains is a step for each update,
with its own pipeline, sums of gradients and optimizer. To write answers an engine reads weights and
what it keeps of answers, at a share of its memory's bandwidth, or computes at that share of its
peak, whichever takes longer; to that come its exchanges, round by round, and its prompts, which
take what a pass of that many tokens takes. A stated rate stands for all of this. Then weights go to
the engines. On nodes of their own engines write while the others train on answers before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING
from trnbench.engines.analytic.step.exchanges import along
from trnbench.engines.analytic.step.time import HostRates, StepPrices, StepTime
from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.hosts import JobRates, MemoryOverheads
from trnbench.facts.records import Record, replace
from trnbench.program.generation import Generation
from trnbench.program.job_passes import TRAIN
from trnbench.program.job_phases import JobPhase, phases_of
from trnbench.program.points import Points
from trnbench.program.reasons import Reason
from trnbench.program.slots import StepCategory
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array

_THERE_AND_BACK = 2


class WritingPrices(Record, eq=False):
    """Seconds of writing answers and of bringing weights to engines, over grid and samples."""

    writing_s: FloatArray
    refreshed_s: FloatArray
    prompts: FloatArray  # Seconds of prompts over those of the scoring phase
    apart: bool  # True where engines have nodes of their own
    refused: tuple[Reason, ...]


class JobPrices(Record, eq=False):
    """The prices of a program's phases, and of writing answers where the job does."""

    program: StepProgram
    phases: tuple[tuple[JobPhase, StepPrices], ...]
    written: WritingPrices | None = None
    host_rank_bytes_per_s: Numbers = np.inf  # Bandwidth between a rank and its host's memory
    offload_overlap: Numbers = 1.0  # Share of device time that activations can travel behind

    @property
    def training(self) -> StepPrices:
        return next(prices for phase, prices in self.phases if phase.name == TRAIN)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(why for _, prices in self.phases for why in prices.reasons))

    @property
    def refused(self) -> tuple[Reason, ...]:
        found = tuple(one for _, prices in self.phases for one in prices.refused)
        return found if self.written is None else (*found, *self.written.refused)

    def played(self, program: StepProgram) -> JobPrices:
        """Prices of the same blocks in another schedule, or spread differently over stages."""
        # Phases are made anew from the other program; their prices hold for the same blocks.
        programs = {one.name: one for one in phases_of(program)}
        again = [(programs[phase.name], prices) for phase, prices in self.phases]
        played = tuple((phase, prices.played(phase.program)) for phase, prices in again)
        return replace(self, program=program, phases=played)

    def time(self, points: Points | None = None) -> StepTime:
        """Time of all layouts, or of those at `points`, as of a program."""
        times = {
            phase.name: _repeated(prices.time(points), phase.times, self.fetched_s(phase, points))
            for phase, prices in self.phases
        }
        whole = times[TRAIN]
        if len(times) == 1 and self.written is None:
            return whole
        categories = _added([one.by_category for one in times.values()])
        hidden = _added([one.hidden for one in times.values()])
        if self.written is not None:
            seconds: dict[str, FloatArray] = {name: one.time_s for name, one in times.items()}
            writing_s, exposed_s = self._written_s(seconds, points)
            categories["generation"] = exposed_s
            hidden["generation"] = np.asarray(writing_s - exposed_s)
        return replace(
            whole,
            categories=categories,
            find_hidden=lambda: hidden,
            ended_s=np.asarray(sum((one.optimizer_s for one in times.values()), NOTHING)),
        )

    def time_s(self, points: Points | None = None) -> FloatArray:
        """Whole step of the same layouts, s."""
        times = self._times_s(points)
        if self.written is None:
            return times[TRAIN]
        _, exposed_s = self._written_s(times, points)
        return np.asarray(sum(times.values(), NOTHING) + exposed_s)

    def fetched_s(self, phase: JobPhase, points: Points | None = None) -> FloatArray:
        """Seconds a phase waits for weights and activations from the host's memory."""
        fetched = along(phase.fetched_bytes, self.training.exchanges.samples)
        waited = self._at(np.asarray(fetched / self.host_rank_bytes_per_s), points)
        if phase.program.grid.activation_offload is None or not phase.program.trains:
            return waited
        return np.asarray(waited + phase.times * self._offloaded_s(phase, points))

    def _offloaded_s(self, phase: JobPhase, points: Points | None) -> FloatArray:
        """Seconds of an update that activations travel to the host and back, beyond compute."""
        prices = next(one for known, one in self.phases if known.name == phase.name)
        samples, program = self.training.exchanges.samples, phase.program
        sent = along(offloaded_bytes(program, prices.efficiency.stack.memory), samples)
        travel_s = self._at(np.asarray(_THERE_AND_BACK * sent / self.host_rank_bytes_per_s), points)
        device_s = prices.time(points).device_s_per_microbatch
        micro_batches = program.grid.micro_batches_of(lambda values: values)
        times = self._at(along(micro_batches, samples), points)
        return np.asarray(times * np.maximum(travel_s - self.offload_overlap * device_s, 0))

    def _times_s(self, points: Points | None) -> dict[str, FloatArray]:
        return {
            phase.name: np.asarray(
                phase.times * prices.time_s(points) + self.fetched_s(phase, points)
            )
            for phase, prices in self.phases
        }

    def phase_times_s(self) -> Mapping[str, FloatArray]:
        """Seconds of each phase of all layouts, in order."""
        times = self._times_s(None)
        if self.written is None:
            return times
        whole, refreshed = self._writing_s(times, None), self._at(self.written.refreshed_s, None)
        return {"generate": whole - refreshed, **times, "refresh": refreshed}

    def _written_s(
        self, times: Mapping[str, FloatArray], points: Points | None
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of writing and fresh weights, and their part that other phases wait for."""
        assert self.written is not None
        whole = self._writing_s(times, points)
        if not self.written.apart:
            return whole, whole
        # Fresh weights need both sides at once, so only writing overlaps with the other phases.
        refreshed = self._at(self.written.refreshed_s, points)
        others = np.asarray(sum(times.values(), NOTHING))
        return whole, np.asarray(np.maximum(whole - refreshed - others, 0) + refreshed)

    def _writing_s(self, times: Mapping[str, FloatArray], points: Points | None) -> FloatArray:
        assert self.written is not None
        written = self.written
        read = self._at(written.prompts, points) * times["score"]
        own = self._at(written.writing_s, points) + self._at(written.refreshed_s, points)
        return np.asarray(own + read)

    def _at(self, seconds: FloatArray, points: Points | None) -> FloatArray:
        return self.training.over(seconds, points)


def offloaded_bytes(program: StepProgram, overheads: MemoryOverheads) -> FloatArray:
    """Bytes that a micro-batch keeps on the host, of the stage with the most."""
    of_kind = {
        kind: array(
            sum(
                (getattr(overheads, name) * size for name, size in block.offloaded.items()), NOTHING
            )
        )
        for kind, block in program.blocks.items()
    }
    stages = (
        sum((n * of_kind[kind] for kind, n in one.blocks.items()), NOTHING)
        for one in program.stages
    )
    return reduce(np.maximum, stages, NOTHING)


def _host_rates(found: JobPrices, rates: JobRates) -> HostRates:
    """Rates of a rank at its host; all ranks of a node update at once."""
    exchanges = found.training.exchanges
    on_node = exchanges.prices.ranks_per_node / exchanges.prices.platform.joined_nodes
    grid = found.program.grid
    on_stage = np.minimum(grid.ranks_per_stage, on_node)
    # Stages of a pipeline fill a node one after another, so several may share a host.
    together = np.clip(on_node // on_stage, 1, grid.pp)
    return HostRates(
        link_bytes_per_s=found.host_rank_bytes_per_s,
        memory_bytes_per_s=rates.host_memory_bytes_per_s
        / along(array(together * on_stage), exchanges.samples),
        stages_together=along(array(together), exchanges.samples),
    )


def _repeated(time: StepTime, times: int, fetched_s: FloatArray) -> StepTime:
    """Seconds of `times` updates one after the other, once weights have arrived."""
    if times == 1 and not some(fetched_s):
        return time
    categories = {name: times * seconds for name, seconds in time.categories.items()}
    hidden = time.find_hidden
    return replace(
        time,
        categories={**categories, "host": categories["host"] + fetched_s},
        find_hidden=lambda: {name: times * seconds for name, seconds in hidden().items()},
        ended_s=times * time.ended_s,
    )


def _added(each: list[Mapping[StepCategory, FloatArray]]) -> dict[StepCategory, FloatArray]:
    names = dict.fromkeys(name for one in each for name in one)
    return {
        name: np.asarray(sum((one[name] for one in each if name in one), NOTHING)) for name in names
    }


def job_prices(
    program: StepProgram,
    price: Callable[[StepProgram], StepPrices],
    rates: JobRates,
    *,
    logical_size: int | None = None,
) -> JobPrices:
    """Prices of a job's step; `price` returns those of a phase's program.

    `rates` are those of the instance's hosts, all of a node together.
    """
    phases = phases_of(program)
    priced = tuple((one, price(one.program)) for one in phases if one.generation is None)
    found = JobPrices(program=program, phases=priced)
    ranks_per_chip = found.training.platform.chip.ranks(logical_size)
    found = replace(
        found,
        host_rank_bytes_per_s=rates.host_link_bytes_per_s / ranks_per_chip,
        offload_overlap=rates.offload_overlap,
    )
    if program.grid.optimizer_offload == "host":
        of_rank = _host_rates(found, rates)
        found = replace(
            found, phases=tuple((one, prices.updated_on_host(of_rank)) for one, prices in priced)
        )
    generation = phases[0].generation
    if generation is None:
        return found
    written = _written(generation, found.training, logical_size, rates.engine_share)
    return replace(found, written=written)


def _written(
    generation: Generation, prices: StepPrices, logical_size: int | None, share: Numbers
) -> WritingPrices:
    grid, platform = generation.grid, prices.platform
    chip, ranks_per_chip = platform.chip, platform.chip.ranks(logical_size)
    exchanges = prices.exchanges.of(prices.program)
    samples = exchanges.samples
    apart = grid.generation_nodes is not None
    engines, elsewhere = generation.engines, array(1)
    if grid.generation_nodes is not None:
        node_ranks = platform.ranks(logical_size) // platform.joined_nodes
        engines = np.floor(grid.generation_nodes * node_ranks / grid.tp)
        # Less than one is none: such a layout has no time.
        engines = np.where(engines > 0, engines, np.nan)
        elsewhere = array(generation.engines / engines)
    # Writing one token reads all weights and the cache of all answers: bytes bound small batches,
    # FLOP large ones.
    bandwidth = chip.memory.bandwidth_per_chip_bytes_per_s / ranks_per_chip * np.asarray(share)
    peak = chip.peak_flop_per_s(chip.own_format(grid.recipe.linear)) / ranks_per_chip
    prompts = generation.prompt * elsewhere / (grid.sequence * (grid.samples_per_prompt or 1))
    if grid.generation_tokens_per_s is not None:
        chips = engines * grid.tp / ranks_per_chip
        rate = chips * grid.generation_tokens_per_s
        writing_s = along(array(grid.global_batch * generation.response / rate), samples)
        prompts = array(0)
    else:
        read_s = along(generation.read_bytes(engines), samples) / bandwidth
        computed_s = along(generation.flop(engines), samples) / (peak * np.asarray(share))
        rounds = along(generation.rounds(engines), samples)
        summed_s = sum((exchanges.seconds(op) for op in generation.sums(engines)), NOTHING)
        writing_s = np.maximum(read_s, computed_s) + rounds * summed_s
    if samples:
        # The last sample is the least time. Answers may be shorter than said: no writing is sure.
        writing_s = np.asarray(writing_s) * (np.arange(samples) < samples - 1)
    copied_s = _THERE_AND_BACK * along(generation.weights_bytes, samples) / bandwidth
    fetched_s = sum((exchanges.seconds(op) for op in generation.refreshed()), NOTHING)
    return WritingPrices(
        writing_s=np.asarray(writing_s),
        refreshed_s=np.asarray(copied_s + fetched_s),
        prompts=along(array(prompts), samples),
        apart=apart,
        refused=tuple(exchanges.refused),
    )

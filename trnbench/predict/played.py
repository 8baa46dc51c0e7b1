"""Training step played by the emulator, with the same inputs as its closed form.

Both engines get the program, the places of its ranks, the data sheets and a calibration's numbers
of software. Seconds of the closed form enter the played step only for compute on chips without a
tile emulator, and the step names those categories.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.analytic.collective.choice import chosen_for
from trnbench.engines.analytic.step.compute import compute_time
from trnbench.engines.emulate.step.compute import BlockParts, RankUse, as_runs
from trnbench.engines.emulate.step.host import HostPace
from trnbench.engines.emulate.step.play import Disturbance, PlayedCluster, PlayedStep, play_step
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.predict.job_rates import host_link, host_memory
from trnbench.predict.setup import TrainSetup
from trnbench.program.step import StepProgram


def played_step(
    setup: TrainSetup,
    program: StepProgram,
    disturbed: Disturbance | None = None,
    *,
    with_timeline: bool = False,
) -> PlayedStep:
    """Played step of a scalar program that is valid and that the platform can run."""
    use = RankUse(
        logical_size=setup.logical_size,
        node_ranks=setup.node_ranks(int(program.grid.ranks("world"))),
    )
    instance, chip = setup.platform.instance, setup.platform.chip
    machine = PlayedCluster(
        platform=setup.domain,
        efficiency=setup.efficiency,
        collectives=setup.collectives,
        use=use,
        choose=chosen_for,
        host=HostPace(
            link_bytes_per_s=host_link(setup.rates, instance).value
            / chip.ranks(setup.logical_size),
            memory_bytes_per_s=host_memory(setup.rates, instance).value,
        ),
        runs=setup.memo.runs,
        sites=setup.memo.sites,
    )
    return play_step(
        program,
        machine,
        disturbed,
        handed_in=_handed_in(setup, program, use),
        with_timeline=with_timeline,
    )


def _handed_in(
    setup: TrainSetup, program: StepProgram, use: RankUse
) -> Mapping[str, BlockParts] | None:
    """Compute in closed form for a chip without a tile emulator; None for other chips."""
    if isinstance(setup.platform.chip.unit, NeuronCores):
        return None
    closed = compute_time(
        program,
        setup.platform.chip,
        setup.efficiency.compute,
        logical_size=use.logical_size,
        chip_ranks=use.node_ranks,
    )
    return {
        kind: as_runs({key: float(seconds) for key, seconds in block.parts.items()})
        for kind, block in closed.blocks.items()
    }

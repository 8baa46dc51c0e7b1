"""Prices of a training step in a settled layout, and its times by samples and in common draws.

Where purchases are compared, a step is wanted with an interval of its own, and in draws that it
shares with others. Both are rows of the same numbers: one pass prices them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from trnbench.engines.analytic.step.compute import Products
from trnbench.engines.analytic.step.exchanges import Exchanges, exchanges_of
from trnbench.engines.analytic.step.job_time import JobPrices, job_prices
from trnbench.engines.analytic.step.time import StepPrices, step_prices
from trnbench.facts.arrays import BoolArray, FloatArray, distinct
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import DEGREES, Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.job_rates import job_rates
from trnbench.predict.prediction import PricedStep
from trnbench.predict.sampling import SAMPLES
from trnbench.predict.setup import TrainSetup
from trnbench.program.job_phases import phases_of
from trnbench.program.step import StepProgram, training_step


@lru_cache(maxsize=16)
def program_of(model: Model, layout: Layout) -> StepProgram:
    # Draws and means of a prediction ask for the same program again.
    return training_step(model, layout)


def programs_of(model: Model, layouts: Sequence[Layout]) -> StepProgram:
    """Programs of layouts that differ in nothing but their degrees, as one; rules are skipped."""
    first, *others = layouts
    if not others:
        return program_of(model, first)
    degrees = {name: np.array([getattr(one, name) for one in layouts]) for name in DEGREES}
    return training_step(model, replace(first, **degrees), known_legal=True)


SharedPrices: TypeAlias = tuple[Exchanges, Products]
"""Prices that programs on one grid share, by one efficiency."""


def shared_prices(
    setup: TrainSetup,
    program: StepProgram,
    efficiency: TrainingEfficiency,
    wanted: BoolArray | None = None,
) -> SharedPrices:
    """Exchanges and products of a program, priced when first used.

    `wanted` selects layouts of the grid, None all of them. They must use equally many ranks per
    node.
    """
    worlds = program.grid.ranks("world")
    if wanted is not None:
        worlds = np.broadcast_to(worlds, program.shape)[wanted]
    (node_ranks,) = {setup.node_ranks(int(ranks)) for ranks in distinct(worlds)}
    exchanges = exchanges_of(
        program,
        setup.domain,
        efficiency,
        setup.collectives,
        logical_size=setup.logical_size,
        node_ranks=node_ranks,
        wanted=None if wanted is None else program.legal & wanted,
        engines=setup.memo.engines,
    )
    return exchanges, Products()


def prices_of(
    setup: TrainSetup,
    program: StepProgram,
    efficiency: TrainingEfficiency | None = None,
    shared: SharedPrices | None = None,
) -> JobPrices:
    """Prices of a program's steps, by the given efficiency or by that of the set-up.

    `shared` comes from a program on the same grid, by the same efficiency.
    """
    taken = efficiency or setup.efficiency
    exchanges, products = shared or shared_prices(setup, program, taken)

    def phase_prices(phase: StepProgram) -> StepPrices:
        return step_prices(phase, setup.domain, exchanges, products)

    samples = taken.samples
    rates = setup.memo.rates.of(
        samples, lambda: job_rates(setup.rates, setup.platform.instance, samples)
    )
    return job_prices(program, phase_prices, rates, logical_size=setup.logical_size)


def unpriced(prices: JobPrices, index: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Operations that the chip cannot compute or the communication stack cannot serve, as text.

    For the layout at an index of the program's grid.
    """
    shape = prices.program.shape
    broken = [reason for reason in prices.refused if np.broadcast_to(reason.broken, shape)[index]]
    if not broken:
        return prices.reasons
    at = prices.program.grid.at(index)
    return (*prices.reasons, *(reason.words(at) for reason in broken))


def priced_step(setup: TrainSetup, layout: Layout) -> PricedStep:
    """The step of a layout by samples, and in the common draws of a set-up that has some."""
    if setup.draws is None:
        return _priced(setup, program_of(setup.model, layout))
    key = setup.model, setup.nodes, layout
    return setup.memo.steps.of(key, lambda: _priced(setup, program_of(setup.model, layout)))


def drawn_s(setup: TrainSetup, layout: Layout, draws: CommonDraws) -> FloatArray:
    """Seconds of a step by the calibration itself, in common draws, and at the fastest."""
    found = priced_step(setup, layout).drawn_s if draws == setup.draws else None
    if found is not None:
        return found
    return prices_of(setup, program_of(setup.model, layout), setup.drawn(draws)).time().time_s


def _priced(setup: TrainSetup, program: StepProgram) -> PricedStep:
    together = setup.draws is not None and _of_itself(program)
    prices = prices_of(setup, program, setup.samples_and_draws if together else setup.samples)
    if refused := unpriced(prices):
        return PricedStep(refused=refused, phases_s={})
    time = prices.time()
    if len(prices.phases) > 1 or prices.written is not None:
        phases_s = {name: float(of.flat[0]) for name, of in prices.phase_times_s().items()}
    else:
        phases_s = {phase.name: float(time.time_s.flat[0]) for phase, _ in prices.phases}
    if not together:
        return PricedStep(refused=(), time=time, phases_s=phases_s)
    drawn, sampled = time.time_s, time
    if drawn.ndim:
        drawn, sampled = drawn[SAMPLES + 2 :], time.of(_first_rows)
    return PricedStep(refused=(), time=sampled, phases_s=phases_s, drawn_s=drawn)


def _of_itself(program: StepProgram) -> bool:
    """True where no time depends on the rates of hosts and engines, which are drawn apart."""
    grid = program.grid
    offloaded = grid.optimizer_offload == "host" or grid.activation_offload is not None
    return not offloaded and len(phases_of(program)) == 1


def _first_rows(values: FloatArray) -> FloatArray:
    """The rows of samples, which stand first; a copy, so that the others need not be kept."""
    return values[..., : SAMPLES + 2].copy()

"""The questions of What if: answered by a process that searches layouts once for each scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.charts.record import BarChart
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.compare.moves import Steps, WhatIfFound
    from trnbench.verbs.compare.question import CompareQuestion
    from trnbench.verbs.compare.supposing import World

_WORLDS: dict[CompareQuestion, World] = {}
"""The question that was asked last, in the process that answers."""


def _world(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> World:
    from trnbench.tui.questions.scenarios import compare_question, watch_of
    from trnbench.verbs.compare.supposing import world_of

    question = compare_question(scenario).settled(catalog)
    if question not in _WORLDS:
        found = world_of(catalog, question, watch_of(hooks))
        if hooks.ended():
            return found
        _WORLDS.clear()
        _WORLDS[question] = found
    return _WORLDS[question]


def what_if(catalog: Catalog, scenario: Given, steps: Steps, hooks: WorkHooks) -> WhatIfFound:
    from trnbench.verbs.compare.supposing import supposed

    return supposed(_world(catalog, scenario, hooks), steps)


def sensitivity_chart(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> BarChart:
    """Moves of each input before another type is best, as in `compare --sensitivity`."""
    from trnbench.verbs.compare.run import tipping_world
    from trnbench.verbs.quotes.tipping import tipping_chart, tippings

    world = _world(catalog, scenario, hooks)

    def tell(done: int, total: int) -> None:
        hooks.progress(done, total, "inputs")

    return tipping_chart(tippings(tipping_world(world.question, world.explored), tell))

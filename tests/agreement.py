"""Steps by both engines over a seeded sample of layouts, and whether the engines agree on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.played import played_step
from trnbench.predict.prices import prices_of
from trnbench.predict.search.question import question_of
from trnbench.predict.search.result import Found
from trnbench.predict.search.search import search
from trnbench.predict.settled import with_habits
from trnbench.predict.setup import SetupMemo, TrainSetup, train_setup
from trnbench.program.slots import STEP_CATEGORIES
from trnbench.program.step import training_step
from trnbench.verbs.asking.knobs import layout_of

MODELS: Mapping[str, int | None] = {
    "llama2-13b": 4096,
    "llama3.1-70b": 8192,
    "mixtral-8x7b": 4096,
    "llama3.1-8b": 128 * 1024,
    "bert-large": None,
}
"""A dense model, one with grouped queries, with experts, with long sequences, an encoder; the
sequence of each, None for its usual one."""
MACHINES: Mapping[str, int] = {"trn1.32xlarge": 16, "trn2.48xlarge": 8, "trn2-ultraserver": 2}
"""Instances, and how many of each."""
MEDIAN, NEARLY_ALL, NEARLY = 0.03, 0.10, 0.95
"""How far apart steps may be: the median, and so large a part of the sample."""
WEIGHTY, FEWEST, OFF = 0.05, 3, 1.6
"""A category counts where it is this share of a step, in at least so many steps; its ratio is off
when its median is more than that, or less than one over it."""


class Case(Record):
    """A layout that fits."""

    setup: TrainSetup
    layout: Layout

    def afresh(self) -> Case:
        """Return the case with nothing remembered of what was priced or played."""
        return replace(self, setup=replace(self.setup, memo=SetupMemo()))


Seconds = Mapping[str, float]


def sample(each: int, seed: int) -> tuple[Case, ...]:
    """Return so many layouts of each model on each machine, of all that are legal and fit.

    A third of them with a pipeline, a third with tensor parallelism across chips where there is
    such a layout, the rest as they come.
    """
    random = np.random.default_rng(seed)
    return tuple(
        Case(setup=setup, layout=layout)
        for setup, fitting in _fitting()
        for layout in _drawn(setup, fitting, each, random)
    )


def across_chips(case: Case) -> bool:
    """Return whether a tensor group is larger than a chip."""
    return bool(case.layout.tp > case.setup.platform.chip.ranks(None))


def _fitting() -> Iterator[tuple[TrainSetup, Sequence[Found]]]:
    for model, sequence in MODELS.items():
        for instance, nodes in MACHINES.items():
            setup = train_setup(open_catalog(), model, instance, nodes)
            given = layout_of(**({} if sequence is None else {"sequence": sequence}))
            layout, _ = with_habits(setup.model, setup.stack, given, setup.ranks)
            found = search(question_of(setup, layout, (nodes,)), top=10**6)
            yield setup, found.by_nodes[nodes].ranked


def _drawn(
    setup: TrainSetup, fitting: Sequence[Found], each: int, random: np.random.Generator
) -> list[Layout]:
    third = each // 3
    pools = [(fitting, each - 2 * third)]
    if third:
        # Only here is every layout written out: there may be tens of thousands.
        chips = setup.platform.chip.ranks(None)
        piped = [one for one in fitting if one.layout.pp > 1]
        across = [one for one in fitting if one.layout.tp > chips]
        pools = [(piped or fitting, third), (across or fitting, third), *pools]
    return [
        some[place].layout
        for some, count in pools
        for place in random.choice(len(some), min(count, len(some)), replace=False)
    ]


def closed_form(case: Case) -> Seconds:
    """Return a step in closed form, seconds by category."""
    program = training_step(case.setup.model, case.layout)
    seconds = prices_of(case.setup, program).time().by_category
    return {name: float(value) for name, value in seconds.items()}


def as_played(case: Case) -> Seconds:
    """Return a step as played, seconds by category."""
    program = training_step(case.setup.model, case.layout)
    return {str(name): s for name, s in played_step(case.setup, program).by_category.items()}


def by(engine: Callable[[Case], Seconds], cases: Sequence[Case]) -> list[Seconds]:
    """Return the steps of all cases by one engine."""
    return [engine(case) for case in cases]


def apart(closed: Sequence[Seconds], played: Sequence[Seconds]) -> FloatArray:
    """Return by how much of the closed form's step the played ones differ."""
    ratios = [sum(b.values()) / sum(a.values()) for a, b in zip(closed, played, strict=True)]
    return np.asarray(np.abs(np.array(ratios) - 1))


def disagreements(closed: Sequence[Seconds], played: Sequence[Seconds]) -> list[str]:
    """Return in words what the engines disagree about; nothing where they agree."""
    steps = apart(closed, played)
    found = []
    if np.median(steps) > MEDIAN:
        found.append(f"steps are {np.median(steps):.1%} apart in the median")
    if np.quantile(steps, NEARLY) > NEARLY_ALL:
        found.append(f"a step in twenty is {np.quantile(steps, NEARLY):.1%} apart or more")
    for name in STEP_CATEGORIES:
        ratios = [
            b[name] / a[name] if a[name] > 0 else np.inf
            for a, b in zip(closed, played, strict=True)
            if max(a[name] / sum(a.values()), b[name] / sum(b.values())) >= WEIGHTY
        ]
        if len(ratios) >= FEWEST and not 1 / OFF <= np.median(ratios) <= OFF:
            found.append(f"{name} takes {np.median(ratios):.2f} times as long in the median")
    return found


def distribution(closed: Sequence[Seconds], played: Sequence[Seconds]) -> str:
    """Return how far apart the engines are, in lines: the step, then each category."""
    steps = apart(closed, played)
    lines = [_line("step", steps)]
    for name in STEP_CATEGORIES:
        differences = [
            abs(b[name] - a[name]) / sum(a.values()) for a, b in zip(closed, played, strict=True)
        ]
        lines.append(_line(name, np.array(differences)))
    return "\n".join(lines)


def _line(name: str, shares: FloatArray) -> str:
    median, most, largest = np.median(shares), np.quantile(shares, NEARLY), shares.max()
    return f"{name:13} median {median:.2%}, 95 % within {most:.2%}, largest {largest:.2%}"

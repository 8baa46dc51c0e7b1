"""The population of software from families left out whole: empirical Bayes of their levels.

Model: log measured over predicted time of a step = level of its family + its own peculiarity; the
levels of families of a kind are a Student t draw around the kind's centre. Predictions are those of
the stack that stands for the kind, with nothing of the family fitted. Centre, scatter of families
and scatter of steps are the most likely ones, near weak beliefs that few families do not overrule.
The spread is conformal: each side is a quantile of what steps ask for beyond uncertain parameters
when their family had no part in the centre; a family weighs as the root of its steps, between one
voice a family and one a step. Memory is a draw of its own, made in the same way.

    python -m trnbench.evidence.fit.population FILES... DATE OUTPUT
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.fit.calibrate import reach
from trnbench.evidence.fit.solve import TAIL_WEIGHT
from trnbench.evidence.rows import EvidenceFile, read_evidence
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.coverage import Spread, widest
from trnbench.facts.calibration.hosts import Dispatch
from trnbench.facts.calibration.population import (
    FILE,
    WHOLE,
    KindOfSoftware,
    OfKind,
    PopulationKind,
    SpreadWithout,
    transfer_named,
)
from trnbench.facts.calibration.software import execution_in, software_in
from trnbench.facts.calibration.stack_of import FoundStack, Stacks
from trnbench.facts.calibration.training_stack import (
    TrainingStack,
    generic_stack,
    load_training_stack,
)
from trnbench.facts.calibration.transfer import (
    HANDED_ON,
    nearest_instance,
    of_one_generation,
    widened,
)
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.catalog.toml_file import toml_text
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_chip, load_instance, load_platform
from trnbench.facts.records import Record, replace
from trnbench.predict.ranges import END

CENTRE = 0.2
"""Belief in a kind's centre: log standard deviation around the stack that stands for it."""
BETWEEN = 0.2
"""Believed log scatter of families about their kind's centre, to a factor of `e ** SURE`."""
SURE = 0.5
FARTHEST = 1.0
"""Log residual beyond which a step says no more about a level."""
KEPT = "check"
"""Value of `use` of rows that have no part in anything."""


class StrangerStep(Record):
    """A measured step beside the prediction of the stack that stands for its kind."""

    family: str
    residual: float
    """Log of measured over predicted time; `down`, `up`: log reaches of uncertain parameters."""
    down: float
    up: float


class Centre(Record):
    """Most likely centre of a kind, and scatters of families and of steps, in logarithms."""

    centre: float
    between: float
    within: float


class _Standing(Stacks, kw_only=False):
    """Stacks where software of a kind is stood for by that kind's, and no other is let in."""

    kind: PopulationKind = "eager"

    def of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        if isinstance(platform.chip.unit, NeuronCores) or not self._tells(framework, platform):
            raise InputError("no fitted row is of software of this kind")
        structure: Dispatch = "compiled" if self.kind == "compiled" else "eager"
        generic = generic_stack(self.catalog, structure, platform.instance)
        return FoundStack(stack=generic, own=False)

    def _tells(self, framework: str, platform: Platform) -> bool:
        software = software_in(self.catalog, platform, framework)
        kind = execution_in(framework) or (software.execution if software else None)
        return kind == self.kind or (self.kind == "any" and kind in ("eager", "compiled"))


class _Carried(Stacks, kw_only=False):
    """Stacks where software is carried over from chips of another family, and no other let in."""

    def of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        software = software_in(self.catalog, platform, framework)
        names = {name.lower() for name in software.names} if software else set()
        far = [
            stack
            for stack in self.known
            if names & {name.lower() for name in stack.frameworks} and stack.fitted_on
            if not any(of_one_generation(chip, platform.chip) for chip in self._measured_on(stack))
        ]
        measured = [name for stack in far for name in stack.fitted_on]
        if not measured:
            raise InputError("its software was measured on no other chips")
        near = nearest_instance(self.catalog, platform.instance, measured).instance
        stack = next(one for one in far if near in one.fitted_on)
        # Numbers are as unsure as those that a stack without rows takes over.
        wider = widened(stack.provenance, HANDED_ON)
        return FoundStack(stack=replace(stack, provenance=wider), own=False)

    def _measured_on(self, stack: TrainingStack) -> list[Chip]:
        names = (load_instance(self.catalog, name).chip for name in stack.fitted_on)
        return [load_chip(self.catalog, name) for name in names]


def strangers(
    catalog: Catalog, files: Iterable[EvidenceFile], kind: PopulationKind | None
) -> tuple[list[StrangerStep], list[StrangerStep]]:
    """Steps of all families of a kind by the stack that stands for the kind: times and memory.

    Without a kind: of all transfers to other chips, by the stack that is carried over.
    """
    found, held = [], []
    for file in files:
        standing = _Carried(catalog) if kind is None else _Standing(catalog, kind=kind)
        reader = Reader(catalog, standing=standing)
        rows = tuple(row for row in file.rows if row.text("use") != KEPT)
        for row, one in zip(rows, compare_training(reader, replace(file, rows=rows)), strict=True):
            if one.ran and one.memory.error is not None:
                held.append(_held(catalog, row.text("framework"), one))
            if one.error is not None and one.predicted_s is not None:
                step = _stranger(catalog, row.text("framework"), one)
                if kind is None and one.platform is not None:
                    chip = load_instance(catalog, one.platform).chip
                    name = transfer_named(step.family, one.stack or "", chip)
                    step = replace(step, family=name)
                found.append(step)
    return found, held


def released(catalog: Catalog, files: Iterable[EvidenceFile]) -> list[StrangerStep]:
    """Steps of configurations that ran in several releases of a software, about their mean."""
    found: dict[tuple[object, ...], dict[str, list[float]]] = {}
    for file in files:
        rows = tuple(row for row in file.rows if row.text("use") != KEPT and row.said("release"))
        compared = compare_training(Reader(catalog), replace(file, rows=rows))
        for row, one in zip(rows, compared, strict=True):
            # Releases on Trainium have factors of their own.
            if one.error is not None and one.set == "gpu_training":
                alike = (one.software, one.platform, one.model, one.ranks, one.precision)
                release = f"{one.software} {row.text('release')}"
                of = found.setdefault(alike, {}).setdefault(release, [])
                of.append(-math.log1p(one.error))
    steps = []
    for releases in found.values():
        levels = {name: float(np.mean(of)) for name, of in releases.items()}
        mean = float(np.mean(list(levels.values())))
        for name, level in levels.items() if len(levels) > 1 else ():
            steps.append(StrangerStep(family=name, residual=level - mean, down=0.0, up=0.0))
    return steps


def _held(catalog: Catalog, framework: str, one: Comparison) -> StrangerStep:
    """The memory of a row; what its uncertain numbers but the whole reach is known anyhow."""
    assert one.platform is not None
    assert one.stack is not None
    stack = load_training_stack(catalog, one.stack)
    whole = stack.provenance.evidence.get(WHOLE)
    ends = () if whole is None else (whole.low, whole.high)
    scatter = [(end or 1.0) / float(stack.memory.whole) for end in ends] or [1.0, 1.0]
    measured, predicted, low, high = one.memory
    assert measured
    assert predicted
    down, up = (
        math.sqrt(max(math.log((end or predicted) / predicted) ** 2 - math.log(part) ** 2, 0.0))
        for end, part in zip((low, high), scatter, strict=True)
    )
    software = software_in(catalog, load_platform(catalog, one.platform), framework)
    return StrangerStep(
        family=software.title if software else framework,
        residual=math.log(measured / predicted),
        down=down,
        up=up,
    )


def _stranger(catalog: Catalog, framework: str, one: Comparison) -> StrangerStep:
    assert one.platform is not None
    assert one.stack is not None
    assert one.measured_s is not None
    assert one.predicted_s is not None
    assert one.low_s is not None
    assert one.high_s is not None
    platform = load_platform(catalog, one.platform)
    software = software_in(catalog, platform, framework)
    stack = load_training_stack(catalog, one.stack)
    spread = stack.unseen or stack.spread_on(one.platform, one.family)
    ends = (one.low_s / one.predicted_s, one.high_s / one.predicted_s)
    down, up = (
        math.sqrt(max(math.log(end) ** 2 - math.log(part) ** 2, 0.0))
        for end, part in zip(ends, (spread.low, spread.high), strict=True)
    )
    return StrangerStep(
        family=software.title if software else framework,
        residual=math.log(one.measured_s / one.predicted_s),
        down=down,
        up=up,
    )


def centre_of(families: Sequence[Sequence[float]]) -> Centre:
    """The most likely centre and scatters of families' log residuals."""
    from scipy.optimize import minimize

    kept = [np.clip(one, -FARTHEST, FARTHEST) for one in families]
    counts = np.array([len(one) for one in kept], dtype=float)
    means = np.array([float(np.mean(one)) for one in kept])
    inside = float(sum(((one - one.mean()) ** 2).sum() for one in kept))
    free = float(counts.sum() - len(kept))

    def cost(at: FloatArray) -> float:
        centre, between, within = at[0], math.exp(2 * at[1]), math.exp(2 * at[2])
        variance = between + within / counts
        far = (TAIL_WEIGHT + 1) * np.log1p((means - centre) ** 2 / variance / TAIL_WEIGHT)
        of_means = float(np.sum(far + np.log(variance)))
        of_steps = inside / within + free * math.log(within)
        believed = (centre / CENTRE) ** 2 + ((at[1] - math.log(BETWEEN)) / SURE) ** 2
        believed += ((at[2] - math.log(BETWEEN)) / SURE) ** 2
        return float(of_means + of_steps + believed) / 2

    found = minimize(cost, np.array([0.0, math.log(BETWEEN), math.log(BETWEEN)]), method="BFGS").x
    return Centre(centre=float(found[0]), between=math.exp(found[1]), within=math.exp(found[2]))


def kind_of(steps: Sequence[StrangerStep], held: Sequence[StrangerStep] = ()) -> KindOfSoftware:
    """A kind's level, and the reach of the steps of families left out; `held`: of their memory."""
    memory = kind_of(held) if held else None
    families: dict[str, list[StrangerStep]] = {}
    for step in steps:
        families.setdefault(step.family, []).append(step)
    residuals = {name: [one.residual for one in of] for name, of in families.items()}
    whole = centre_of(list(residuals.values()))
    others = {
        name: centre_of([one for other, one in residuals.items() if other != name])
        for name in families
    }
    centres = {name: one.centre for name, one in others.items()}
    # A level is moved only where that brings families nearer that had no part in it.
    unmoved = dict.fromkeys(families, 0.0)
    best = min((unmoved, centres), key=lambda one: _error(residuals, one))
    off = [
        (one, one.residual - best[name], 1 / math.sqrt(len(of)))
        for name, of in families.items()
        for one in of
    ]

    def spread(without: str | None) -> Spread:
        scatters = whole if without is None else others[without]
        believed = END * math.hypot(scatters.between, scatters.within)
        told = [one for one in off if one[0].family != without]
        above = reach([(_asked(far, one.up), weight) for one, far, weight in told], believed)
        below = reach([(_asked(-far, one.down), weight) for one, far, weight in told], believed)
        return Spread(low=math.exp(-below), high=math.exp(above))

    return KindOfSoftware(
        families=tuple(sorted(families)),
        rows=len(steps),
        level=math.exp(whole.centre) if best is centres else 1.0,
        spread=spread(None),
        within=Spread(low=math.exp(-END * whole.within), high=math.exp(END * whole.within)),
        without={
            name: SpreadWithout(low=of.low, high=of.high, level=math.exp(best[name]))
            for name in families
            for of in [spread(name)]
        },
        without_family=_error(residuals, best),
        memory=memory,
    )


def _error(residuals: Mapping[str, Sequence[float]], centres: Mapping[str, float]) -> float:
    """Mean error of steps predicted with these centres, families as the roots of their steps."""
    errors = [
        (abs(math.expm1(centres[name] - one)), 1 / math.sqrt(len(of)))
        for name, of in residuals.items()
        for one in of
    ]
    return sum(error * weight for error, weight in errors) / sum(weight for _, weight in errors)


def _asked(off: float, known: float) -> float:
    """Spread that an error calls for beyond the reach of uncertain parameters."""
    return math.copysign(math.sqrt(max(off**2 - known**2, 0.0)), off)


def text_of(kinds: Mapping[str, KindOfSoftware], date: datetime.date) -> str:
    """The file of a population."""
    table: dict[str, object] = {
        "name": FILE,
        "title": "Software that nobody measured, by its kind",
        "sources": {
            "left-out": {
                "title": "This project: measured over predicted time of published steps, "
                "with every family of software left out in turn",
                "date": date,
            }
        },
    }
    for kind, one in kinds.items():
        of_memory = {"memory": _table(one.memory)} if one.memory else {}
        table[kind] = {**_table(one), **of_memory}
    return f"# Written by `make calibration`.\n\n{toml_text(table)}"


def _table(one: OfKind) -> dict[str, object]:
    return {
        "source": "left-out",
        "kind": "derived",
        "families": list(one.families),
        "rows": one.rows,
        **{name: _rounded(getattr(one, name)) for name in ("level", "without_family")},
        "spread": _ends(one.spread),
        **({"within": _ends(one.within)} if one.within else {}),
        "without": {
            family: {**_ends(spread), "level": _rounded(spread.level)}
            for family, spread in one.without.items()
        },
    }


def _ends(spread: Spread) -> dict[str, object]:
    ends = {"low": _rounded(spread.low), "high": _rounded(spread.high)}
    return {"source": "left-out", "kind": "derived", **ends}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def main(words: Sequence[str]) -> None:
    """Write the population that files of steps tell of; the last word is the file."""
    *names, date, output = words
    catalog = open_catalog()
    files = [read_evidence(Path(name)) for name in names]
    kinds: tuple[PopulationKind, ...] = ("eager", "compiled", "any")
    found: dict[str, KindOfSoftware] = {
        kind: kind_of(*strangers(catalog, files, kind)) for kind in kinds
    }
    # What is known of no kind scatters no less than what is known of one.
    reaches = widest(*(one.spread for one in found.values()))
    found["any"] = replace(found["any"], spread=reaches)
    for kind in kinds:  # where no memory was measured, it is as that of software in general
        found[kind] = replace(found[kind], memory=found[kind].memory or found["any"].memory)
    found["carried"] = kind_of(strangers(catalog, files, None)[0])
    found["releases"] = kind_of(released(catalog, files))
    write_whole(Path(output), text_of(found, datetime.date.fromisoformat(date)).encode())


if __name__ == "__main__":
    main(sys.argv[1:])

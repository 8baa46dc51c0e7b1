"""The population of software: how far the steps of software that nobody measured lie from the stack
that stands for it, by its kind.

`calibration/population-of-software.toml` is written by `make calibration` from families of software
left out whole (`evidence.fit.population`). A stranger is a draw from it: its level is that of its
kind, its interval reaches as far as left-out families of the kind did. So is software carried over
to chips of another family: a draw from the transfers that can be checked.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import (
    STACK_PREFIX,
    TrainingStack,
    load_training_stack,
)
from trnbench.facts.calibration.transfer import of_one_generation
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Evidence, Sourced
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_chip, load_instance
from trnbench.facts.records import Record, field, replace

FILE = "population-of-software"
PopulationKind: TypeAlias = Literal["eager", "compiled", "any"]
_FACTOR = "factor"
WHOLE = "memory.whole"
"""Factor on all memory; its range is how far measured memory lies from predicted."""


class SpreadWithout(Spread):
    """Scatter of a kind as the other families tell it, about the centre that they have."""

    level: float


class OfKind(Record):
    """Level and scatter of a kind's times or memory, over those of the stack that stands for it."""

    families: tuple[str, ...]
    """Software with measured steps that tells of the kind; `rows`: its steps."""
    rows: int
    level: float
    """Centre of measured over predicted ones, one family a draw."""
    spread: Spread
    """Scatter about that centre, of families that had no part in it."""
    within: Spread | None = None
    """Scatter of steps about the level of their own family."""
    without: dict[str, SpreadWithout] = field(default_factory=dict)
    """The same without a family, by family."""
    without_family: float
    """Mean error of steps predicted without their family."""


class KindOfSoftware(OfKind):
    """Level and scatter of times of a kind of software, and of its memory where rows tell it."""

    memory: OfKind | None = None


class Population(Sourced):
    """Software in general, by kind."""

    name: str
    title: str
    eager: KindOfSoftware
    compiled: KindOfSoftware
    any: KindOfSoftware
    """Software of which not even the kind is known, on the stack of the eager kind."""
    carried: KindOfSoftware | None = None
    """Software on other chips than those it was measured on, on its stack there; its families are
    transfers (`transfer_named`)."""
    releases: KindOfSoftware | None = None
    """Steps of one configuration in several releases of a software, about their mean; its families
    are releases."""

    def of(self, kind: str | None) -> KindOfSoftware:
        """The kind of this name, or software in general."""
        return {"eager": self.eager, "compiled": self.compiled}.get(kind or "", self.any)


def transfer_named(software: str, stack: str, chip: str) -> str:
    """Name of a transfer of software: its stack on the measured chips, and the other chip."""
    return f"{software}: {stack.removeprefix(STACK_PREFIX)} on {chip}"


def load_population(catalog: Catalog) -> Population | None:
    """The shipped population, or the user's own; None where a catalogue has none."""
    if not catalog.has("calibration", FILE):
        return None
    return load_named(catalog, "calibration", FILE, Population)


def carried_over(catalog: Catalog, stack: TrainingStack, platform: Platform) -> TrainingStack:
    """A stack as transfers to other chips were found to lie, where it comes from such a one."""
    if stack.basis != "transferred" or stack.inherits_from is None:
        return stack
    measured = load_training_stack(catalog, stack.inherits_from).fitted_on
    chips = [load_chip(catalog, load_instance(catalog, name).chip) for name in measured]
    population = load_population(catalog)
    near = any(of_one_generation(chip, platform.chip) for chip in chips) or not chips
    if near or population is None or population.carried is None:
        return stack
    return drawn(stack, population.carried)


def drawn(stack: TrainingStack, kind: KindOfSoftware) -> TrainingStack:
    """The stack as a draw from a kind: its level moved to the kind's, its scatter the kind's."""
    evidence = dict(stack.provenance.evidence)
    if _FACTOR in evidence:
        evidence[_FACTOR] = _scaled(evidence[_FACTOR], kind.level)
    if kind.memory is not None:
        stack = weighed(stack, kind.memory.level, kind.memory.spread)
        evidence |= {WHOLE: stack.provenance.evidence[WHOLE]} if WHOLE in evidence else {}
    return replace(
        stack,
        factor=stack.factor * kind.level,
        spread=kind.spread,
        unseen=None,
        provenance=replace(stack.provenance, evidence=evidence),
    )


def weighed(stack: TrainingStack, level: float, spread: Spread) -> TrainingStack:
    """The stack with its memory moved to a level and scattered about it, where it has a range."""
    known = stack.provenance.evidence.get(WHOLE)
    if known is None:
        return stack
    whole = stack.memory.whole * level
    low, high = whole * spread.low, whole * spread.high
    told = replace(known, low=low, high=high, range_text=f"{low:.4g} to {high:.4g}")
    evidence = {**stack.provenance.evidence, WHOLE: told}
    return replace(
        stack,
        memory=replace(stack.memory, whole=whole),
        provenance=replace(stack.provenance, evidence=evidence),
    )


def _scaled(evidence: Evidence, level: float) -> Evidence:
    if evidence.low is None or evidence.high is None:
        return evidence
    low, high = evidence.low * level, evidence.high * level
    return replace(evidence, low=low, high=high, range_text=f"{low:.4g} to {high:.4g}")

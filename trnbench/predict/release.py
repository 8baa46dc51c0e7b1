"""Release of the software that a question is about.

Where steps date the factors of releases, a release has its own. One that no step dates is
predicted as the newest that is known, in an interval that reaches as far as releases of one
software lie apart in the evidence.
"""

from __future__ import annotations

import re

from trnbench.errors import InputError
from trnbench.facts.calibration.coverage import Spread, together
from trnbench.facts.calibration.population import load_population
from trnbench.facts.calibration.stack_of import release_named
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.predict.assumption import Assumption

NAME = "release"


def of_release(
    catalog: Catalog, efficiency: TrainingEfficiency, said: str | None
) -> tuple[TrainingEfficiency, Assumption | None]:
    """The calibration of a release, and what is assumed of it; without one, the stack's own."""
    stack, dated = efficiency.stack, efficiency.releases
    if said is None:
        if not dated or stack.release is None:
            return efficiency, None
        why = f"the release that {stack.short_name} stands for"
        return efficiency, Assumption(name=NAME, value=stack.release, why=why)
    known = release_named(dated, said)
    if known is not None:
        why = f"as its own steps date it: {dated[known]:.3g} times the newest's time"
        own = replace(efficiency, stack=replace(stack, release=known))
        return own, Assumption(name=NAME, value=known, why=why)
    apart = _apart(catalog)
    newest = max(filter(_version, dated), key=_version, default=stack.release)
    ends = f"{apart.low - 1:+.0%} to {apart.high - 1:+.0%}".replace("%", " %")
    newer = replace(
        efficiency,
        stack=replace(
            stack,
            release=newest,
            spread=together(stack.spread, apart),
            unseen=None if stack.unseen is None else together(stack.unseen, apart),
        ),
    )
    why = f"no step dates {said}; between releases of one software times differ by {ends}"
    return newer, Assumption(name=NAME, value=newest or "newest", why=why)


def _apart(catalog: Catalog) -> Spread:
    population = load_population(catalog)
    if population is None or population.releases is None:
        raise InputError("--release: no spread between releases is known; leave it out")
    return population.releases.spread


def _version(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))

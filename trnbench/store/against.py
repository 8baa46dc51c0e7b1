"""An answer beside one that was kept: what got worse, and whether by more than is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnbench.facts.records import Record
from trnbench.store.difference import labelled
from trnbench.store.runs import KeptAnswer, KeptRun

WATCHED: Mapping[str, tuple[str, ...]] = {"compare": ("days", "cost_usd")}
"""By verb, the figures that are worse when they grow."""
MEAN_ERROR = "mean error"


class Worse(Record):
    """A figure beside what it was; `by` is how much it grew: a share, or points of a share."""

    label: str
    key: str
    before: float
    after: float
    by: float


class Against(Record):
    """An answer held against a kept one. `lost`: rows that were feasible, and are not or are gone.

    `allowed` is how much a figure may grow, None where nobody said.
    """

    run: KeptRun
    figures: tuple[Worse, ...]
    lost: tuple[str, ...]
    allowed: float | None

    @property
    def failed(self) -> tuple[Worse, ...]:
        """The figures that grew by more than is allowed."""
        if self.allowed is None:
            return ()
        return tuple(one for one in self.figures if one.by > self.allowed)

    @property
    def regressed(self) -> bool:
        """Whether a limit was given, and something is beyond it."""
        return self.allowed is not None and bool(self.failed or self.lost)


def held_against(base: KeptAnswer, run: KeptRun, now: KeptAnswer, allowed: float | None) -> Against:
    """Return an answer to the verb of a kept run beside what that run answered."""
    if run.verb == "validate":
        figures = _errors(base.summary, now.summary)
        return Against(run=run, figures=figures, lost=(), allowed=allowed)
    before = labelled(run.verb, base.rows, base.rows)
    after = labelled(run.verb, now.rows, base.rows)
    found = []
    for label, row in before.items():
        for key in WATCHED[run.verb]:
            was, is_now = row.get(key), after.get(label, {}).get(key)
            if was and is_now is not None:
                by = is_now / was - 1
                found.append(Worse(label=label, key=key, before=was, after=is_now, by=by))
    lost = tuple(
        label
        for label, row in before.items()
        if row.get("feasible") and not after.get(label, {}).get("feasible")
    )
    return Against(run=run, figures=tuple(found), lost=lost, allowed=allowed)


def _errors(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Worse, ...]:
    """Return the mean error of every set that both have, in points."""
    found = []
    for name, section in before["sets"].items():
        was, now = (
            one.get("errors", {}).get("all") for one in (section, after["sets"].get(name, {}))
        )
        if was and now:
            one, two = was["mape"], now["mape"]
            found.append(Worse(label=name, key=MEAN_ERROR, before=one, after=two, by=two - one))
    return tuple(found)

"""Comparison of an answer with a kept one: figures that got worse, and rows that were lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnbench.facts.records import Record
from trnbench.store.difference import labelled
from trnbench.store.runs import KeptAnswer, KeptRun

WATCHED: Mapping[str, tuple[str, ...]] = {"compare": ("days", "cost_usd")}
"""Verb -> figures that get worse when they grow."""
MEAN_ERROR = "mean error"


class Worse(Record):
    """A figure before and after."""

    label: str
    key: str
    before: float
    after: float
    by: float
    """Growth: a share, or points of a share for `MEAN_ERROR`."""


class Against(Record):
    """Comparison of an answer with a kept run."""

    run: KeptRun
    figures: tuple[Worse, ...]
    lost: tuple[str, ...]
    """Rows that were feasible, and are not feasible or not there now."""
    allowed: float | None
    """Allowed growth of a figure; None without a limit."""

    @property
    def failed(self) -> tuple[Worse, ...]:
        if self.allowed is None:
            return ()
        return tuple(one for one in self.figures if one.by > self.allowed)

    @property
    def regressed(self) -> bool:
        return self.allowed is not None and bool(self.failed or self.lost)


def held_against(base: KeptAnswer, run: KeptRun, now: KeptAnswer, allowed: float | None) -> Against:
    """Comparison of an answer with that of a kept run of the same verb."""
    if run.verb == "validate":
        figures = _errors(base.summary, now.summary)
        return Against(run=run, figures=figures, lost=(), allowed=allowed)
    before = labelled(run.verb, base.rows, base.rows)
    after = labelled(run.verb, now.rows, base.rows)
    grown = []
    for label, row in before.items():
        for key in WATCHED[run.verb]:
            was, is_now = row.get(key), after.get(label, {}).get(key)
            if was and is_now is not None:
                by = is_now / was - 1
                grown.append(Worse(label=label, key=key, before=was, after=is_now, by=by))
    # Rows are matched by the kept answer's labels: a row under another label counts as lost.
    lost = tuple(
        label
        for label, row in before.items()
        if row.get("feasible") and not after.get(label, {}).get("feasible")
    )
    return Against(run=run, figures=tuple(grown), lost=lost, allowed=allowed)


def _errors(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Worse, ...]:
    """Mean error of every set in both summaries, in points."""
    grown = []
    for name, section in before["sets"].items():
        was, now = (
            one.get("errors", {}).get("all") for one in (section, after["sets"].get(name, {}))
        )
        if was and now:
            one, two = was["mape"], now["mape"]
            grown.append(Worse(label=name, key=MEAN_ERROR, before=one, after=two, by=two - one))
    return tuple(grown)

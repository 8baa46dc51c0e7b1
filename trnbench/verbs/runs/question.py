"""Question of `runs`: which kept answers."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

_REDACT: Any = option(
    "Leave out prices, discounts, bills and ratios that tell them.", name="redact_prices"
)


def _kept_verb(text: str) -> str:
    from trnbench.verbs.runs.keeping import KEPT_VERBS

    return parsing.one_of("--verb", KEPT_VERBS)(text)


class RunsListQuestion(Question):
    """Kept answers, the newest `limit` of those of which all that is given holds."""

    verb: str | None = option("Answers of this verb.", parse=_kept_verb, metavar="VERB")
    model: str | None = option("About this model.", completes=("models",))
    instance: str | None = option("About this instance type.", completes=("instances",))
    tag: str | None = option("Kept under this tag.", metavar="TEXT")
    since: datetime.date | None = option("From this day on (UTC).", read=parsing.date)
    until: datetime.date | None = option("To this day (UTC).", read=parsing.date)
    limit: int | None = option("The newest N; default: all.", read=parsing.whole)

    @property
    def filter(self) -> dict[str, str | None]:
        """The filter of kept runs, whose end is the day after the last."""
        end = None
        if self.until is not None and self.until < datetime.date.max:  # which no day follows
            end = (self.until + datetime.timedelta(days=1)).isoformat()
        since = None if self.since is None else self.since.isoformat()
        named = {name: getattr(self, name) for name in ("verb", "model", "instance", "tag")}
        return {**named, "since": since, "until": end}


class RunShowQuestion(Question):
    """One kept answer."""

    run: str = option(
        "An id or its beginning, a tag, or `last`.", metavar="RUN", argument=True, required=True
    )
    redacted: bool = _REDACT


class RunDiffQuestion(Question):
    """Two kept answers, or answers in files."""

    first: str = option("As for show, or a JSON file.", metavar="RUN", argument=True, required=True)
    second: str = option(
        "The run that it is compared with.", metavar="RUN", argument=True, required=True
    )


class RunsQuestion(Question):
    """Several kept answers."""

    runs: tuple[str, ...] = option(
        "Ids or their beginnings, tags, or `last`.",
        metavar="RUN...",
        argument=True,
        required=True,
        several="repeated",
    )


class RunsExportQuestion(RunsQuestion):
    """Several kept answers, with or without money."""

    redacted: bool = _REDACT


class RecoverQuestion(Question):
    """A damaged file of kept answers."""

    file: Path | None = option(
        "A damaged file of runs; default: the one put aside last.", metavar="[FILE]", argument=True
    )

"""What the software of a training stack runs, refuses, or was never seen to run.

A stack's file has a `[[supports]]` table for features of which the same is known by one source:

    [[supports]]
    status = "runs"
    features = ["schedule 1f1b", "zero 1"]
    since = "2.18"
    source = "nxd-docs"

What features a model in a layout has is told in `program.features`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trnbench.facts.catalog.provenance import Source
from trnbench.facts.records import Record

Status = Literal["runs", "refused", "untested"]

ANYTHING_ELSE = "anything else"
"""The feature that stands for all that no line names."""
KEY = "supports"


class SupportLine(Record):
    """What is known of some features, from a release of the software on if one is named."""

    status: Status
    features: tuple[str, ...]
    since: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        """Refuse a line about nothing."""
        if not self.features:
            raise ValueError("`features` names one or more")


class Support(Record):
    """What is known of one feature; `source` is None where the file names none."""

    feature: str
    status: Status
    since: str | None = None
    note: str | None = None
    source: Source | None = None

    @property
    def words(self) -> str:
        """Since when, why, and who says so; empty where nothing of this is known."""
        since = f"since {self.since}" if self.since else ""
        told = "; ".join(text for text in (since, self.note or "") if text)
        if self.source is None:
            return told
        source = f"{self.source.title}, {self.source.date}"
        return f"{told} (source: {source})" if told else f"source: {source}"


def named_twice(lines: Iterable[SupportLine]) -> str | None:
    """Return a feature that two lines name, if there is one."""
    seen: set[str] = set()
    for feature in (name for line in lines for name in line.features):
        if feature in seen:
            return feature
        seen.add(feature)
    return None

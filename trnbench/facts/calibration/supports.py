"""Training frameworks, and features that the software of a stack runs, refuses, or is untested on.

A framework's name selects, on an instance, the stack calibrated with that framework there. A
stack's file groups features with one status and one source in a `[[supports]]` table:

    [[supports]]
    status = "runs"
    features = ["schedule 1f1b", "zero 1"]
    since = "2.18"
    source = "nxd-docs"

`program.features` lists the features of a model in a layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trnbench.facts.catalog.provenance import Source
from trnbench.facts.records import Record

Status = Literal["runs", "refused", "untested"]

ANYTHING_ELSE = "anything else"
"""Feature name of a line for all features that no line names."""
KEY = "supports"


class SupportLine(Record):
    """Status of some features, from a software release on if `since` is given."""

    status: Status
    features: tuple[str, ...]
    since: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if not self.features:
            raise ValueError("`features` names one or more")


class Support(Record):
    """Status of one feature; `source` is None where the file cites none."""

    feature: str
    status: Status
    since: str | None = None
    note: str | None = None
    source: Source | None = None

    @property
    def words(self) -> str:
        """Release, note and source as text; empty without any."""
        since = f"since {self.since}" if self.since else ""
        told = "; ".join(text for text in (since, self.note or "") if text)
        if self.source is None:
            return told
        source = f"{self.source.title}, {self.source.date}"
        return f"{told} (source: {source})" if told else f"source: {source}"


def named_twice(lines: Iterable[SupportLine]) -> str | None:
    """The first feature that two lines name; None without a duplicate."""
    seen: set[str] = set()
    for feature in (name for line in lines for name in line.features):
        if feature in seen:
            return feature
        seen.add(feature)
    return None

"""What a question of a view found."""

from __future__ import annotations

from typing import Any

from trnbench.facts.records import Record
from trnbench.show.report import Report


class TableFound(Record):
    """A report, and the typed answer behind each of its rows."""

    report: Report
    answers: tuple[Any, ...] = ()

"""What a question of a view found."""

from __future__ import annotations

from typing import Any

from trnbench.records import dataclass
from trnbench.report.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFound:
    """A report, and the typed answer behind each of its rows."""

    report: Report
    answers: tuple[Any, ...] = ()

"""Whether a run went as predicted: measured steps beside what was written when it was launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trnbench.facts.records import Record
from trnbench.show.row import Row, cells

Went = Literal["as predicted", "faster", "slower"]


class VerifiedLog(Record):
    """The measured step of a log, or row of a table, beside its prediction."""

    id: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def went(self) -> Went:
        """How the run went: inside the 80 % interval it is as predicted."""
        if self.low_s <= self.measured_s <= self.high_s:
            return "as predicted"
        return "faster" if self.measured_s < self.low_s else "slower"

    def row(self) -> Row:
        """Return it as a row."""
        return {
            **cells(self, "id measured_s predicted_s low_s high_s"),
            "difference": self.measured_s / self.predicted_s - 1,
            "verdict": self.went,
        }


class Verified(Record):
    """All logs of a launched run; `terms` are seconds of a predicted step by category.

    `command` asks why the run went as it did; `remarks` say how the logs were read.
    """

    logs: tuple[VerifiedLog, ...]
    model: str
    where: str
    terms: Mapping[str, float]
    command: str
    remarks: tuple[str, ...] = ()

    @property
    def as_predicted(self) -> bool:
        """Whether every log is inside its interval."""
        return all(one.went == "as predicted" for one in self.logs)

    @property
    def largest(self) -> tuple[tuple[str, float], ...]:
        """The three terms that take most of a step."""
        ordered = sorted(self.terms.items(), key=lambda one: -one[1])
        return tuple(ordered[:3])

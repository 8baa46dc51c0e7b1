"""A measurement beside its prediction, whatever the set it comes from."""

from __future__ import annotations

from typing import NamedTuple

from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet
from trnbench.evidence.step_row import MemoryHolder
from trnbench.facts.records import Record

EVEN = 0.5
"""A layout at least so likely to fit is called one that fits."""


class Contrast(NamedTuple):
    """A measured number beside the predicted one and the ends of its 80 % interval, where known."""

    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; None where either is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool | None:
        """True when the interval holds what was measured; None where either is missing."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def half_width(self) -> float | None:
        """Half of the interval over the prediction; None where there is none."""
        if self.low is None or self.high is None or not self.predicted:
            return None
        return (self.high - self.low) / 2 / self.predicted


class Comparison(Record):
    """One row of evidence: what was measured, what the model says, or why it says nothing.

    `model` is what ran (a model, an operation, a kernel), `system` where, as published. `stack`:
    the calibration in use, `own_stack` whether it is the measured software's own, `basis` what its
    numbers rest on. `configuration` is alike for rows that repeat one experiment, on more nodes or
    with another release; `question` for those that differ in layout alone, `family` for those with
    one kind of model, `platform` for those on one machine. `low_s`, `high_s`: the ends of the 80 %
    interval. `ideal_s`: what the model's FLOP would take at the chips' peak. Of a row whose kernel
    was played, `played_as` says as which, and `closed_s` is the closed form's time. `tokens` of a
    step.
    `assumed`: what the row does not tell and was taken. Memory is that of a rank or of a chip with
    all its ranks, as `memory_of` says; `fit_probability`: how likely the layout is to fit in
    memory; `outcome`: whether it was measured, or crashed.
    """

    id: str
    set: EvidenceSet
    use: str = ""
    model: str = ""
    system: str = ""
    platform: str | None = None
    nodes: int | None = None
    ranks: int | None = None
    size_bytes: float | None = None
    layout: str | None = None
    family: str | None = None
    precision: str | None = None
    configuration: str | None = None
    question: str | None = None
    tokens: float | None = None
    measured_s: float | None = None
    predicted_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    closed_s: float | None = None
    played_as: str | None = None
    ideal_s: float | None = None
    memory_measured_bytes: float | None = None
    memory_predicted_bytes: float | None = None
    memory_low_bytes: float | None = None
    memory_high_bytes: float | None = None
    memory_of: MemoryHolder | None = None
    fit_probability: float | None = None
    outcome: str | None = None
    fitted: bool = False
    stack: str | None = None
    basis: str | None = None
    own_stack: bool = False
    assumed: tuple[str, ...] = ()
    reason: str | None = None

    @classmethod
    def of_row(cls, file: EvidenceFile, row: EvidenceRow, *, model: str, system: str) -> Comparison:
        """The measured side of a row, without a prediction; two of its columns by name."""
        return cls(
            id=row.id,
            set=file.set,
            use=row.text("use"),
            model=row.text(model),
            system=row.text(system),
            reason=row.fault,
        )

    def share_of_peak(self, time_s: float | None) -> float | None:
        """Return which part of the peak a played kernel reaches in a time; None of other rows."""
        played = self.played_as is not None and self.ideal_s is not None
        return self.ideal_s / time_s if played and self.ideal_s and time_s else None

    @property
    def time(self) -> Contrast:
        """The times, s."""
        return Contrast(self.measured_s, self.predicted_s, self.low_s, self.high_s)

    @property
    def memory(self) -> Contrast:
        """The sizes in memory, bytes."""
        ends = self.memory_low_bytes, self.memory_high_bytes
        return Contrast(self.memory_measured_bytes, self.memory_predicted_bytes, *ends)

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less one; None where either is missing."""
        return self.time.error

    @property
    def ran(self) -> bool:
        """True when the run went through."""
        return self.outcome == "measured"

    @property
    def called_fitting(self) -> bool | None:
        """True when the layout is predicted to fit; None where nothing is predicted."""
        return None if self.fit_probability is None else self.fit_probability >= EVEN

    @property
    def within_stack(self) -> bool:
        """True when the software's own stack was in use, fitted to step times."""
        return self.own_stack and self.basis == "measured"

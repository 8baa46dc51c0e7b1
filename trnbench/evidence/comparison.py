"""A measurement beside its prediction, whatever the set it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row of evidence: what was measured, what the model says, or why it says nothing.

    `model` is what ran (a model, an operation, a kernel), `system` where, as published. `stack`:
    the calibration in use, `own_stack` whether it is the measured software's own, `basis` what its
    numbers rest on. `configuration` is alike for rows that repeat one experiment, on more nodes or
    with another release; `question` for those that differ in layout alone, `family` for those with
    one kind of model, `platform` for those on one machine. `low_s`, `high_s`: the ends of the 80 %
    interval. `ideal_s`: what the model's FLOP would take at the chips' peak. `tokens` of a step.
    `assumed`: what the row does not tell and was taken.
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
    ideal_s: float | None = None
    fitted: bool = False
    stack: str | None = None
    basis: str | None = None
    own_stack: bool = False
    assumed: tuple[str, ...] = ()
    reason: str | None = None

    @classmethod
    def of_row(cls, file: EvidenceFile, row: EvidenceRow, *, model: str, system: str) -> Comparison:
        """Return the measured side of a row, without a prediction; two of its columns by name."""
        return cls(
            id=row.id,
            set=file.set,
            use=row.text("use"),
            model=row.text(model),
            system=row.text(system),
            reason=row.fault,
        )

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; None where either is missing."""
        if self.predicted_s is None or self.measured_s is None:
            return None
        return self.predicted_s / self.measured_s - 1

    @property
    def within_stack(self) -> bool:
        """Whether the software's own stack was in use, fitted to step times."""
        return self.own_stack and self.basis == "measured"

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the measurement; None where there is no interval."""
        if self.low_s is None or self.high_s is None or self.measured_s is None:
            return None
        return self.low_s <= self.measured_s <= self.high_s

"""A measurement with its prediction, from any set."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet
from trnbench.evidence.step_row import MemoryHolder
from trnbench.facts.records import Record
from trnbench.predict.assumption import Assumption

RowClass: TypeAlias = Literal["inside rows", "beyond rows", "carried over", "population", "seen"]
"""What a predicted step rests on: measured steps of its stack, with settings like its own or beyond
them; a stack carried over from other software, chips or machines; the population of software. Or on
the step itself, where nothing tells how it would be predicted without."""
EVEN = 0.5
"""Probability from which on a layout counts as fitting."""


class Contrast(NamedTuple):
    """A measured number, the predicted one, and its 80 % interval, where known."""

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
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def half_width(self) -> float | None:
        """Half the interval over the prediction; None without an interval."""
        if self.low is None or self.high is None or not self.predicted:
            return None
        return (self.high - self.low) / 2 / self.predicted


class Comparison(Record):
    """One row of evidence: the measurement, and the prediction or the reason against one."""

    id: str
    set: EvidenceSet
    use: str = ""
    model: str = ""
    """The model, operation or kernel; `system`: the machine, as published."""
    system: str = ""
    platform: str | None = None
    """Key of the machine."""
    nodes: int | None = None
    ranks: int | None = None
    size_bytes: float | None = None
    layout: str | None = None
    family: str | None = None
    """Key of the kind of model."""
    precision: str | None = None
    configuration: str | None = None
    """Key of repeats of one experiment, on any nodes and release."""
    question: str | None = None
    """Key of rows that differ only in layout."""
    tokens: float | None = None
    """Tokens of a step."""
    measured_s: float | None = None
    predicted_s: float | None = None
    low_s: float | None = None
    """Ends of the 80 % interval."""
    high_s: float | None = None
    closed_s: float | None = None
    """Closed-form time of an emulated kernel; `played_as`: the emulated kernel."""
    played_as: str | None = None
    ideal_s: float | None = None
    """Time of the model's FLOP at the chips' peak."""
    memory_measured_bytes: float | None = None
    memory_predicted_bytes: float | None = None
    memory_low_bytes: float | None = None
    memory_high_bytes: float | None = None
    memory_of: MemoryHolder | None = None
    """Memory of a rank, or of a chip with all its ranks."""
    fit_probability: float | None = None
    """Probability that the layout fits in memory; of a graph, that the compiler takes it."""
    outcome: str | None = None
    """Measured or crashed; `data`: what a step trained on."""
    data: str | None = None
    instructions: Contrast = Contrast(None, None, None, None)
    """Of a compiled graph, or of the operation that was refused."""
    fitted: bool = False
    stack: str | None = None
    """The calibration; `basis`: the evidence behind it."""
    basis: str | None = None
    software: str = ""
    """Software that ran, as it was understood; `kind`: of which kind another stack stands for it.
    """
    kind: str | None = None
    rests_on: RowClass | None = None
    left_out: bool = False
    """True where the prediction is that of a fit without the row's configuration."""
    own_stack: bool = False
    """True when the stack is the measured software's own."""
    assumed: tuple[str, ...] = ()
    """Assumptions for unstated cells, as text."""
    settled: tuple[Assumption, ...] = ()
    """The assumptions of a training step."""
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
        """Share of the peak reached by an emulated kernel in a time; None for other rows."""
        played = self.played_as is not None and self.ideal_s is not None
        return self.ideal_s / time_s if played and self.ideal_s and time_s else None

    @cached_property
    def time(self) -> Contrast:
        return Contrast(self.measured_s, self.predicted_s, self.low_s, self.high_s)

    @property
    def memory(self) -> Contrast:
        ends = self.memory_low_bytes, self.memory_high_bytes
        return Contrast(self.memory_measured_bytes, self.memory_predicted_bytes, *ends)

    @property
    def error(self) -> float | None:
        return self.time.error

    @property
    def ran(self) -> bool:
        return self.outcome == "measured"

    @property
    def called_fitting(self) -> bool | None:
        """True when the layout is predicted to fit; None where nothing is predicted."""
        return None if self.fit_probability is None else self.fit_probability >= EVEN

    @property
    def within_stack(self) -> bool:
        """True when the software's own stack was in use, fitted to step times."""
        return self.own_stack and self.basis == "measured"

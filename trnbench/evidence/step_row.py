"""A row of measured steps as typed numbers, texts and knobs; blank cells are None.

Rows come from files with the columns of `columns`, and from logs. `training_cases` resolves None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from trnbench.evidence.columns import column_of
from trnbench.evidence.model_of import Shape, shape_of
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import DataKind
from trnbench.facts.workload.layout import KNOBS, Knob, Value
from trnbench.facts.workload.partial_layout import PartialLayout

RunOutcome = Literal["measured", "crashed_or_oom"]
MemoryHolder: TypeAlias = Literal["rank", "chip"]

UNTRUSTED = "none"
"""Value of `trust` for rows doubted by their collector."""
_KEPT = "activations"
"""What is offloaded where steps are scored; those with others wait for the host in other ways."""
_DATA_IN_NOTES: Mapping[DataKind, str] = {
    "mock": r"\b(mock|synthetic|dummy|random) (data|tokens)\b",
    "packed": r"\bpacked (in|sequences)",
    "real": r"\breal data\b",
}
"""Words of notes that tell of the data, the first that is found."""
_GIB, _MIB = 2.0**30, 2.0**20
_KNOB_COLUMNS = [(column_of(name), knob) for name, knob in KNOBS.items() if name != "precision"]


class MeasuredMemory(Record):
    """Memory of a run, bytes: a rank's peak, or a chip's steady use with all ranks."""

    bytes: float
    of: MemoryHolder


class StepRow(Record):
    """A measured step: place, model, layout and result."""

    id: str
    use: str
    published: bool
    """True for a row with a source; others are a user's own."""
    instance: str
    nodes: int | None
    ranks: int | None
    lnc: int | None
    model: str
    shape: Shape
    layout: PartialLayout
    """Stated knobs, without precision, which stays a text."""
    precision: str
    framework: str
    release: str
    outcome: RunOutcome
    step_time_s: float | None
    """Wall time; the other times are device times."""
    device_s_per_microbatch: float | None
    optimizer_s: float | None
    memory: MeasuredMemory | None
    data: DataKind | None = None
    recompilations: int = 0
    """Compilations between steps, after the first few."""

    @property
    def ran(self) -> bool:
        return self.outcome == "measured"


def step_of(row: EvidenceRow) -> StepRow:
    """Typed cells of a row; RowFault for an unusable one."""
    if row.fault is not None:
        raise RowFault(row.fault)
    if row.text("trust").lower() == UNTRUSTED:
        raise RowFault(f"its collector doubts it: {row.text('notes').partition(';')[0].strip()}")
    away = row.text("offload")
    if row.said("offload") and away.lower() != _KEPT:
        raise RowFault(f"the {away} ran on the host: only offloaded activations are scored")
    outcome = row.text("outcome").lower() or "measured"
    if outcome not in get_args(RunOutcome):
        raise RowFault(f"outcome: {outcome!r} is not one of {', '.join(get_args(RunOutcome))}")
    step_time_s, memory = row.positive_if_said("step_time_s"), _memory(row)
    if outcome == "measured" and step_time_s is None and memory is None:
        raise RowFault("step_time_s: not given, and nothing else was measured")
    return StepRow(
        id=row.id,
        use=row.text("use"),
        published=row.said("source"),
        instance=row.needed("instance"),
        nodes=row.whole_if_said("nodes"),
        ranks=row.whole_if_said("ranks"),
        lnc=row.whole_if_said("lnc"),
        model=row.needed("model"),
        shape=shape_of(row),
        layout=_layout(row),
        precision=row.text("precision").lower() if row.said("precision") else "",
        framework=row.text("framework") if row.said("framework") else "",
        release=row.text("release") if row.said("release") else "",
        outcome=outcome,  # type: ignore[arg-type]
        step_time_s=step_time_s,
        device_s_per_microbatch=row.positive_if_said("device_s_per_microbatch"),
        optimizer_s=row.positive_if_said("optimizer_s"),
        memory=memory,
        data=_data(row),
        recompilations=row.whole_if_said("recompilations") or 0,
    )


def _data(row: EvidenceRow) -> DataKind | None:
    """The data a step ran on, by its cell or the words of its notes; None where nothing tells."""
    said = row.text("data").lower()
    if not row.said("data"):
        notes = row.text("notes").lower()
        return next(
            (kind for kind, words in _DATA_IN_NOTES.items() if re.search(words, notes)), None
        )
    if said not in _DATA_IN_NOTES:
        raise RowFault(f"data: {said!r} is not one of {', '.join(_DATA_IN_NOTES)}")
    return said  # type: ignore[return-value]


def _memory(row: EvidenceRow) -> MeasuredMemory | None:
    if row.said("memory_gb"):
        return MeasuredMemory(bytes=row.positive("memory_gb") * _GIB, of="rank")
    if row.said("memory_mib_chip"):
        return MeasuredMemory(bytes=row.positive("memory_mib_chip") * _MIB, of="chip")
    return None


def _layout(row: EvidenceRow) -> PartialLayout:
    found = {}
    for column, knob in _KNOB_COLUMNS:
        if row.said(column):
            found[knob.name] = _value(row, column, knob)
    if row.text("offload").lower() == _KEPT:
        found["activation_offload"] = "host"
    return PartialLayout(**found)


def _value(row: EvidenceRow, column: str, knob: Knob) -> Value:
    if knob.kind is bool:
        return bool(row.flag_if_said(column))
    if knob.counts:
        return row.whole(column)
    if knob.kind is float:
        return row.positive(column)
    text = row.needed(column).lower()
    if knob.form is not None:
        try:
            return knob.form(text)
        except ValueError as fault:
            raise RowFault(f"{column}: {fault}") from fault
    choices = {str(choice): choice for choice in knob.choices}
    if choices and text not in choices:
        raise RowFault(f"{column}: {text!r} is not one of {', '.join(choices)}")
    return choices.get(text, text)

"""What a row of training evidence tells, the same for GPUs and for Trainium; no interpretation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnbench.evidence.rows import EvidenceRow, EvidenceSet, RowFault
from trnbench.workload.layout import KNOBS, RANK_DEGREES, Knob, Value
from trnbench.workload.partial_layout import PartialLayout

_DOUBTS = ("INCONSISTENT", "SUSPICIOUS", "not usable")
"""Marks in a row's notes of what its collector would not stand by."""
_AGREE = 0.1
"""How far two cells that say the same may lie apart: rounding, not contradiction."""
COLUMNS: Mapping[EvidenceSet, Mapping[str, str]] = {
    "gpu_training": {
        **{name: name for name in RANK_DEGREES},
        "micro_batch": "mbs",
        "global_batch": "gbs",
        "sequence": "seq",
        "precision": "dtype",
    },
    "trainium_training": {
        **{name: name.upper() for name in RANK_DEGREES},
        "micro_batch": "microbatch",
        "sequence": "seq_len",
        "recompute": "activation_recompute",
        "precision": "dtype_mode",
    },
}
"""The columns of knobs that do not bear the knob's name."""
_IN_WORDS = ("zero", "recompute", "precision", "sequence_parallel")
"""Knobs of which a row speaks in the words of its software."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row's cells as numbers and texts; None or an empty text where it does not say.

    `layout` has the knobs that a row gives as they are, not those it has words for. `software` is
    all that tells the training software; `release` its version. `sharded` over how many ranks FSDP
    cuts the weights; `sharding` the words about ZeRO.
    """

    layout: PartialLayout
    system: str
    gpu: str
    ranks: int | None
    nodes: int | None
    sharded: int | None
    sharding: str
    sequence_parallel: str
    recompute: str
    number_format: str
    software: str
    release: str
    notes: str
    measured_s: float


def told_by(row: EvidenceRow, evidence: EvidenceSet) -> Told:
    """Return the typed cells of a row; raise RowFault for one that cannot be read or used."""
    doubt = next((mark for mark in _DOUBTS if mark in row.text("notes")), None)
    if doubt is not None:
        told = next(part for part in row.text("notes").split(";") if doubt in part)
        raise RowFault(f"its collector doubts it: {told.strip()}")
    return _of_gpus(row) if evidence == "gpu_training" else _of_trainium(row)


def _of_gpus(row: EvidenceRow) -> Told:
    if "offload" in row.text("recompute").lower():
        raise RowFault("the optimizer ran on the host: offloading is not modelled")
    sequence, ranks = row.whole("seq"), row.whole("n_gpus")
    batch = row.whole("gbs")
    rates = []
    if row.said("tokens_per_s_per_gpu"):
        rates.append(batch * sequence / (ranks * row.positive("tokens_per_s_per_gpu")))
    return Told(
        layout=_layout(
            row, "gpu_training", needed=(*("tp", "pp", "dp"), "global_batch", "sequence")
        ),
        system=row.needed("system"),
        gpu=row.needed("gpu"),
        ranks=ranks,
        nodes=row.whole_if_said("nodes"),
        sharded=row.whole_if_said("fsdp_shard"),
        sharding=row.text("zero") or row.text("framework"),
        sequence_parallel=_gpu_sequence_parallel(row),
        recompute=row.text("recompute").lower(),
        number_format=row.needed("dtype").lower(),
        software=row.needed("framework"),
        release=row.text("framework"),
        notes=row.text("notes"),
        measured_s=_measured(row, rates),
    )


def _layout(row: EvidenceRow, evidence: EvidenceSet, *, needed: tuple[str, ...]) -> PartialLayout:
    """Return the knobs that a row says as they are."""
    columns = COLUMNS[evidence]
    found = {}
    for knob in KNOBS.values():
        column = columns.get(knob.name, knob.name)
        if knob.name not in _IN_WORDS and (knob.name in needed or row.said(column)):
            found[knob.name] = _value(row, column, knob)
    return PartialLayout(**found)


def _value(row: EvidenceRow, column: str, knob: Knob) -> Value:
    if knob.kind is int:
        return row.whole(column)
    if knob.kind is float:
        return row.positive(column)
    text = row.needed(column).lower()
    if text not in knob.choices:
        raise RowFault(f"{column}: {text!r} is none of {', '.join(map(str, knob.choices))}")
    return text


def _gpu_sequence_parallel(row: EvidenceRow) -> str:
    if row.said("sequence_parallel"):
        return row.text("sequence_parallel").lower()
    if "sequence parallel" in row.text("recompute").lower():
        return "yes"
    return "no" if "no sequence parallel" in row.text("notes").lower() else ""


def _of_trainium(row: EvidenceRow) -> Told:
    sequence, batch = row.whole_if_said("seq_len"), row.whole("global_batch")
    rates = []
    if row.said("seq_per_s"):
        rates.append(batch / row.positive("seq_per_s"))
    if row.said("tokens_per_s") and sequence is not None:
        rates.append(batch * sequence / row.positive("tokens_per_s"))
    layout = _layout(row, "trainium_training", needed=("tp", "pp", "global_batch"))
    dp = next((c for c in ("DP_derived", "DP", "DP_published") if row.said(c)), None)
    return Told(
        layout=layout.changed(dp=None if dp is None else row.whole(dp)),
        system=row.needed("instance"),
        gpu="",
        ranks=row.whole_if_said("neuroncores"),
        nodes=row.whole("nodes"),
        sharded=None,
        sharding=row.text("zero"),
        sequence_parallel=row.text("sequence_parallel").lower(),
        recompute=row.text("activation_recompute").lower(),
        number_format=row.needed("dtype_mode").lower(),
        software=row.text("framework")
        or " ; ".join(
            row.text(column) for column in ("activation_recompute", "notes", "source", "model")
        ),
        release=row.text("neuron_release") or row.text("published_first"),
        notes=row.text("notes"),
        measured_s=_measured(row, rates),
    )


def _measured(row: EvidenceRow, rates: list[float]) -> float:
    """Return the step time, s; from a rate where only that is given."""
    times = [row.positive("step_time_s"), *rates] if row.said("step_time_s") else rates
    if not times:
        raise RowFault("neither a step time nor a rate of tokens or sequences")
    for other in times[1:]:
        if abs(other / times[0] - 1) > _AGREE:
            raise RowFault(f"its rate means {other:.4g} s a step, and it says {times[0]:.4g} s")
    return times[0]

"""What a row of training evidence tells, the same for GPUs and for Trainium; no interpretation."""

from __future__ import annotations

from dataclasses import dataclass

from trnbench.evidence.rows import EvidenceRow, EvidenceSet, RowFault

_DOUBTS = ("INCONSISTENT", "SUSPICIOUS", "not usable")
"""Marks in a row's notes of what its collector would not stand by."""
_AGREE = 0.1
"""How far two cells that say the same may lie apart: rounding, not contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row's cells as numbers and texts; None or an empty text where it does not say.

    `software` is all that tells the training software; `release` its version. `sharded` over how
    many ranks FSDP cuts the weights; `sharding` the words about ZeRO.
    """

    sequence: int | None
    system: str
    gpu: str
    ranks: int | None
    nodes: int | None
    tp: int
    pp: int
    dp: int | None
    cp: int
    ep: int | None
    vpp: int | None
    micro_batch: int | None
    global_batch: int
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
    """Return what a row tells; or raise RowFault for a cell that cannot be read or used."""
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
        sequence=sequence,
        system=row.needed("system"),
        gpu=row.needed("gpu"),
        ranks=ranks,
        nodes=row.whole_if_said("nodes"),
        tp=row.whole("tp"),
        pp=row.whole("pp"),
        dp=row.whole("dp"),
        cp=row.whole_if_said("cp") or 1,
        ep=row.whole_if_said("ep"),
        vpp=row.whole_if_said("vpp"),
        micro_batch=row.whole_if_said("mbs"),
        global_batch=batch,
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
    dp = next((c for c in ("DP_derived", "DP", "DP_published") if row.said(c)), None)
    return Told(
        sequence=sequence,
        system=row.needed("instance"),
        gpu="",
        ranks=row.whole_if_said("neuroncores"),
        nodes=row.whole("nodes"),
        tp=row.whole("TP"),
        pp=row.whole("PP"),
        dp=None if dp is None else row.whole(dp),
        cp=row.whole_if_said("CP") or 1,
        ep=row.whole_if_said("EP"),
        vpp=row.whole_if_said("VPP"),
        micro_batch=row.whole_if_said("microbatch"),
        global_batch=batch,
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

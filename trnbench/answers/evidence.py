"""Measurements, fits and claims beside what the model says of them."""

from __future__ import annotations

from dataclasses import dataclass

from trnbench.answers.row import Row
from trnbench.claims.verdict import Case, Claimed, Move
from trnbench.evidence.calibrate import Fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.statistics import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSet:
    """The rows of one set of measurements, and their statistics."""

    name: str
    files: tuple[str, ...]
    rows: tuple[Comparison, ...]
    summary: Summary


def comparison_row(row: Comparison) -> Row:
    """Return a measurement with its prediction, times in seconds."""
    return {
        "id": row.id,
        "set": row.set,
        "model": row.model,
        "system": row.system,
        "instance": row.platform,
        "nodes": row.nodes,
        "ranks": row.ranks,
        "size_bytes": row.size_bytes,
        "layout": row.layout,
        "precision": row.precision,
        "measured_s": row.measured_s,
        "predicted_s": row.predicted_s,
        "low_s": row.low_s,
        "high_s": row.high_s,
        "error": row.error,
        "fitted": row.fitted,
        "use": row.use,
        "calibration": row.stack,
        "evidence": row.basis,
        "within_stack": row.within_stack,
        "assumed": list(row.assumed),
        "reason": row.reason,
    }


def fitted_row(one: Fitted) -> Row:
    """Return a number of a calibration before and after the fit, in its own unit."""
    prior, (low, high) = one.parameter.prior, one.ends
    return {
        "calibration": one.parameter.owner,
        "number": one.parameter.key,
        "prior": prior.value,
        "prior_low": prior.low,
        "prior_high": prior.high,
        "value": one.value if one.moved else prior.value,
        "low": low if one.moved else prior.low,
        "high": high if one.moved else prior.high,
        "data_share": one.data_share,
        "moved": one.moved,
        "evidence": "derived" if one.told else "prior",
    }


def claim_row(claim: Claimed) -> Row:
    """Return a claim with its verdict and the cases it was checked on."""
    finding = claim.finding
    return {
        "claim": claim.id,
        "group": claim.group,
        "text": claim.said[0].text,
        "aspect": claim.aspect,
        "sources": [words.source.title for words in claim.said],
        "source_dates": [str(words.source.date) for words in claim.said],
        "also_worded": [words.text for words in claim.said[1:]],
        "check": claim.check,
        "verdict": finding.verdict,
        "says": finding.says,
        "reason": finding.reason,
        "note": claim.note,
        "price_dates": [str(move.price_date) for move in finding.moves],
        "cases": {case.what: _plain(case) for case in finding.cases},
        "moves": {_when(move): _moved(move) for move in finding.moves},
    }


def _plain(case: Case) -> dict[str, object]:
    return {
        "verdict": case.verdict,
        "says": case.says,
        "value": case.value,
        "low": case.low,
        "high": case.high,
        "proviso": case.proviso,
    }


def _moved(move: Move) -> dict[str, object]:
    return {
        "price_date": str(move.price_date),
        "region": move.region,
        "verdict": move.verdict,
        "best": move.best and move.best.what,
        "cases": {case.what: _plain(case) for case in move.cases},
    }


def _when(move: Move) -> str:
    return f"{move.price_date}, {move.region}" if move.region else str(move.price_date)

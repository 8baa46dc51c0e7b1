"""Measurements, fits and claims beside what the model says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trnbench.evidence.claims.claim import Case, Claimed, Move
from trnbench.facts.calibration.training_stack import FitErrors
from trnbench.facts.records import Record
from trnbench.show.row import Row, cells

if TYPE_CHECKING:
    from trnbench.evidence.comparison import Comparison
    from trnbench.evidence.fit.calibrate import Fitted
    from trnbench.evidence.statistics import Summary


class ScoredSet(Record):
    """The rows of one set of measurements, and their statistics.

    `fits`: how the stacks of its fitted rows came out of their fits, also with rows left out.
    `remarks` say what was read of files that are longer than their rows.
    """

    name: str
    files: tuple[str, ...]
    rows: tuple[Comparison, ...]
    summary: Summary
    fits: Mapping[str, FitErrors]
    remarks: tuple[str, ...] = ()


def comparison_row(row: Comparison) -> Row:
    """Return a measurement with its prediction, times in seconds."""
    return {
        **cells(row, "id set model system instance=platform nodes ranks size_bytes layout"),
        **cells(row, "precision measured_s predicted_s low_s high_s error closed_s"),
        "measured_share": row.share_of_peak(row.measured_s),
        "played_share": row.share_of_peak(row.predicted_s),
        "closed_share": row.share_of_peak(row.closed_s),
        **cells(row, "played_as memory_measured_bytes memory_predicted_bytes memory_low_bytes"),
        **cells(row, "memory_high_bytes memory_of fit_probability outcome data fitted use"),
        "instructions_measured": row.instructions.measured,
        "instructions_predicted": row.instructions.predicted,
        **cells(row, "calibration=stack evidence=basis within_stack rests_on left_out"),
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
        **cells(claim, "claim=id group"),
        "text": claim.said[0].text,
        "aspect": claim.aspect,
        "sources": [words.source.title for words in claim.said],
        "source_dates": [str(words.source.date) for words in claim.said],
        "also_worded": [words.text for words in claim.said[1:]],
        **cells(claim, "check verdict=finding.verdict says=finding.says reason=finding.reason"),
        "note": claim.note,
        "price_dates": [str(move.price_date) for move in finding.moves],
        "cases": {case.what: _plain(case) for case in finding.cases},
        "moves": {_when(move): _moved(move) for move in finding.moves},
    }


def _plain(case: Case) -> dict[str, object]:
    return cells(case, "verdict says value low high proviso")


def _moved(move: Move) -> dict[str, object]:
    return {
        "price_date": str(move.price_date),
        **cells(move, "region verdict best=best.what"),
        "cases": {case.what: _plain(case) for case in move.cases},
    }


def _when(move: Move) -> str:
    return f"{move.price_date}, {move.region}" if move.region else str(move.price_date)

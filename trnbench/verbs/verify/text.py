"""Whether a run went as predicted, as people and machines read it."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.units import Dimension, show
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style, percent
from trnbench.verbs.verify.answer import Verified, VerifiedLog


def verify_report(answer: Verified, inputs: Mapping[str, object]) -> Report:
    """Return the report of a verification, a row for each log."""
    return Report(
        verb="verify",
        inputs=inputs,
        rows=tuple(one.row() for one in answer.logs),
        columns=columns(
            "id", "measured_s", "predicted_s", "low_s", "high_s", "difference", "verdict"
        ),
        summary={
            "as_predicted": answer.as_predicted,
            "model": answer.model,
            "on": answer.where,
            "largest_terms": [
                {"term": name, "predicted_s": seconds} for name, seconds in answer.largest
            ],
            "explain": answer.command,
            "remarks": answer.remarks,
        },
        people=lambda report, style: _draw(report, answer, style),
    )


def _draw(report: Report, answer: Verified, style: Style) -> str:
    blocks = [style.strong(style.wrap(_says(one, answer))) for one in answer.logs]
    blocks.append(draw_rows(report, style))
    if not answer.as_predicted:
        whole = sum(answer.terms.values())
        largest = ", ".join(
            f"{name} {_seconds(value)} ({percent(value / whole)})" for name, value in answer.largest
        )
        blocks.append(style.wrap(f"Most of a predicted step: {largest}"))
        blocks.append(f"To find out why:\n  {answer.command}")
    return "\n\n".join(blocks)


def _says(one: VerifiedLog, answer: Verified) -> str:
    where = f"{one.id}, {answer.model} on {answer.where}"
    if one.went == "as predicted":
        ends = f"{_seconds(one.low_s)} to {_seconds(one.high_s)}"
        return f"{where}: as predicted: {_seconds(one.measured_s)} a step, expected {ends}"
    by = percent(abs(one.measured_s / one.predicted_s - 1))
    said = f"{_seconds(one.measured_s)} a step, not {_seconds(one.predicted_s)}"
    return f"{where}: {one.went} than predicted by {by}: {said}"


def _seconds(value: float) -> str:
    return show(value, Dimension.SECONDS, digits=4)

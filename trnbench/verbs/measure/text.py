"""What was measured, as a table for people and as rows for machines."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.verbs.measure.answer import MeasureAnswer

NOTES = {
    "time_s": "median of the repeats, all devices at work at once; low and high are the 5th and "
    "the 95th of 100",
    "flop_per_s, bytes_per_s": "of one device; bytes as STREAM counts them: those that the kernel "
    "names, not those that caches move",
    "busbw": "as nccl-tests counts",
    "spread": "half of what lies between low and high, over the median; a run is repeated until "
    "its median is known to 2 % with 95 % confidence, or its time is spent (`known_to` of -o)",
    "bound_use": "error over the largest that rounding can make; above 1 the numbers are wrong",
}


_RATES = ("flop_per_s", "bytes_per_s", "busbw_bytes_per_s")


def measure_report(answer: MeasureAnswer, inputs: Mapping[str, object]) -> Report:
    """Return the report of a session."""
    return Report(
        verb="measure",
        inputs=inputs,
        rows=answer.row_list(),
        columns=(
            *columns("kind", "name", "case", "dtype", "time_s"),
            *columns("low_time_s", "high_time_s", spare=True),
            *(column for key in _RATES for column in columns(key) if _has(answer, key)),
            *columns("spread"),
            *(columns("predicted_s", "error") if answer.verdict else ()),
        ),
        summary={
            "device": dict(answer.device),
            "notes": list(answer.notes),
            "stopped": answer.stopped,
            "verdict": answer.verdict.plain if answer.verdict else None,
            "conventions": NOTES,
        },
        notes=answer.notes,
        people=lambda report, style: _draw(report, answer, style),
    )


def _has(answer: MeasureAnswer, key: str) -> bool:
    return any(row.number(key) is not None for row in answer.rows)


def _draw(report: Report, answer: MeasureAnswer, style: Style) -> str:
    of = answer.device
    where = f"{of.get('ranks')} x {of.get('device')} ({of.get('backend')})"
    blocks = [style.strong(where), draw_rows(report, style)]
    if answer.notes:
        blocks.append(style.lines(answer.notes))
    if answer.verdict is not None:
        blocks.append(answer.verdict.says)
    return "\n\n".join(blocks)

"""Measurements of the machine at hand, row by row, and the cause of an early end."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from trnbench.evidence.comparison import Comparison
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, counted, show
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style

_NAMED = 6
"""Measurements left out for one reason that are named."""
WIDE_SPREAD = 0.10
"""From this spread on a row asks to be measured again."""
_NUMBERS = ("processor_s", "flop_per_s", "bytes_per_s", "busbw_bytes_per_s")


class MeasuredRow(Record):
    """A row of a session: its cells by column of the file of measured rows."""

    cells: Mapping[str, str]

    def text(self, column: str) -> str | None:
        return self.cells.get(column)

    def number(self, column: str) -> float | None:
        return float(self.cells[column]) if column in self.cells else None

    @property
    def time_s(self) -> float:
        """Seconds of one run, whatever column its kind has."""
        for column, unit in (("latency_ms", 1e-3), ("time_us", 1e-6), ("step_time_s", 1.0)):
            seconds = self.number(column)
            if seconds is not None:
                return seconds * unit
        raise KeyError(self.cells.get("id"))

    @property
    def failed(self) -> bool:
        check = self.number("check")
        return check is not None and not check <= 1

    @property
    def _exchanged(self) -> str | None:
        size = self.number("size_bytes")
        if size is None:
            return None
        return f"{show(size, Dimension.BYTES)} over {self.text('ranks')}"

    def row(self) -> Row:
        """Return it under the keys of figures."""
        return {
            "kind": self.text("kind"),
            "name": self.text("kernel") or self.text("collective") or self.text("model"),
            "case": self.text("shape") or self._exchanged,
            "dtype": self.text("dtype") or self.text("precision"),
            "ranks": int(self.number("ranks") or 1),
            "size_bytes": self.number("size_bytes"),
            "time_s": self.time_s,
            "low_time_s": self.number("low_s"),
            "high_time_s": self.number("high_s"),
            "spread": self.number("spread"),
            "repeats": int(self.number("repeats") or 0),
            "outliers": int(self.number("outliers") or 0),
            **{key: self.number(key) for key in _NUMBERS},
            "bound_use": self.number("check"),
            "id": self.text("id"),
        }


class StepsVerdict(Record):
    """Errors of training steps predicted from the other rows, by the ids of these.

    `wall`: by the clock on the wall; `processor`: by what the processors of a host were busy,
    which the load of others does not lengthen.
    """

    by: str
    """What predicted them."""
    rests_on: tuple[str, ...]
    wall: tuple[Comparison, ...]
    processor: tuple[Comparison, ...] = ()
    reason: str = ""
    """The largest error, and why it may be so."""

    @property
    def plain(self) -> dict[str, object]:
        """Verdict as plain data."""
        clocks = {"wall": self.wall, "processor": self.processor}
        by_clock = {name: list(map(_plain, steps)) for name, steps in clocks.items()}
        return {"rests_on": self.rests_on, **by_clock, "says": self.says}

    @property
    def says(self) -> str:
        """Verdict as one sentence."""
        of_wall, of_processor = _median(self.wall), _median(self.processor)
        predicted = [step for step in self.wall if step.error is not None]
        if of_wall is None:
            return f"No training step could be predicted: {self.wall[0].reason}"
        each = ", ".join(f"{step.error:+.0%}" for step in predicted)
        busy = f"; by processor time {of_processor:.0%}" if of_processor is not None else ""
        count = counted(len(predicted), "training step")
        return (
            f"Verdict: {count} predicted from {self.by}: median error {of_wall:.0%} "
            f"({each}){busy}" + (f"; {self.reason}" if self.reason else "")
        )


def _plain(step: Comparison) -> Row:
    return cells(step, "id measured_s predicted_s low_s high_s reason")


def _median(steps: tuple[Comparison, ...]) -> float | None:
    errors = [abs(step.error) for step in steps if step.error is not None]
    return median(errors) if errors else None


class MeasureAnswer(Record):
    """A session: the device, its rows, what was left out and why, what disturbed or ended it.

    `missing`: kinds that were asked for and have no row.
    """

    device: Mapping[str, str]
    rows: tuple[MeasuredRow, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    stopped: str | None = None
    missing: tuple[str, ...] = ()
    verdict: StepsVerdict | None = None

    def row_list(self) -> tuple[Row, ...]:
        steps = {step.id: step for step in self.verdict.wall} if self.verdict else {}
        pairs = ((measured.row(), steps.get(measured.cells["id"])) for measured in self.rows)
        keys = "predicted_s low_s high_s error"
        return tuple({**row, **cells(step, keys)} if step else row for row, step in pairs)

    @property
    def unsteady(self) -> tuple[MeasuredRow, ...]:
        """Rows that scatter; the launch of an accelerator's program is noise of its host."""
        host = self.device.get("backend") == "cpu"
        return tuple(
            row
            for row in self.rows
            if (row.number("spread") or 0) > WIDE_SPREAD and (host or row.text("kind") != "launch")
        )

    @property
    def failed(self) -> tuple[MeasuredRow, ...]:
        return tuple(row for row in self.rows if row.failed)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that a reader of the rows must know."""
        sentences = list(self.remarks)
        if self.unsteady:
            worst = max(self.unsteady, key=lambda row: row.number("spread") or 0)
            sentences.append(
                f"{len(self.unsteady)} of {counted(len(self.rows), 'row')} scatter by more than "
                f"{WIDE_SPREAD:.0%} (most: {worst.text('id')}, {worst.number('spread'):.0%}): "
                "measure again on an idle machine"
            )
        outside = sum(int(row.number("outliers") or 0) for row in self.rows)
        if outside:
            sentences.append(
                f"{counted(outside, 'block')} of repeats are far from the others: left out"
            )
        sentences += _counted(self.rows)
        sentences += [f"{row.text('id')}: its numbers are wrong" for row in self.failed]
        reasons: dict[str, list[str]] = {}
        for what, reason in self.skipped:
            reasons.setdefault(reason, []).append(what)
        sentences += [
            f"left out, {reason}: {', '.join(names[:_NAMED])}"
            + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
            for reason, names in reasons.items()
        ]
        sentences += [
            f"no row of kind {kind}: not everything was measured" for kind in self.missing
        ]
        ended = {
            "budget": "the budget was spent before everything was measured",
            "interrupt": "interrupted: the rows so far are kept",
        }
        if self.stopped in ended:
            sentences.append(ended[self.stopped])
        return tuple(sentences)


def _counted(rows: tuple[MeasuredRow, ...]) -> list[str]:
    """The compiler's count of operations in steps, beside the program's.

    A count below the program's leaves out products of libraries, and tells nothing.
    """
    counts = [(row.number("compiled_flop"), row.number("flop")) for row in rows]
    more = [counted / own - 1 for counted, own in counts if counted and own and counted > 0.9 * own]
    if not more:
        return []
    ends = " to ".join(dict.fromkeys(f"{end:+.1%}" for end in (min(more), max(more))))
    return [
        f"FLOP of a step by the compiler: {ends} over the program's, which are of products; the "
        "compiler counts passes between them too"
    ]


NOTES = {
    "time_s": "least median of a block of repeats, all devices at work at once; low and high are "
    "the 5th and the 95th of 100 repeats",
    "flop_per_s, bytes_per_s": "of one device; bytes as STREAM counts them: those that the kernel "
    "names, not those that caches move",
    "busbw": "as nccl-tests counts",
    "spread": "half the range of the blocks' medians, over the least. Runs repeat until the median "
    "is known to 2 % with 95 % confidence, or time is up (`known_to` of -o)",
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
            *columns(*(key for key in _RATES if any(key in row.cells for row in answer.rows))),
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


def _draw(report: Report, answer: MeasureAnswer, style: Style) -> str:
    of = answer.device
    where = f"{of.get('ranks')} x {of.get('device')} ({of.get('backend')})"
    blocks = [style.strong(where), draw_rows(report, style)]
    if answer.notes:
        blocks.append(style.lines(answer.notes))
    if answer.verdict is not None:
        blocks.append(answer.verdict.says)
    return "\n\n".join(blocks)

"""Specs side by side: every figure, with ratios to the first spec."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from trnbench.answers.figures import Figure
from trnbench.answers.row import Row
from trnbench.hardware.figures import Compared
from trnbench.report.report import Column, Report, columns
from trnbench.report.sheet import figure_text
from trnbench.report.text_table import Style, TextTable, draw


def diff_report(names: Sequence[str], compared: Sequence[Compared]) -> Report:
    """Return the report of several specs side by side, with ratios to the first."""
    rows: tuple[Row, ...] = tuple(
        {
            "figure": line.key,
            **dict(zip(names, line.values, strict=True)),
            **{
                f"{name}_ratio": ratio
                for name, ratio in zip(names[1:], line.ratios[1:], strict=True)
            },
        }
        for line in compared
    )
    return Report(
        verb="spec-diff",
        inputs={"names": list(names)},
        rows=rows,
        columns=(
            *columns("figure"),
            *(
                Column(figure=Figure(key=key, title=key))
                for name in names
                for key in ([name] if name == names[0] else [name, f"{name}_ratio"])
            ),
        ),
        people=functools.partial(_draw_diff, tuple(names), tuple(compared)),
    )


def _draw_diff(names: tuple[str, ...], compared: tuple[Compared, ...], style: Style) -> str:
    headings = ["", names[0]]
    for name in names[1:]:
        headings += [name, "ratio"]
    rows = []
    for line in compared:
        first, *others = ["-" if v is None else _text_of(line, v) for v in line.values]
        cells = [line.label, first]
        for value, ratio in zip(others, line.ratios[1:], strict=True):
            cells += [value, "" if ratio is None else f"{ratio:.2f}x"]
        rows.append(tuple(cells))
    right = (False,) + (True,) * (len(headings) - 1)
    return draw(TextTable(headings=tuple(headings), rows=tuple(rows), right=right), style)


def _text_of(line: Compared, value: float) -> str:
    return figure_text(value, line.dimension, line.key)

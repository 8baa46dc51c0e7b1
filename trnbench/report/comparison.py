"""Specs side by side: every figure, with ratios to the first spec."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.facts.hardware.figures import Compared
from trnbench.show.figures import Figure
from trnbench.show.report import Column, Report, columns
from trnbench.show.row import Row
from trnbench.show.sheet import figure_text
from trnbench.show.text_table import Style


def diff_report(names: Sequence[str], compared: Sequence[Compared]) -> Report:
    """Return the report of several specs side by side, with ratios to the first."""
    ratios = [f"{name}_ratio" for name in names]
    rows: tuple[Row, ...] = tuple(
        {
            "figure": line.key,
            **dict(zip(names, line.values, strict=True)),
            **dict(zip(ratios[1:], line.ratios[1:], strict=True)),
        }
        for line in compared
    )
    keys = [key for pair in zip(names, ratios, strict=True) for key in pair if key != ratios[0]]
    return Report(
        verb="spec-diff",
        inputs={"names": list(names)},
        rows=rows,
        columns=(*columns("figure"), *(Column(figure=Figure(key=key, title=key)) for key in keys)),
        people=lambda _, style: _draw_diff(names, compared, style),
    )


def _draw_diff(names: Sequence[str], compared: Sequence[Compared], style: Style) -> str:
    headings = [
        "",
        f">{names[0]}",
        *(head for name in names[1:] for head in (f">{name}", ">ratio")),
    ]
    rows = []
    for line in compared:
        first, *others = (
            "-" if value is None else figure_text(value, line.dimension, line.key)
            for value in line.values
        )
        cells = [line.label, first]
        for value, ratio in zip(others, line.ratios[1:], strict=True):
            cells += [value, "" if ratio is None else f"{ratio:.2f}x"]
        rows.append(cells)
    return style.table(headings, rows)

"""A report as one file to hand on: everything an answer says, with charts, needing nothing else.

The same parts make the HTML page and its Markdown twin. The page has no script, asks for nothing
from elsewhere, follows the reader's choice of light or dark, and prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from trnbench import __version__
from trnbench.facts.records import Record, replace
from trnbench.facts.terminal_text import shown
from trnbench.facts.units import money_text
from trnbench.show.charts import Chart, charts_of
from trnbench.show.figures import figure_of
from trnbench.show.formats import finite, with_intervals
from trnbench.show.headline import headline
from trnbench.show.report import Column, Report, as_table, cell_text, figure_or_key
from trnbench.show.row import Cell, Row
from trnbench.show.svg import STYLE, chart_svg
from trnbench.show.text_table import TextTable, markdown, text_table

PRICES = ("instance", "purchase", "region", "usd_per_hour", "price_date", "price_origin")
PRICED = (*PRICES, "discount", "price_source")
PARTS = (
    *("instance", "nodes", "phase", "step_time_s", "tokens_per_s", "mfu", "memory_bytes"),
    *("memory_available_bytes", "fit_probability", "days", "cost_usd"),
)
EVIDENCE = ("instance", "chip", "calibration", "basis", "stack", "stack_state", "evidence")
EVEN = ("instance", "nodes", "mfu", "break_even_mfu", "against")
_BOUGHT = (
    ("purchases", "What to buy when", ("on", "until", "what", "purchase", "usd", "jobs")),
    ("bill", "Bill", ("month", "purchase", "usd")),
    ("limit_costs", "What each limit costs", ("what", "usd")),
)
"""Parts of a fleet's summary, each with its title and columns."""
_LONGEST_TABLE = 400
_LONGEST_PRINTED = 40
_LONG_CELL = 32
_CSS = """
*{box-sizing:border-box}body{margin:0 auto;max-width:1080px;padding:24px 20px 48px;
background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.15rem;margin:0 0 4px;color:var(--faint);font-weight:600}
h2{font-size:1rem;margin:28px 0 8px;border-bottom:1px solid var(--rule)}
.verdict{font-size:1.35rem;line-height:1.35;margin:0 0 8px;font-weight:600}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;
font-variant-numeric:tabular-nums}th,td{padding:3px 10px 3px 0;text-align:left;vertical-align:top}
th{border-bottom:1px solid var(--faint);font-weight:600;white-space:nowrap}
td{border-bottom:1px solid var(--rule);white-space:nowrap}.r{text-align:right}
.t{white-space:normal;min-width:14em}
ul{margin:0;padding-left:18px;font-size:14px}code{font:13px ui-monospace,monospace;
overflow-wrap:anywhere}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));
gap:20px}figure{margin:0}figcaption{font-size:13px;color:var(--faint);margin-bottom:4px}
svg{width:100%;height:auto}p{margin:6px 0}.faint{color:var(--faint);font-size:13px}
:focus-visible{outline:2px solid var(--s0)}
@media print{body{max-width:none;padding:0;font-size:10px}h2{margin:10px 0 3px;break-after:avoid}
.verdict{font-size:14px}table,ul,code,.faint{font-size:8px}th,td{padding:1px 5px 1px 0}
th,td{white-space:normal}
.charts{grid-template-columns:1fr 1fr 1fr;gap:8px}
figure,tr{break-inside:avoid}.scroll{overflow:visible}
tr.more{display:none}
@page{margin:12mm}}
@media not print{.printed{display:none}}
"""


class PagePart(Record):
    """A part of the page under its title: a table, or lines, or charts."""

    title: str
    table: TextTable | None = None
    lines: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    note: str = ""


def html_page(report: Report, command: str) -> bytes:
    """Return the answer as one HTML file."""
    title = escape(shown(f"trnbench {report.verb.replace('-', ' ')}"))
    body = [
        f"<h1>{title}</h1>",
        f'<p class="verdict">{escape(shown(headline(report)))}</p>',
        *(_html(part) for part in _parts(report, command)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{title}</title><style>{STYLE}{_CSS}</style></head>\n"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    ).encode()


def markdown_page(report: Report, command: str) -> bytes:
    """Return the answer as one Markdown file; charts are told by their tables."""
    blocks = [f"# trnbench {report.verb.replace('-', ' ')}", f"**{shown(headline(report))}**"]
    for part in _parts(report, command):
        if part.charts:
            continue
        blocks.append(f"## {part.title}")
        if part.table is not None:
            blocks.append(markdown(part.table))
        if part.lines:
            blocks.append("\n".join(f"- {shown(line)}" for line in part.lines))
        if part.note:
            blocks.append(shown(part.note))
    return ("\n\n".join(blocks) + "\n").encode()


def _parts(report: Report, command: str) -> Iterator[PagePart]:
    rows = report.rows[:_LONGEST_TABLE]
    if rows:
        left = len(report.rows) - len(rows)
        yield PagePart(
            title="Answer",
            table=as_table(with_intervals(replace(report, rows=rows))),
            note=_table_note(report, left),
        )
    if charts := charts_of(report):
        yield PagePart(title="Pictures", charts=charts)
    for title, table in _tables(report, rows):
        if table is not None:
            yield PagePart(title=title, table=table)
    lines = [*report.notes, *_texts(report.summary.get("assumed"))]
    lines += [
        line for row in rows for key in ("warnings", "notes") for line in _texts(row.get(key))
    ]
    if lines:
        yield PagePart(title="Assumptions and notes", lines=tuple(dict.fromkeys(lines)))
    asked = [f"{key}: {_plain(value)}" for key, value in report.inputs.items() if _said(value)]
    yield PagePart(
        title="Question", lines=(*asked, f"command: {command}", f"trnbench {__version__}")
    )
    conventions = report.summary.get("conventions")
    if isinstance(conventions, Mapping):
        told = tuple(f"{key}: {value}" for key, value in conventions.items() if value)
        yield PagePart(title="What figures mean", lines=told)


def _tables(report: Report, rows: Sequence[Row]) -> Iterator[tuple[str, TextTable | None]]:
    """Yield what stands behind an answer, each table under its title; None where there is none."""
    summary = {key: _mappings(value) for key, value in report.summary.items()}
    parts = [
        {"instance": row["instance"], "nodes": row["nodes"], **one}
        for row in rows
        for one in _mappings(row.get("phases"))
    ]
    yield "Parts of the run", _columns_of(parts, PARTS)
    yield "What would change it", _sensitivity(summary.get("sensitivity", []))
    yield "Break-even", _columns_of(summary.get("break_even", []), EVEN)
    for key, title, names in _BOUGHT:
        headings = (">cost" if name == "usd" else name for name in names)
        cells = [[_bought(one[name]) for name in names] for one in summary.get(key, [])]
        yield title, text_table(headings, cells) if cells else None
    yield "Prices", _columns_of(summary.get("prices") or report.rows, PRICED)
    yield "Evidence", _columns_of(report.rows, EVIDENCE)


def _bought(cell: object) -> str:
    if isinstance(cell, float):
        return money_text(cell)
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell or "-")


def _sensitivity(changes: Sequence[Mapping[str, object]]) -> TextTable | None:
    rows = []
    for change in changes:
        cells = [str(change["moved"]), f"x {change['factor']:.3g}"]
        for name in ("same_plan", "best_plan"):
            plan = change[name]
            cells += [_purchase(plan)] if isinstance(plan, Mapping) else ["none"]
        rows.append(cells)
    headings = ("moved", ">by", "the same plan", "the best plan then")
    return text_table(headings, rows) if rows else None


def _purchase(plan: Mapping[str, object]) -> str:
    days, cost = (cell_text(plan[key], figure_of(key)) for key in ("days", "cost_usd"))  # type: ignore[arg-type]
    return f"{plan['nodes']} x {plan['instance']}, {plan['purchase']}: {days} days, {cost}"


def _columns_of(rows: Sequence[Row], keys: Sequence[str]) -> TextTable | None:
    """Return a table of the keys that rows have, equal rows once; None where they have too few."""
    present = [key for key in keys if any(row.get(key) not in (None, "") for row in rows)]
    if "instance" not in present or len(present) < 3:
        return None
    shown_columns = tuple(Column(figure=figure_or_key(key)) for key in present)
    known = {tuple(str(row.get(key)) for key in present): row for row in rows}
    part = Report(verb="", inputs={}, rows=tuple(known.values()), columns=shown_columns)
    return as_table(part)


def _table_note(report: Report, left: int) -> str:
    intervals = any(key.startswith("low_") for row in report.rows[:1] for key in row)
    told = ["in brackets: 80 % intervals"] if intervals else []
    told += [f"{left:,} more rows are in --format csv"] if left else []
    return "; ".join(told)


def _html(part: PagePart) -> str:
    inner = []
    if part.table is not None:
        name = _text(part.title)
        inner.append(f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">')
        inner.append(f"{_html_table(part.table)}</div>")
    if part.lines:
        inner.append(f"<ul>{''.join(f'<li>{_line(line)}</li>' for line in part.lines)}</ul>")
    if part.charts:
        figures = [
            f"<figure><figcaption>{_text(one.title)}</figcaption>{chart_svg(one)}</figure>"
            for one in part.charts
        ]
        inner.append(f'<div class="charts">{"".join(figures)}</div>')
    if part.note:
        inner.append(f'<p class="faint">{_text(part.note)}</p>')
    return f"<section><h2>{_text(part.title)}</h2>{''.join(inner)}</section>"


def _html_table(table: TextTable) -> str:
    def line(tag: str, cells: Sequence[str], kind: str = "") -> str:
        scope = ' scope="col"' if tag == "th" else ""
        told = [
            f"<{tag}{scope}{_kind(cell, right)}>{_text(cell)}</{tag}>"
            for cell, right in zip(cells, table.right, strict=True)
        ]
        return f"<tr{kind}>{''.join(told)}</tr>"

    rows = "".join(
        line("td", row, ' class="more"' if place >= _LONGEST_PRINTED else "")
        for place, row in enumerate(table.rows)
    )
    left = len(table.rows) - _LONGEST_PRINTED
    more = f'<p class="faint printed">{left:,} more rows are in the file</p>' if left > 0 else ""
    head = line("th", table.headings)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


def _kind(cell: str, right: bool) -> str:
    """Return how a cell stands: numbers to the right, long texts broken."""
    return ' class="r"' if right else ' class="t"' if len(cell) > _LONG_CELL else ""


def _line(text: str) -> str:
    name, colon, rest = text.partition("command: ")
    if colon and not name:
        return f"command: <code>{_text(rest)}</code>"
    return _text(text)


def _text(text: str) -> str:
    return escape(shown(text), quote=True)


def _mappings(value: Cell | object) -> list[Row]:
    several = value if isinstance(value, list | tuple) else ()
    return [one for one in several if isinstance(one, Mapping)]


def _texts(value: Cell | object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def _said(value: object) -> bool:
    return value not in (None, False, "", [], (), {})


def _plain(value: object) -> str:
    plain = finite(value)
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    if isinstance(plain, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in plain.items() if _said(item))
    if isinstance(plain, list | tuple):
        return ", ".join(_plain(item) for item in plain)
    return f"{plain:,}" if isinstance(plain, int) else str(plain)

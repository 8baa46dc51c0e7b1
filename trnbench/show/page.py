"""A report as one file to hand on: everything an answer says, with charts, needing nothing else.

The same parts make the HTML page and its Markdown twin. The page has no script, asks for nothing
from elsewhere, follows the reader's choice of light or dark, and prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trnbench import __version__
from trnbench.facts.records import Record, replace
from trnbench.facts.terminal_text import shown
from trnbench.facts.units import DAY_S, Dimension, money_text, show, significant
from trnbench.predict.assumption import Assumption, assumed_lines
from trnbench.show.charts.record import SENSITIVITY, AnyChart, BarChart, title_of
from trnbench.show.charts.svg import caption_of, chart_style, chart_svg
from trnbench.show.figures import FIGURES, figure_of
from trnbench.show.formats import finite, headline, with_intervals
from trnbench.show.report import (
    Column,
    Report,
    as_table,
    cell_text,
    change_text,
    figure_or_key,
)
from trnbench.show.row import Cell, Row
from trnbench.show.text_table import TextTable, markdown, text_table

DECIDING = ("name", "instance", "nodes", "cost_usd", "days", "cheapest_probability", "purchase")
"""Columns that a reader decides by: they stand first."""
DECISIVE = (
    *("mark", "instance", "nodes", "cost_usd", "days", "cheapest_probability"),
    *("on_time_probability", "mean_cost_usd", "marks", "price_date", "basis"),
)
"""Columns of a choice between machines."""
PRICES = ("instance", "purchase", "region", "usd_per_hour", "price_date", "price_origin")
PRICED = (*PRICES, "discount", "price_source")
PARTS = (
    *("instance", "nodes", "phase", "step_time_s", "tokens_per_s", "mfu", "memory_bytes"),
    *("memory_available_bytes", "fit_probability", "days", "cost_usd"),
)
EVIDENCE = ("instance", "chip", "calibration", "basis", "stack", "stack_state", "evidence")
MEASURED = ("id", "measured_s", "predicted_s", "low_s", "high_s", "difference", "inside")
EVEN = ("instance", "nodes", "mfu", "break_even_mfu", "against")
_BOUGHT = (
    ("purchases", "What to buy when", ("on", "until", "what", "purchase", "usd", "jobs")),
    ("bill", "Bill", ("month", "purchase", "usd")),
    ("limit_costs", "What each limit costs", ("what", "usd")),
)
"""Parts of a fleet's summary, each with its title and columns."""
_LONGEST_TABLE = 400
CHANGES = "What would change it"


class PagePart(Record):
    """A part of the page under its title: a table, or lines, or charts."""

    title: str
    table: TextTable | None = None
    lines: tuple[str, ...] = ()
    charts: tuple[AnyChart, ...] = ()
    note: str = ""


def html_page(report: Report, command: str, by: str = "") -> bytes:
    """The answer as one HTML file; `by` says who asked and when."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def finished(value: object) -> object:
        return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

    templates = Environment(
        loader=PackageLoader("trnbench.show"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = templates.get_template("page.html.j2").render(
        title=_title(report),
        by=by,
        verdict=headline(report),
        parts=list(_parts(report, command)),
        chart_style=chart_style(),
        drawing=chart_svg,
        caption=caption_of,
        heading=title_of,
        version=__version__,
    )
    return page.encode()


def markdown_page(report: Report, command: str, by: str = "") -> bytes:
    """The answer as one Markdown file; charts are told by their tables."""
    blocks = [f"# {shown(_title(report))}", *filter(None, (shown(by),))]
    blocks.append(f"**{shown(headline(report))}**")
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


def _title(report: Report) -> str:
    """The question in a sentence."""
    model, prices = report.inputs.get("model"), report.inputs.get("price_date")
    cases = _mappings(report.inputs.get("cases"))
    if "recommended" in report.summary and isinstance(model, str):
        return (
            f"Which machines should train {model}{_asked(report)}? Prices of {prices}{_if(report)}"
        )
    kept = report.summary.get("run")
    verb = str(kept["verb"]) if isinstance(kept, Mapping) else report.verb.replace("-", " ")
    if verb == "train" and cases:
        places = ", ".join(dict.fromkeys(str(one.get("on")) for one in cases))
        models = ", ".join(dict.fromkeys(str(one.get("model")) for one in cases))
        return f"How fast does {models} train on {places}, and does it fit?"
    if verb == "explain":
        return "Why do measured steps differ from what is predicted?"
    if verb == "fleet":
        return (
            f"What should a fleet buy, and when should each job run? ({report.inputs.get('name')})"
        )
    return f"trnbench {verb}: {model}" if isinstance(model, str) else f"trnbench {verb}"


def _asked(report: Report) -> str:
    """Length and limits of a run as part of its question."""
    tokens = next((row["tokens"] for row in report.rows if row.get("tokens")), None)
    long = f" on {show(tokens, Dimension.COUNT)} tokens" if isinstance(tokens, float) else ""
    deadline_s, usd = (report.inputs.get(key) for key in ("deadline_s", "budget_usd"))
    limits = []
    if isinstance(deadline_s, float):
        days = significant(deadline_s / DAY_S, 3)
        limits.append(f" within {days} day{'s' * (days != '1')}")
    if isinstance(usd, int | float):
        limits.append(f" for at most {money_text(usd)}")
    footing = report.summary.get("footing")
    if not limits and isinstance(footing, str):
        return f"{long}, {footing.partition(' (')[0]}"
    return long + "".join(limits)


def _if(report: Report) -> str:
    """What of a question is supposed and not predicted."""
    told = [
        f"{name.replace('_', ' ')} {text}"
        for name in ("speed", "mfu", "prices", "migration_cost")
        for text in _texts(report.inputs.get(name))
    ]
    return f"; supposed: {', '.join(told)}" if told else ""


def _decision(report: Report, rows: Sequence[Row]) -> Iterator[PagePart]:
    """Basis of a choice between machines: options, one picture, risks, the next step."""
    told_best = tuple(report.summary.get(key) for key in ("recommended", "recommended_nodes"))
    best = [(row["instance"], row["nodes"]) == told_best for row in rows]
    starred = [{**row, "mark": "*" if one else ""} for row, one in zip(rows, best, strict=True)]
    decisive = replace(report, rows=tuple(starred), columns=_present(DECISIVE, starred))
    yield PagePart(
        title="Options",
        table=as_table(with_intervals(decisive)),
        note=f"* lowest mean cost; {_table_note(report, 0)}",
    )
    drawn = [one for one in report.charts if isinstance(one, BarChart) and one.estimates]
    behind = tuple(one for one in report.charts if one not in drawn)
    if drawn:
        yield PagePart(title="Cost and days", charts=tuple(drawn))
    moves = _mappings(report.summary.get("sensitivity"))
    if (changes := _sensitivity(moves)) is not None:
        tornado = tuple(one for one in behind if one.title == SENSITIVITY)
        behind = tuple(one for one in behind if one not in tornado)
        yield PagePart(title="What would change the choice", table=changes, charts=tornado)
    told = [(str(row["instance"]), text) for row in rows for text in _texts(row.get("warnings"))]
    risks = [f"{name}: {text}" for name, text in dict.fromkeys(told)]
    if risks:
        yield PagePart(title="Risks", lines=tuple(risks))
    steps = [text for text in (report.summary.get("advice"),) if isinstance(text, str) and text]
    steps += [_to_buy(row) for row, one in zip(rows, best, strict=True) if one and _in_blocks(row)]
    steps += [
        f"Request {one['vcpus']:,} vCPU of {one['name']!r} ({one['purchase']})."
        for one in _mappings(report.summary.get("quotas"))
    ]
    if steps:
        yield PagePart(title="Next step", lines=tuple(steps))
    layouts = [c.key for c in report.columns if c.key not in (*DECISIVE, "chosen_plan")]
    rest = replace(report, rows=rows, columns=_present(("instance", "nodes", *layouts), rows))
    yield PagePart(title="Appendix: layouts and rates", table=as_table(rest))
    if behind:
        yield PagePart(title="Appendix: figures", charts=behind)


def _in_blocks(row: Row) -> bool:
    return row.get("purchase") == "capacity-block"


def _to_buy(row: Row) -> str:
    """The Capacity Blocks of a row, to be looked for."""
    days = row.get("blocks_days")
    told = " + ".join(map(str, days)) if isinstance(days, list | tuple) else ""
    return (
        f"Check that {row['machines']} x {row['instance']} are on sale in {row['region']} as "
        f"Capacity Blocks of {told} days."
    )


def _present(keys: Sequence[str], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Columns of those keys that some row has."""
    return tuple(
        Column(figure=figure_or_key(key))
        for key in keys
        if any(row.get(key) not in (None, "", (), []) for row in rows)
    )


def _parts(report: Report, command: str) -> Iterator[PagePart]:
    rows = report.rows[:_LONGEST_TABLE]
    chosen = "recommended_nodes" in report.summary
    if chosen and rows:
        yield from _decision(report, rows)
    elif rows:
        left = len(report.rows) - len(rows)
        named = {one.key for one in report.columns}
        # Ends stand in brackets behind their figure.
        doubled = {"sequences_per_s"} if "tokens_per_s" in named else set()
        # The question names the model of all rows.
        doubled |= {"model"} if len({str(row.get("model")) for row in rows}) == 1 else set()
        fewer = [
            one
            for one in report.columns
            if one.figure.end_of not in named and one.key not in doubled
        ]
        first = sorted(fewer, key=lambda one: (*DECIDING, one.key).index(one.key))
        table = replace(report, rows=rows, columns=tuple(first))
        yield PagePart(
            title="Answer", table=as_table(with_intervals(table)), note=_table_note(report, left)
        )
    if report.charts and not chosen:
        yield PagePart(title="Figures", charts=report.charts)
    for title, table_behind in _tables(report, rows):
        if table_behind is not None and not (chosen and title == CHANGES):
            yield PagePart(title=title, table=table_behind)
    if lines := _lines(report, rows, ("notes",) if chosen else ("warnings", "notes")):
        yield PagePart(title="Assumptions and notes", lines=lines)
    asked = [f"{key}: {_plain(value)}" for key, value in report.inputs.items() if _said(value)]
    yield PagePart(
        title="Question", lines=(*asked, f"command: {command}", f"trnbench {__version__}")
    )
    conventions = report.summary.get("conventions")
    if isinstance(conventions, Mapping):
        keys = {column.key for column in report.columns}
        told = [f"{key}: {text}" for key, text in conventions.items() if text and _used(key, keys)]
        yield PagePart(title="What figures mean", lines=tuple(told))


def _used(words: str, keys: set[str]) -> bool:
    figures = [word for word in words.split(", ") if word in FIGURES]
    return not figures or any(word in keys for word in figures)


def _lines(report: Report, rows: Sequence[Row], keys: Sequence[str]) -> tuple[str, ...]:
    """Assumptions and notes, each once: a row's only where no note of the report has it.

    `keys` of rows have their notes; warnings among a report's notes stand where theirs do.
    """
    lines = [f"assumed: {text}" for text in _assumed(report.summary.get("assumed"))]
    lines += [one for one in report.notes if "warnings" in keys or not one.startswith("warning: ")]
    told = "\n".join(lines)
    of_rows: dict[str, dict[str, None]] = {}
    for row in rows:
        for key in keys:
            for text in _texts(row.get(key)):
                of_rows.setdefault(text, {})[str(row.get("instance", ""))] = None
    places = {name for names in of_rows.values() for name in names}
    for text, names in of_rows.items():
        if text not in told:
            lines.append(f"{', '.join(names)}: {text}" if len(places) > len(names) else text)
    return tuple(dict.fromkeys(lines))


def _tables(report: Report, rows: Sequence[Row]) -> Iterator[tuple[str, TextTable | None]]:
    """Details behind an answer, each table under its title; None where there is none."""
    summary = {key: _mappings(value) for key, value in report.summary.items()}
    parts = [
        {"instance": row["instance"], "nodes": row["nodes"], **one}
        for row in rows
        for one in _mappings(row.get("phases"))
    ]
    yield "Parts of the run", _columns_of(parts, PARTS)
    steps = [{**one, "difference": one.get("gap")} for one in summary.get("steps", [])]
    yield "Measured and predicted", _columns_of(steps, MEASURED, "measured_s")
    yield CHANGES, _sensitivity(summary.get("sensitivity", []))
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
    """Table of moved inputs: of a plan with the plans that follow, of a choice where it changes."""
    if changes and "factor" not in changes[0]:
        return _tippings(changes)
    rows = []
    for change in changes:
        factor = change["factor"]
        cells = [f"{change['moved']} of the plan", change_text(factor) if factor else ""]  # type: ignore[arg-type]
        for name in ("same_plan", "best_plan"):
            plan = change[name]
            same = name == "best_plan" and plan == change["same_plan"]
            told = "stays" if same else _purchase(plan) if isinstance(plan, Mapping) else "none"
            cells.append(told)
        rows.append(cells)
    headings = ("input", ">change", "the plan then", "the best plan then")
    return text_table(headings, rows) if rows else None


def _tippings(changes: Sequence[Mapping[str, object]]) -> TextTable | None:
    def told(change: Mapping[str, object], end: str) -> list[str]:
        factor = change[end]
        if not isinstance(factor, float):
            return ["", ""]
        return [change_text(factor), str(change[f"{end}_to"] or "none keeps it")]

    rows = [
        [
            f"{one['moved']} of {one['instance']}" if one["instance"] else str(one["moved"]),
            *told(one, "down"),
            *told(one, "up"),
        ]
        for one in changes
        if one["down"] or one["up"]
    ]
    return text_table(("input", ">less", "then best", ">more", "then best"), rows) if rows else None


def _purchase(plan: Mapping[str, object]) -> str:
    days, cost = (cell_text(plan[key], figure_of(key)) for key in ("days", "cost_usd"))  # type: ignore[arg-type]
    return f"{plan['nodes']} x {plan['instance']}, {plan['purchase']}: {days} days, {cost}"


def _columns_of(
    rows: Sequence[Row], keys: Sequence[str], needed: str = "instance"
) -> TextTable | None:
    """A table of the keys that rows have, equal rows once; None where they have too few."""
    present = [key for key in keys if any(row.get(key) not in (None, "") for row in rows)]
    if needed not in present or len(present) < 3:
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


def _mappings(value: Cell | object) -> list[Row]:
    several = value if isinstance(value, list | tuple) else ()
    return [one for one in several if isinstance(one, Mapping)]


def _texts(value: Cell | object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def _assumed(value: object) -> list[str]:
    told = [
        Assumption(name=str(one["name"]), value=one["value"], why=str(one["why"]))  # type: ignore[arg-type]
        for one in _mappings(value)
    ]
    return assumed_lines(told)


def _said(value: object) -> bool:
    return value not in (None, False, "", [], (), {})


def _plain(value: object) -> str:
    plain = "yes" if value is True else finite(value)
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    if isinstance(plain, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in plain.items() if _said(item))
    if isinstance(plain, list | tuple):
        return ", ".join(_plain(item) for item in plain)
    return f"{plain:,}" if isinstance(plain, int) else str(plain)

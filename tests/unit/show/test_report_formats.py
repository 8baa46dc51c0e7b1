"""Rows into every format: rounding only for people, nothing lost for machines."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from trnbench.facts.records import replace
from trnbench.facts.terminal_text import json_shown
from trnbench.facts.units import Dimension
from trnbench.show.figures import Figure
from trnbench.show.formats import RENDERERS, render
from trnbench.show.report import Column, Report, as_table, columns
from trnbench.show.text_table import PLAIN, Style, draw, markdown, wrap

REPORT = Report(
    verb="demo",
    inputs={"size_bytes": 1024.0},
    rows=(
        {"name": "a", "time_s": 1.234567890123e-6, "rate": 2e12, "ok": True, "why": None},
        {"name": "b|c", "time_s": 2.5e-6, "rate": 4.1e10, "ok": False, "why": ("x", "y")},
    ),
    columns=(
        Column(figure=Figure(key="name", title="name")),
        Column(figure=Figure(key="time_s", title="time", dimension=Dimension.SECONDS)),
        Column(
            figure=Figure(
                key="rate", title="rate", dimension=Dimension.BYTES_PER_S, own_prefix=True
            )
        ),
        Column(figure=Figure(key="ok", title="ok")),
        Column(figure=Figure(key="why", title="why")),
    ),
    summary={"infinite": math.inf},
    notes=("a note",),
)


def text(output_format, style=PLAIN):
    return render(REPORT, output_format, style).decode()


def test_a_table_has_one_prefix_a_column_in_the_heading():
    assert text("table").splitlines() == [
        "name  time (us)     rate  ok   why",
        "----  ---------  -------  ---  ----",
        "a         1.235   2 TB/s  yes  -",
        "b|c         2.5  41 GB/s  no   x, y",
        "a note",
    ]


def test_colour_only_adds_escapes():
    coloured = text("table", Style(colour=True))
    assert "\x1b[1mname" in coloured
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == text("table")


def test_a_narrow_terminal_is_told_what_it_does_not_see():
    spare = replace(
        REPORT, columns=tuple(replace(c, spare=c.key != "name") for c in REPORT.columns)
    )
    wide = render(spare, "table", Style(width=80, terminal=True)).decode()
    assert wide == text("table")
    narrow = render(spare, "table", Style(width=24, terminal=True)).decode()
    assert max(map(len, narrow.splitlines())) <= 24
    assert "hidden, terminal too narrow: ok, why (--all-columns has all)" in " ".join(
        narrow.split()
    )
    assert render(spare, "table", Style(width=24)).decode() == text("table")


def test_a_last_column_that_does_not_fit_goes_on_below_and_loses_no_word():
    report = Report(
        verb="demo",
        inputs={},
        rows=(
            {"name": "a", "title": "one two three four five six"},
            {"name": "b", "title": "seven"},
        ),
        columns=columns("name", "title"),
    )
    assert render(report, "table", Style(width=26, terminal=True)).decode().splitlines() == [
        "name  title",
        "----  ------------------",
        "a     one two three four",
        "      five six",
        "b     seven",
    ]


@pytest.mark.parametrize("text", ["half \ud800 pair", "caf\u00e9 \u2028 \x1b", "{[,: ]}\n"])
def test_json_is_written_as_python_breaks_lines(text):
    inputs = {"text": text, "none": [], "empty": {}, "deep": {"pairs": ((1, 2.5), [None, True])}}
    written = render(replace(REPORT, inputs=inputs), "json", PLAIN).decode()
    assert (
        written == json_shown(json.dumps(json.loads(written), indent=2, ensure_ascii=False)) + "\n"
    )
    assert json.loads(written)["inputs"] == json.loads(json.dumps(inputs))


def test_json_keeps_full_precision_and_is_strict():
    document = json.loads(text("json"), parse_constant=lambda name: pytest.fail(name))
    assert document["schema"] == "trnbench.demo/1"
    assert document["rows"][0]["time_s"] == 1.234567890123e-6
    assert document["rows"][1]["why"] == ["x", "y"]
    assert document["summary"] == {"infinite": None}


def test_csv_and_jsonl_carry_the_same_cells():
    table = list(csv.DictReader(io.StringIO(text("csv"))))
    lines = [json.loads(line) for line in text("jsonl").splitlines()]
    assert table[0] == {
        "name": "a",
        "time_s": "1.234567890123e-06",
        "rate": "2000000000000.0",
        "ok": "true",
        "why": "",
    }
    assert json.loads(table[1]["why"]) == lines[1]["why"]
    assert [float(row["time_s"]) for row in table] == [line["time_s"] for line in lines]


def test_markdown_escapes_bars_and_aligns_numbers():
    lines = text("markdown").splitlines()
    assert lines[0] == "| name | time (us) | rate | ok | why |"
    assert lines[1] == "| --- | ---: | ---: | --- | --- |"
    assert lines[3].startswith("| b\\|c |")


@pytest.mark.parametrize("output_format", RENDERERS)
def test_no_rows_is_not_an_accident(output_format):
    empty = Report(verb="demo", inputs={}, rows=(), columns=REPORT.columns)
    out = render(empty, output_format, PLAIN).decode()
    assert out == "" or out.endswith("\n")
    if output_format == "json":
        assert json.loads(out)["rows"] == []
    if output_format == "csv":
        assert out == "name,time_s,rate,ok,why\n"


def test_a_whole_number_is_grouped_and_never_rounded():
    report = Report(
        verb="demo",
        inputs={},
        rows=({"n": 6738415616},),
        columns=(Column(figure=Figure(key="n", title="n")),),
    )
    assert as_table(report).rows == (("6,738,415,616",),)


def test_draw_and_markdown_of_the_same_table_hold_the_same_cells():
    table = as_table(REPORT)
    for cell in (cell for row in table.rows for cell in row):
        assert cell in draw(table)
        assert cell.replace("|", "\\|") in markdown(table)


def test_wrap_keeps_the_indent_and_long_words():
    wrapped = wrap("one two three four " + "x" * 60, 30, "    ")
    assert all(line.startswith("    ") for line in wrapped.splitlines())
    assert "x" * 60 in wrapped

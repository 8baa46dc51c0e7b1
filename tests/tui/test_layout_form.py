"""The form of a layout and what stands for one: names that fit, knobs that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.tui.cluster_view import LABEL, layout_fields
from trnbench.tui.questions.layouts import LAYOUT_COLUMNS, ranked_layouts
from trnbench.tui.views.layouts import _layout_text
from trnbench.tui.work_process import WorkHooks


def test_no_label_is_cut():
    assert [one.label for one in layout_fields() if len(one.label) > LABEL] == []


def test_what_is_not_given_is_left_out_of_a_layout_in_few_letters():
    by_hand: Any = SimpleNamespace(layout=PartialLayout(tp=8, pp=5, schedule="1f1b"))
    assert _layout_text(by_hand) == "tp8 pp5 1f1b"


def test_any_in_a_field_asks_the_search_for_a_knob():
    fields = {one.key: one for one in layout_fields()}
    assert [fields[name].parse("any") for name in ("shard", "recompute", "tp")] == ["any"] * 2 + [
        None
    ]
    assert fields["shard"].parse("") is None
    assert "any" in fields["pipeline_layout"].choices
    assert "any" not in fields["tp"].choices


def test_layouts_beyond_measured_rows_say_as_what_they_rank():
    layout = PartialLayout(global_batch=1024, sequence=8192, precision="bf16-master", tp=4, cp=1)
    job = TrainCase(model="llama3.1-8b", instance="trn2.48xlarge", nodes=4, layout=layout)
    found = ranked_layouts(open_catalog(), job, WorkHooks(lambda _: None, lambda: None))
    rows: Any = found.report.rows
    assert found.doubted
    assert [one.figure.key for one in found.report.columns][1:3] == ["step_time_s", "ranked_s"]
    ranked_as = [row["ranked_s"] or row["step_time_s"] for row in rows]
    assert ranked_as == pytest.approx(sorted(ranked_as))
    doubted = [row for row in rows if row["ranked_s"]]
    assert 0 < len(doubted) < len(rows)
    assert all(row["ranked_s"] > row["step_time_s"] for row in doubted)


def test_ranked_layouts_show_the_knobs_that_were_asked_for():
    def ranked(**knobs: Any) -> Any:
        layout = PartialLayout(global_batch=64, sequence=256, precision="bf16-master", **knobs)
        job = TrainCase(model="tiny-gpt", instance="p5.48xlarge", nodes=2, layout=layout)
        return ranked_layouts(open_catalog(), job, WorkHooks(lambda _: None, lambda: None))

    plain, asked = ranked(), ranked(shard="any")
    usual = {*(one.figure.key for one in LAYOUT_COLUMNS), "ranked_s"}
    assert {one.figure.key for one in plain.report.columns} == usual
    assert {one.figure.key for one in asked.report.columns} == {*usual, "shard"}
    assert asked.legal > plain.legal
    assert {row["shard"] for row in asked.report.rows} > {None}

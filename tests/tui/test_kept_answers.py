"""Answers of the terminal UI in the file of kept runs: as the command line would have kept them."""

from __future__ import annotations

import datetime
import os
import queue
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest

from trnbench.cli.main import ask
from trnbench.facts.workload.library import Place, Product
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.show.report import Report, columns
from trnbench.store.database import opened
from trnbench.store.runs import listed
from trnbench.tui.questions.benchmarks import collective_sweep, matrix_rows
from trnbench.tui.questions.layouts import Window, layout_detail, memory_slots, schedule_chart
from trnbench.tui.questions.scenarios import compare_rows, plan_rows
from trnbench.tui.work import WorkLane
from trnbench.tui.work_process import AnswerKeeper, WorkAnswer, WorkHooks, WorkNotice, WorkProgress
from trnbench.verbs.asking.command_lines import CommandQuestion
from trnbench.verbs.collective.question import AUTO, CollectiveQuestion
from trnbench.verbs.matrix.question import MatrixQuestion
from trnbench.verbs.runs.keeping import kept_answer
from trnbench.verbs.runs.run import read_run

SCENARIO = {
    **{"model": "llama2-7b", "tokens": 300e9, "on": ("trn1.32xlarge", "p5.48xlarge"), "nodes": 4},
    **{"price_date": datetime.date(2026, 11, 21), "price": ("p5.48xlarge=60",), "discount": 0.1},
}
JOB = TrainCase(
    model="llama2-7b",
    instance="trn1.32xlarge",
    nodes=4,
    layout=PartialLayout(global_batch=1024, sequence=4096),
)
TP8 = PartialLayout(tp=8, pp=4)
PRODUCTS = MatrixQuestion(
    products=(Product(m=512, k=512, n=512), Product(m=4096, k=128, n=512)),
    chips=("trainium1", "h100"),
    formats=("bf16",),
)
SWEEP = CollectiveQuestion(
    op="all-reduce",
    places=(Place(instance="trn1.32xlarge", nodes=2),),
    smallest_bytes=1024.0,
    largest_bytes=2.0**20,
    factor=4.0,
)
QUESTIONS: dict[str, Callable[..., object]] = {
    "compare": partial(compare_rows, scenario=SCENARIO),
    "plan": partial(plan_rows, asked={**SCENARIO, "nodes": None, "budget": 9e6, "max_nodes": 8}),
    "layouts": partial(layout_detail, job=JOB, layout=TP8, by_hand=True),
    "schedule": partial(
        schedule_chart, job=JOB, layout=TP8, window=Window(), style=(80, 20, False, True)
    ),
    "memory": partial(memory_slots, job=JOB, layout=TP8),
    "matrix": partial(matrix_rows, question=PRODUCTS),
    "collective": partial(collective_sweep, question=SWEEP, algorithms=(AUTO, "ring")),
}
"""By view, the question that fills it."""


@pytest.fixture(autouse=True)
def kept_runs(monkeypatch, tmp_path):
    """A file of runs of its own; returns the verbs and options of what is in it, newest first."""
    path = tmp_path / "runs.db"
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    monkeypatch.setenv("TRNBENCH_RUNS", str(path))

    def runs():
        with opened(path, say=print) as connection:
            connection.execute("BEGIN")  # a run may be replaced between the list and the reading
            return [read_run(connection, one.id) for one in listed(connection, {})[0]]

    return runs


@pytest.mark.slow
@pytest.mark.parametrize("view", QUESTIONS)
def test_what_a_view_answers_is_what_its_command_answers(view, catalog):
    hooks = WorkHooks(lambda progress: None, lambda: None)
    QUESTIONS[view](catalog, hooks=hooks)
    assert hooks.answers
    for one in hooks.answers:
        report, code = ask(one.question.verb, one.question.given, catalog)
        assert report is not None
        asked, told = kept_answer(report), kept_answer(one.report)
        assert told.rows == asked.rows
        assert told.columns == asked.columns
        assert told.inputs == asked.inputs
        assert (code == 0) == one.good


def told(number, hooks):
    """Answer with a number, and keep it."""
    from trnbench.facts.catalog.search import open_catalog

    report = Report(
        verb="matrix", inputs={}, rows=({"time_s": float(number)},), columns=columns("time_s")
    )
    question = CommandQuestion(verb="matrix", options={"shapes": [f"{number}x1x1"]})
    hooks.keep(open_catalog(), question, report, good=True)
    return number


@pytest.fixture
def lane():
    news: queue.Queue = queue.Queue()
    made = WorkLane("test", lambda lane, generation, item: news.put(item))

    def answered(*numbers):
        """Ask, one after the other, and return all that was told but progress."""
        for number in numbers:
            made.ask(partial(told, number))
            found = []
            while WorkAnswer(number) not in found:
                item = news.get(timeout=60)
                if not isinstance(item, WorkProgress):
                    found.append(item)
        return found

    yield SimpleNamespace(answered=answered, news=news)
    made.close()


def until(wanted):
    end = time.monotonic() + 60
    while not wanted():
        assert time.monotonic() < end, "this never came to be"
        os.sched_yield()


def shapes(runs):
    return [one.run.options["shapes"] for one in runs()]


def test_an_answer_is_kept_with_its_command_and_one_replaced_at_once_is_not(lane, kept_runs):
    lane.answered(1, 12, 128)
    until(lambda: shapes(kept_runs) == [["128x1x1"]])
    (one,) = kept_runs()
    assert one.run.command == "trnbench matrix 128x1x1"
    assert one.answer.rows == ({"time_s": 128.0},)


def test_an_answer_that_stood_stays_beside_the_next_and_the_same_again_is_one(kept_runs):
    keeper = AnswerKeeper()
    began = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
    for number, stood in ((1, True), (2, True), (2, True), (3, False)):
        hooks = WorkHooks(lambda progress: None, lambda: None)
        told(number, hooks)
        assert [*keeper.keep(hooks.answers, began, 0.1, stood=stood)] == []
    assert shapes(kept_runs) == [["3x1x1"], ["1x1x1"]]


def test_nothing_is_kept_where_nothing_is_to_be(lane, monkeypatch, tmp_path):
    monkeypatch.setenv("TRNBENCH_KEEP", "0")
    lane.answered(1, 2)
    assert not (tmp_path / "runs.db").exists()


def test_a_file_that_cannot_be_written_is_said_once_and_the_answers_stand(lane, tmp_path):
    with closing(sqlite3.connect(tmp_path / "runs.db")) as other:
        other.execute("CREATE TABLE of_another_program (x)")
    lane.answered(1)
    notice = lane.news.get(timeout=60)
    assert isinstance(notice, WorkNotice)
    assert "not kept" in notice.text
    assert "another program" in notice.text
    assert lane.answered(2, 3) == [WorkAnswer(3)]

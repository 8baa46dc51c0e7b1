"""How stable screens look; what they show is made by hand, so no calibration moves them.

A change that is meant: `make snapshots`.
"""

from __future__ import annotations

import pytest
from textual.widgets import Input

from trnbench.evidence.comparison import Comparison
from trnbench.show.report import Report
from trnbench.tui.app import TrnbenchApp
from trnbench.tui.drawings import POWERS
from trnbench.tui.questions.evidence import EVIDENCE_COLUMNS, EvidenceFound
from trnbench.tui.questions.layouts import (
    LAYOUT_COLUMNS,
    DrawnSchedule,
    RankedLayouts,
)
from trnbench.tui.questions.scenarios import spec_report
from trnbench.tui.widgets.panels import ErrorPanel, PictureSwitch
from trnbench.tui.work_process import TableFound
from trnbench.verbs.validate.answer import comparison_row

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.fixture
def pictured(made, silent, until, snap_compare, monkeypatch):
    """Compares a view with its picture, after something was shown in it."""
    # However many instances are shipped.
    monkeypatch.setattr(TrnbenchApp, "specs_facts", ("specs built in",))
    # However slow the machine is.
    monkeypatch.setattr(Input, "cursor_blink", False)

    def compare(view, size, prepare, theme="dark"):
        app = made(view)

        async def before(pilot):
            await until(pilot, lambda: app.view is not None)
            app.theme = theme
            await pilot.pause()
            await prepare(app, pilot)
            app.view.say("")
            await pilot.pause()

        return snap_compare(app, terminal_size=size, run_before=before)

    return compare


async def drawn(app, pilot, until, name):
    """Wait until the plotting library has drawn a chart."""
    chart = app.view.query_one(name)
    await until(pilot, lambda: bool(chart.query("PlotWidget")))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_compare(pictured, canned, until, size):
    async def prepare(app, pilot):
        app.view.answered("compare", canned.found())
        await drawn(app, pilot, until, "#picture-cost-time")
        await pilot.press("b", "down", "down", "space")

    assert pictured("compare", size, prepare)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("picture", "theme"), [("step time", "light"), ("memory", "high-contrast-dark")]
)
def test_compare_pictures(pictured, canned, picture, theme):
    async def prepare(app, pilot):
        app.view.answered("compare", canned.found())
        app.view.query_one(PictureSwitch).turn_to(picture)
        await pilot.pause()

    assert pictured("compare", (120, 40), prepare, theme)


@pytest.mark.slow
def test_first_paint(pictured):
    async def prepare(app, pilot):
        report = spec_report(app.catalog, ("trn1.32xlarge", "trn2-ultraserver"))
        assert report.rows[0]["usd_per_hour"] is not None

    assert pictured("compare", (120, 40), prepare)


@pytest.mark.slow
def test_bad_field_and_error_panel(pictured, canned):
    async def prepare(app, pilot):
        app.view.answered("compare", canned.found())
        app.view.query_one(ErrorPanel).say("compare: the process that computes died", "exit -9")
        await pilot.press("f", *"xx", "enter")

    assert pictured("compare", (120, 40), prepare)


@pytest.mark.slow
def test_layouts(pictured, canned):
    async def prepare(app, pilot):
        rows = tuple(
            canned.compare_row("trn1.32xlarge", 32, 40.0, 1e6, rank=rank, sequence_parallel=True)
            for rank in (1, 2, 3)
        )
        rows = tuple({**row, "tp": 8 * 2**i} for i, row in enumerate(rows))
        app.view.answered(
            "layouts",
            RankedLayouts(
                report=Report(verb="train", inputs={}, rows=rows, columns=LAYOUT_COLUMNS),
                legal=1234,
                feasible=3,
                complete=True,
                reasons=(),
                doubted=False,
            ),
        )
        refused = {**rows[0], "tp": 3, "reasons": ("tp=3 does not divide 64 heads; try 2, 4, 1",)}
        for row in (rows[0], refused):
            app.view.answered("layout", (canned.step_answer(row), True))

    assert pictured("layouts", (120, 40), prepare)


@pytest.mark.slow
def test_schedule(pictured, canned):
    async def prepare(app, pilot):
        row = canned.compare_row("trn1.32xlarge", 32, 40.0, 1e6)
        chart = "stage 0 |FF1F--BB0=B==| 12 %\nstage 1 | F0F--BB0=B== | 12 %"
        app.view.answered(
            "schedule", DrawnSchedule(chart=chart, answer=canned.step_answer(row), step_time_s=20.0)
        )

    assert pictured("schedule", (120, 40), prepare)


def test_matrix_heat_map(pictured):
    async def prepare(app, pilot):
        report = Report(verb="matrix", inputs={}, rows=(), columns=())
        app.view.answered("matrix", TableFound(report=report))
        cells = {(m, n): min(m * n / 2**26, 1.0) for m in POWERS for n in POWERS}
        app.view.answered("heat map", {"trainium1 bf16": cells, "trainium2 bf16": cells})
        app.view.query_one(PictureSwitch).turn_to("heat map")

    assert pictured("matrix", (120, 40), prepare)


def test_evidence(pictured, until):
    async def prepare(app, pilot):
        comparisons = tuple(
            Comparison(
                id=f"row-{i}",
                set="trainium_training",
                measured_s=2.0**i,
                predicted_s=2.0**i * (0.9 + 0.05 * i),
                fitted=i == 2,
            )
            for i in range(5)
        )
        rows = tuple(map(comparison_row, comparisons))
        report = Report(verb="validate", inputs={}, rows=rows, columns=EVIDENCE_COLUMNS)
        found = EvidenceFound(report=report, answers=comparisons, words="")
        app.view.answered("evidence", found)
        await drawn(app, pilot, until, "#picture-scatter")

    assert pictured("evidence", (120, 40), prepare)


def test_help(pictured):
    async def prepare(app, pilot):
        await pilot.press("question_mark")

    assert pictured("compare", (80, 24), prepare)


@pytest.mark.slow
def test_too_small(pictured):
    async def prepare(app, pilot):
        return

    assert pictured("compare", (50, 12), prepare)

"""The application under test: no animations, a home of its own, and answers made by hand."""

from __future__ import annotations

import asyncio
import datetime
import time
from types import SimpleNamespace

import pytest
from textual.css.stylesheet import Stylesheet

from trnbench.engines.analytic.step.memory_parts import CATEGORIES
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.prediction import RankMemory, StepFigures
from trnbench.program.slots import STEP_CATEGORIES
from trnbench.show.report import Report, columns
from trnbench.show.row import Interval
from trnbench.tui.app import TrnbenchApp
from trnbench.tui.questions.scenarios import COMPARE_COLUMNS, CompareFound
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.charts import ClusterPoint
from trnbench.verbs.train.answer import TrainAnswer

TODAY = datetime.date(2026, 11, 21)
LIMIT_S = 60.0
"""Far more than anything takes; only a test that would never end gets there."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    for name in ("NO_COLOR", "TRNBENCH_SPEC_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def parsed_once():
    """Styles of widgets are parsed once for all applications that have the same variables."""
    plainly, parsed = Stylesheet._parse_rules, {}

    def parse(sheet, *args, **kwargs):
        key = (args, *sorted(kwargs.items()), *sorted(sheet._variables.items()))
        if key not in parsed:
            parsed[key] = plainly(sheet, *args, **kwargs)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse)
        yield


@pytest.fixture(scope="session")
def catalog():
    """The built-in catalogue, read once."""
    return open_catalog()


@pytest.fixture
def made(home, catalog):
    """Makes an application that opens with a view."""

    def make(view="compare", **more):
        return TrnbenchApp(catalog, view=view, folder=home, today=TODAY, **more)

    return make


@pytest.fixture
def silent(monkeypatch):
    """Views that ask nothing, so start no process: what they show is told to them."""
    monkeypatch.setattr("trnbench.tui.view.View.ask", lambda self, topic, *question: None)
    monkeypatch.setattr("trnbench.tui.view.View.warm", lambda self, topic, *modules: None)


@pytest.fixture
def unplotted(monkeypatch):
    """Views without what it takes to plot."""
    monkeypatch.setattr("trnbench.tui.widgets.chart.Chart.load", lambda self: None)


async def until(pilot, wanted):
    """Wait until something is so; what takes longer than the limit never will be."""
    end = time.monotonic() + LIMIT_S
    while not wanted():
        assert time.monotonic() < end, "this never came to be"
        await asyncio.sleep(0.01)
    await pilot.pause()


@pytest.fixture(name="until")
def until_fixture():
    return until


def compare_row(instance, nodes, days, cost, **more):
    step = 20.0
    exposed = {"matrix": 10.0, "attention": 4.0, "tensor": 3.0, "bubble": 2.0, "data": 1.0}
    memory = {"weights": 4e9, "optimizer": 2e9, "activations": 5e9}
    row = {
        "instance": instance,
        "nodes": nodes,
        "model": "llama3.1-70b",
        "days": days,
        "low_days": None if days is None else 0.8 * days,
        "high_days": None if days is None else 1.4 * days,
        "cost_usd": cost,
        "low_cost_usd": None if cost is None else 0.8 * cost,
        "high_cost_usd": None if cost is None else 1.4 * cost,
        "usd_per_million_tokens": None if cost is None else cost / 2e6,
        "usd_per_hour": None if cost is None else 21.5,
        "tokens_per_s": 2e12 / (days * 86400.0) if days else None,
        "mfu": 0.31 if days else None,
        "step_time_s": step if days else None,
        "bottleneck": "matrix" if days else None,
        "tp": 8,
        "pp": 8,
        "dp": nodes // 2,
        "cp": 1,
        "ep": 1,
        "vpp": 1,
        "micro_batch": 1,
        "zero": 1,
        "recompute": "selective",
        "schedule": "1f1b",
        "sequence": 8192,
        "global_batch": 1024,
        "precision": "bf16-master",
        "memory_bytes": sum(memory.values()),
        "memory_capacity_bytes": 16e9,
        "memory_available_bytes": 15e9,
        **{f"exposed_{name}_s": value if days else None for name, value in exposed.items()},
        **{f"memory_{name}_bytes": value for name, value in memory.items()},
        "purchase": "on-demand" if cost else None,
        "region": "us-east-1" if cost else None,
        "price_date": "2026-11-01" if cost else None,
        "evidence": "assumed",
        "feasible": days is not None,
        "reasons": () if days else ("needs 1.32x of a rank's memory",),
        "warnings": (),
        "notes": (),
    }
    return row | more


def step_answer(row):
    """The training step of a row made by hand."""

    def parts(begin, end, names):
        keys = {name: f"{begin}{name.replace('-', '_')}{end}" for name in names}
        return {name: row[key] for name, key in keys.items() if key in row}

    step = None
    if row["step_time_s"] is not None:
        step = StepFigures(
            **{f"{end}step_time_s": row["step_time_s"] for end in ("", "low_", "high_")},
            exposed_s=parts("exposed_", "_s", STEP_CATEGORIES),
            hidden_s={},
            mfu=row["mfu"],
            mfu_headline=None,
            hfu=row["mfu"],
        )
    return TrainAnswer(
        **{name: row[name] for name in ("model", "instance", "nodes", "reasons", "warnings")},
        label="",
        chip="trainium1",
        engine="analytic",
        calibration="",
        stack="",
        stack_state=None,
        basis="",
        chips=16 * row["nodes"],
        ranks=32 * row["nodes"],
        logical_size=None,
        tokens_per_sample=None,
        layout=PartialLayout(**{name: row[name] for name in KNOBS if name in row}),
        evidence=Kind.ASSUMED,
        step=step,
        memory=RankMemory(
            stage="heavy",
            by_category=parts("memory_", "_bytes", CATEGORIES),
            total_bytes=row["memory_bytes"],
            low_bytes=row["memory_bytes"],
            high_bytes=row["memory_bytes"],
            capacity_bytes=row["memory_capacity_bytes"],
            reserve_bytes=row["memory_capacity_bytes"] - row["memory_available_bytes"],
            fit_probability=1.0,
        ),
    )


def quote(row):
    """The quote of a row made by hand."""

    def interval(name, factor):
        ends = (row[name], row[f"low_{name}"], row[f"high_{name}"])
        if None in ends:
            return None
        return Interval(**dict(zip(("value", "low", "high"), ends, strict=True))).scaled(factor)

    return Quote(
        **{name: row[name] for name in ("instance", "nodes", "reasons", "notes")},
        steps=(step_answer(row),),
        main=0,
        tokens=2e12,
        samples=1.0,
        elapsed_s=interval("days", 86400.0),
        cost_usd=interval("cost_usd", 1.0),
    )


def found():
    """A comparison made by hand."""
    rows = (
        compare_row("trn1.32xlarge", 256, 48.0, 2.87e6),
        compare_row("trn1n.32xlarge", 256, 46.0, 7.06e6),
        compare_row("trn2.48xlarge", 64, 45.0, 2.47e6, mfu=0.366),
        compare_row("trn2-ultraserver", 16, 43.5, None, mfu=0.376),
        compare_row("p5.48xlarge", 64, None, None),
    )
    points = tuple(
        ClusterPoint(
            instance=row["instance"],
            nodes=nodes,
            days=3000.0 / nodes * factor,
            cost_usd=2e6 * factor if row["cost_usd"] else None,
            tokens_per_s=8e3 * nodes / factor,
        )
        for factor, row in zip((1.0, 1.1, 0.7, 0.6, 0.8), rows, strict=True)
        for nodes in (4, 16, 64, 256)
    )
    report = Report(
        verb="compare",
        inputs={},
        rows=rows,
        columns=COMPARE_COLUMNS,
        summary={"footing": "each on the fewest nodes that finish in 60 days"},
    )
    quotes = tuple(map(quote, rows))
    return CompareFound(
        report=report,
        answers=quotes,
        points=points,
        one_size=False,
        verdict="cheapest: 64 x trn2.48xlarge, USD 2.47M: 14 % below trn1.32xlarge",
        winner=2,
        rests_on=tuple(f"{one.instance}: speed assumed, price read" for one in quotes),
        deadline_s=60 * 86400.0,
    )


def ranked_report(count):
    rows = tuple(
        {"name": f"row {i}", "time_s": float((7 * i) % count + 1), "mfu": i / count}
        for i in range(count)
    )
    return Report(verb="test", inputs={}, rows=rows, columns=columns("name", "time_s", "mfu"))


@pytest.fixture
def canned():
    return SimpleNamespace(
        found=found,
        compare_row=compare_row,
        quote=quote,
        step_answer=step_answer,
        ranked_report=ranked_report,
    )

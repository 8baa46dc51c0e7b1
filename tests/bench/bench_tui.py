"""How fast the terminal UI paints, fills, answers a key under load, and cancels; wall clock."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

from tests.bench.figure import show

KEYS = 40
NODES = tuple(range(8, 513, 8))
BATCH = 720_720
FIRST = """
import asyncio, time
began = time.perf_counter()
from trnbench.catalog.search import open_catalog
from trnbench.cli import main
from trnbench.tui.app import TrnbenchApp

class Timed(TrnbenchApp):
    painted = False

    def _display(self, screen, renderable):
        super()._display(screen, renderable)
        if not self.painted and screen is not None and screen.name == "compare":
            self.painted = True
            print("paint", time.perf_counter() - began)

async def opened():
    app = Timed(open_catalog())
    async with app.run_test(size=(120, 40)):
        while True:
            await asyncio.sleep(0.01)
            tables = list(app.screen.query("ResultTable"))
            if tables and any(row.get("days") for row in tables[0].source.report.rows):
                print("filled", time.perf_counter() - began)
                return

asyncio.run(opened())
"""


def large_search(hooks):
    """Search more than ten million layouts; keep what is found if it is cancelled."""
    from trnbench import app

    return app.search_layouts(
        model="llama3.1-70b",
        instance="trn2.48xlarge",
        nodes=NODES,
        global_batch=BATCH,
        sequence=8192,
        precision="bf16-master",
        progress=hooks.note,
        cancel=hooks.ended,
    )


async def under_load() -> tuple[float, float, float]:
    """Return the slowest key and the time of a cancel, s, and the layouts that were to be seen."""
    from trnbench.answers.row import Row
    from trnbench.catalog.search import open_catalog
    from trnbench.report.report import Report, columns
    from trnbench.tui.app import TrnbenchApp
    from trnbench.tui.widgets.result_table import ResultTable
    from trnbench.tui.widgets.table_model import TableSource

    app = TrnbenchApp(open_catalog(), view="layouts")
    seen: list[int] = []
    async with app.run_test(size=(120, 40)) as pilot:
        while app.view is None or not app.view.query(ResultTable).first().source.keys:
            await asyncio.sleep(0.01)
        view: Any = app.view
        table = view.query(ResultTable).first()
        rows: tuple[Row, ...] = tuple({"name": f"row {i}", "time_s": float(i)} for i in range(2000))
        shown = columns("name", "time_s")
        report = Report(verb="bench", inputs={}, rows=rows, columns=shown)
        view._look_at_row = lambda: None
        view.answered = lambda topic, value: None
        view.progressed = lambda topic, progress: seen.append(progress.total)
        table.show(TableSource(report=report, keys=tuple(map(str, range(2000)))))
        await pilot.pause()
        view.ask("layouts", partial(large_search))
        while not seen:
            await asyncio.sleep(0.01)
        slowest = 0.0
        for _ in range(KEYS):
            before, start = table.cursor, time.perf_counter()
            app.simulate_key("down")
            while table.cursor == before:
                await asyncio.sleep(0)
            slowest = max(slowest, time.perf_counter() - start)
            await asyncio.sleep(0.02)
        lane = view.lane("layouts")
        start = time.perf_counter()
        view.action_cancel()
        while lane.busy:
            await asyncio.sleep(0.005)
        cancelled = time.perf_counter() - start
    return slowest, cancelled, max(seen, default=0)


def main() -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
        done = [
            subprocess.run(
                [sys.executable, "-c", FIRST], check=True, capture_output=True, text=True
            )
            for _ in range(3)
        ]
        figures = [dict(line.split() for line in one.stdout.splitlines()) for one in done]
        for name, bar_s in (("paint", 0.5), ("filled", 2.5)):
            show(f"tui, {name}", min(float(one[name]) for one in figures), "s", bar_s, "at most")
        slowest, cancelled, legal = asyncio.run(under_load())
        show("tui, legal layouts of the search below", legal, "layouts", 10_000_000, "at least")
        show("tui, slowest key during the search", slowest, "s", 0.1, "at most")
        show("tui, cancel of the search", cancelled, "s", 0.5, "at most")


if __name__ == "__main__":
    main()

"""How much processor time the terminal UI takes to paint and fill; its answers to keys."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figure import show
from tests.tui.screen import ScreenTerminal

KEYS = 40
NODES = tuple(range(8, 513, 8))
BATCH = 720_720
STARTS = 3
PICTURES = ("memory", "difference", "step time")
SEARCH = """
from tests.bench.bench_tui import large_search
from trnbench.cli.main import main
from trnbench.tui.views.layouts import LayoutsView

LayoutsView.action_again = lambda view: view.ask("layouts", large_search)
main(["tui", "layouts"])
"""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def large_search(catalog, hooks):
    """Search more than ten million layouts, and say how many; keep what is found if cancelled."""
    import trnbench
    from trnbench.show.report import Report
    from trnbench.tui.questions.layouts import RankedLayouts

    def told(done, total, what):
        hooks.note(done, total, f"layouts, {what}")

    searched = trnbench.search_layouts(
        model="llama3.1-70b",
        instance="trn2.48xlarge",
        nodes=NODES,
        global_batch=BATCH,
        sequence=8192,
        precision="bf16-master",
        progress=told,
        cancel=hooks.ended,
    )
    return RankedLayouts(
        report=Report(verb="train", inputs={}, rows=(), columns=()),
        legal=searched.legal,
        feasible=searched.feasible,
        complete=searched.complete,
        reasons=searched.reasons,
        doubted=False,
    )


def processor_s(process: int, *, below: bool) -> float:
    """Return the processor time of a process; of those below it, too, alive or awaited."""
    taken: dict[int, tuple[int, list[str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        taken[int(path.parent.name)] = int(words[1]), words[11:15]
    told = 0
    for number, (_, ticks) in taken.items():
        above = number
        while above in taken and above != process:
            above = taken[above][0]
        if number == process or (below and above == process):
            told += sum(map(int, ticks[: 4 if below else 2]))
    return told / TICKS_PER_S


def started(home: str) -> tuple[float, float]:
    """Return the processor time until Compare is painted, and until it has its answer."""
    screen = ScreenTerminal(home=home, columns=120, lines=40)
    screen.shows("[Compare]", wait_s=0.002)
    painted = processor_s(screen.process.pid, below=False)
    screen.shows(" compare: ", absent="compare: 0/", wait_s=0.002)
    while "s" not in screen.shows(" compare: ").partition(" compare: ")[2].split()[1:2]:
        screen.read(0.002)
    filled = processor_s(screen.process.pid, below=True)
    screen.close()
    return painted, filled


def under_load(home: str) -> tuple[float, float, int]:
    """Return the slowest key and the time of a cancel, s, and the layouts that were to be seen."""
    command = [sys.executable, "-c", SEARCH]
    screen = ScreenTerminal(home=home, columns=120, lines=40, command=command)
    shown = screen.shows("layouts, ")
    layouts = int(shown.partition("layouts: ")[2].split()[0].partition("/")[2].replace(",", ""))
    slowest = 0.0
    for number in range(KEYS):
        start = time.perf_counter()
        screen.press(b"c")
        screen.shows(f"[{PICTURES[number % len(PICTURES)]}]", wait_s=0.001)
        slowest = max(slowest, time.perf_counter() - start)
    start = time.perf_counter()
    screen.press(b"x")
    screen.shows("cancelled", wait_s=0.001)
    cancelled = time.perf_counter() - start
    screen.close()
    return slowest, cancelled, layouts


def main() -> None:
    """Print every figure, of processes in a real terminal."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    with tempfile.TemporaryDirectory() as home:
        starts = [started(home) for _ in range(STARTS)]
        show("tui, first paint, processor", min(one for one, _ in starts), "s", 0.4, "at most")
        show("tui, filled, with its worker", min(one for _, one in starts), "s", 2.0, "at most")
        slowest, cancelled, legal = under_load(home)
        show("tui, legal layouts of the search below", legal, "layouts", 10_000_000, "at least")
        show("tui, slowest key during the search, wall", slowest, "s", 0.05, "at most")
        show("tui, cancel of the search, wall", cancelled, "s", 0.3, "at most")


if __name__ == "__main__":
    main()

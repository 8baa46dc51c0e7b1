"""What a reviewer would try: what commands print and how they end; in a real terminal every view
at every size, keys during a search, what is taken away, and its numbers beside the command's."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.bench_tui import SEARCH
from tests.fuzz.terminal import Terminal
from tests.tui.screen import ScreenTerminal
from trnbench.cli.main import main
from trnbench.tui.settings import state_path

SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
SMALL = """
[compare]
model = "llama2-7b"
tokens = "10B"
nodes = "4"
instances = "trn1.32xlarge, p5.48xlarge"
[plan]
model = "llama2-7b"
tokens = "10B"
instances = "trn1.32xlarge"
[layouts]
model = "llama2-7b"
instance = "trn1.32xlarge"
nodes = "2"
global_batch = "64"
sequence = "4096"
"""
"""A session before this one left jobs that are planned at once."""
VIEWS = {
    "1": ("Compare", "trn1.32xlarge", "price date"),
    "1\t": ("Plan", "trn1.32xlarge", "price date"),
    "1\t\t": ("What if", "price of", "price date"),
    "2": ("Layouts", "rank  step", "layout by hand"),
    "2\t": ("Memory", "slot", "layout by hand"),
    "2\t\t": ("Schedule", "stage 0", "layout by hand"),
    "3": ("Matrix", "rate (TFLOP/s)", "sparsity"),
    "3\t": ("Collective", "trn1.32xlarge:1 ", "algorithms"),
    "4": ("Evidence", "error (%)", ""),
    "4\t": ("Runs", "when", ""),
}
"""Keys from the first views of all places -> name of a view, what it and only its form show."""
TABLES = ("Compare", "Plan", "Layouts", "Matrix", "Collective", "Evidence")
"""Views whose table is filtered, and that have rows to export at once."""
PLAN = ("plan", "llama2-7b", "--tokens", "10B", "--on", "trn1.32xlarge", "--max-nodes", "8")


def spoken(*arguments, code=0):
    """Return what a command writes to stdout; it writes nothing to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "trnbench", *arguments], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, b"")
    return done.stdout


@pytest.mark.slow
def test_a_plan_is_json_without_a_word_beside_it_and_the_same_in_a_file(home):
    told = spoken(*PLAN, "--format", "json", "--quiet")
    answer = json.loads(told)
    assert (answer["schema"], bool(answer["rows"])) == ("trnbench.plan/1", True)
    assert spoken(*PLAN, "-o", home / "plan.json", "--quiet") == b""
    assert (home / "plan.json").read_bytes() == told


@pytest.mark.slow
def test_exit_codes_tell_a_wrong_word_from_a_no_and_from_an_interrupt(home, capfd):
    for arguments, code, said in (
        (("matrx", "4096x4096x4096"), 2, "did you mean 'matrix'?"),
        (("matrix", "4096x4096x4096", "--on", "trainum2"), 2, "did you mean 'trainium2'?"),
        ((*PLAN, "--deadline", "1h"), 1, "No: the deadline of 1 h cannot be met"),
    ):
        assert main(list(arguments)) == code
        streams = capfd.readouterr()
        assert said in (streams.err if code == 2 else streams.out)
    steps = ("--steps", "100000", "--global-batch", "8", "--sequence", "32", "--format", "csv")
    train = ("train", "tiny-gpt", "--on", "trn1.2xlarge", "--engine", "functional", *steps)
    command = [sys.executable, "-m", "trnbench", *train]
    terminal = Terminal(command, {**os.environ, "HOME": str(home)}, cwd=home)
    try:
        terminal.until(b"/100000 ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert re.search(rb"\r\n1,\d+\.\d+,256,", terminal.written)
        assert terminal.written.endswith(b"trnbench: interrupted\r\n")
    finally:
        terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [PLAN, ("matrix", "--suite", "square", "--on", "trn2", "--plot"), ("spec", "show", "trn2")],
)
def test_what_goes_to_a_pipe_is_plain_also_without_colour(arguments, monkeypatch):
    plain = spoken(*arguments, "--quiet")
    assert plain.isascii()
    assert b"\x1b" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert spoken(*arguments, "--quiet") == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("--version",), ("numpy", "rich")),
        (("matrix", "4096x4096x4096", "--on", "trn2"), ()),
        (("collective", "all-reduce", "--on", "trn2.48xlarge"), ()),
        (("train", "llama2-7b", "--on", "trn1.32xlarge:2"), ()),
        (PLAN, ()),
    ],
)
def test_commands_load_nothing_that_only_screens_fits_and_pictures_need(arguments, absent):
    names = ("textual", "scipy", "matplotlib", *absent)
    code = (
        "import sys; from trnbench.cli.main import main; "
        f"main({list(arguments)!r}); print([n for n in {names!r} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"


@pytest.fixture
def terminal(home):
    opened = []

    def make(*arguments, **size):
        path = home / "trnbench" / state_path().name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SMALL)
        opened.append(ScreenTerminal(*arguments, home=home, **size))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def written(screen, folder, pattern):
    """Return the files of a pattern, once there are any."""
    tries = 0
    while not (found := list(folder.glob(pattern))):
        tries += 1
        assert tries < 300, f"no {pattern} was written"
        assert screen.read(0.1)
    return found


def toured(screen, home, key, size):
    """Open a view at a size, its form, its filter; leave them; export what it has."""
    columns, _ = size
    name, sign, of_form = VIEWS[key]
    screen.resize(*size)
    screen.press(key.encode())
    screen.shows(f"[{name}]")
    screen.shows(sign)
    if of_form:
        # Keys of the table are offered again once a form that stays in sight has been left.
        of_table = "? Help" if name == "Schedule" else "s Sort"
        screen.press(b"f")
        screen.shows(of_form, absent=of_table)
        screen.press(b"\x1b")
        screen.shows(sign, absent=of_form if columns < 110 else "")
        screen.shows(of_table)
    if name in TABLES:
        screen.press(b"/zzzz")
        screen.shows("0 of ")
        screen.press(b"\x7f\x7f\x7f\x7f")
        screen.shows(sign, absent="0 of ")
        screen.press(b"\x1b")
        screen.shows(f"[{name}]")
        screen.press(b"e")
        for path in written(screen, home, "*.csv"):
            path.unlink()
    screen.press(b"?")
    screen.shows("keys (i: ids, Esc closes)")
    screen.press(b"\x1b")
    screen.shows(sign, absent="keys (i: ids")
    for _ in key[1:]:
        screen.press(b"\x1b[Z")
    screen.shows(f"[{next(one for one, *_ in VIEWS.values() if VIEWS[key[0]][0] == one)}]")


@pytest.mark.slow
def test_some_views_are_opened_filled_in_filtered_exported_and_left(terminal, home):
    chosen = random.Random(19)
    screen = terminal("matrix", columns=80, lines=24)
    quick = [key for key in VIEWS if VIEWS[key][0] in ("Compare", "Matrix", "Collective", "Runs")]
    for key, size in zip(chosen.sample(quick, 2), chosen.sample(SIZES, 2), strict=True):
        toured(screen, home, key, size)
    assert screen.left_by(b"\x03\x03") == 0
    assert screen.restored


@pytest.mark.soak
def test_every_view_is_opened_filled_in_filtered_exported_and_left_at_every_size(terminal, home):
    screen = terminal("matrix", columns=60, lines=20)
    for size in SIZES:
        for key in VIEWS:
            toured(screen, home, key, size)
    assert screen.left_by(b"\x03\x03") == 0
    assert screen.restored


@pytest.mark.slow
def test_no_letter_is_lost_during_a_search_of_ten_million_layouts_and_it_is_cancelled(
    home, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    screen = ScreenTerminal(
        home=home, columns=120, lines=40, command=[sys.executable, "-c", SEARCH]
    )
    try:
        shown = screen.shows("layouts, ")
        (total,) = re.findall(r"layouts: [\d,]+/([\d,]+) layouts,", shown)
        assert int(total.replace(",", "")) > 10_000_000
        letters = "a filter typed while layouts are searched, and taken back"
        screen.press(f"/{letters}".encode())
        assert "layouts, " in screen.shows(letters)
        screen.press(b"\x7f" * 17)
        assert "layouts, " in screen.shows(letters[:-17], absent="taken")
        screen.press(b"\x1bx")
        screen.shows("layouts: cancelled")
        screen.press(b"?")
        screen.shows("keys (i: ids, Esc closes)")
    finally:
        screen.close()


@pytest.mark.slow
def test_what_is_taken_away_is_what_the_command_prints(terminal, home, monkeypatch):
    screen = terminal("compare", columns=200, lines=60)
    screen.shows("2 rows")
    screen.shows("Cheapest most often: ")
    screen.press(b"ey")
    screen.shows("command of this view")
    (rows,) = home.glob("trnbench-compare-*.csv")
    line = (home / "trnbench" / "copied.txt").read_text().strip()
    command = shlex.split(line)[1:]
    assert spoken(*command, "--format", "csv", "--quiet") == rows.read_bytes()
    screen.press(b"\x10")
    screen.shows("view: Compare")
    screen.press(b"svg")
    # Both begin with s and have a v, so until it is gone Enter would take the wrong one.
    screen.shows("export: SVG", absent="scenario: save")
    screen.press(b"\r")
    (picture,) = written(screen, home, "trnbench-compare-2*.svg")
    assert picture.read_text().startswith("<svg")
    # One number reads the same in both.
    monkeypatch.setenv("COLUMNS", "200")
    told = spoken(*command, "--quiet").decode()
    shown = screen.shows("2 rows", absent="─ commands ─")
    for instance in ("trn1.32xlarge", "p5.48xlarge"):
        (of_command,) = re.findall(rf"^[* ] +{instance} +\d.*", told, re.MULTILINE)
        (of_screen,) = re.findall(rf"^.*[>* ]{instance} +\d.*", shown, re.MULTILINE)
        days, cost = re.split(r" {2,}", of_command.strip("* "))[2:4]
        assert f"{days} " in of_screen
        assert f"{cost} " in of_screen
    assert screen.left_by(b"q") == 0
    assert screen.restored

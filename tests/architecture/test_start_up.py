"""What a light command may import: start-up time is mostly imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "textual", "ml_dtypes", "rich")
PROBE = """
import sys
from trnbench.cli.main import main
code = main({arguments!r})
print("|".join(name for name in {heavy!r} if name in sys.modules))
sys.exit(code)
"""


def imported(arguments, heavy):
    probe = PROBE.format(arguments=arguments, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["spec", "--help"], []])
def test_version_and_help_import_nothing_heavy(arguments):
    unasked = (
        "trnbench.facts.catalog.structure",
        "trnbench.verbs.quotes",
        "trnbench.cli.train_command",
    )
    assert imported(arguments, (*HEAVY, *unasked)) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["spec", "list"],
        ["spec", "show", "trn2.48xlarge"],
        ["workload", "list"],
        ["info"],
        ["runs", "list"],
    ],
)
def test_commands_about_files_import_nothing_heavy(arguments):
    assert imported(arguments, HEAVY) == ""


@pytest.mark.slow
def test_a_step_whose_groups_are_known_imports_nothing_that_places_buys_or_launches():
    step = ["train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8", "--pp", "1", "-q"]
    others = (
        *("trnbench.machine.placement", "trnbench.machine.message_plan.select"),
        *("trnbench.money.market", "trnbench.launch.catalogue", "trnbench.verbs.compare.text"),
    )
    imported(step, others)  # which keeps the closed forms of the groups
    assert imported(step, others) == ""


PAINTED = """
import asyncio, sys
from trnbench.facts.catalog.search import open_catalog
from trnbench.tui.app import TrnbenchApp
from trnbench.tui.views.compare import CompareView

CompareView.begin = lambda self: print("|".join(n for n in {heavy!r} if n in sys.modules))

async def opened():
    app = TrnbenchApp(open_catalog(), view="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()

asyncio.run(opened())
"""


@pytest.mark.slow
def test_the_terminal_ui_paints_before_anything_heavy_is_imported(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    probe = PAINTED.format(heavy=("numpy", "scipy", "ml_dtypes", "textual_plot"))
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == ""

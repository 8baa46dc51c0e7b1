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
    assert imported(arguments, (*HEAVY, "attrs", "cattrs", "trnbench.app")) == ""


@pytest.mark.parametrize(
    "arguments",
    [["spec", "list"], ["spec", "show", "trn2.48xlarge"], ["workload", "list"], ["info"]],
)
def test_commands_about_files_import_nothing_heavy(arguments):
    assert imported(arguments, HEAVY) == ""

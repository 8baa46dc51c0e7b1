"""An option stands once: one field of a question reaches every place that asks it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.parsing import duration, whole
from trnbench.verbs.asking.command_lines import command_question
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.fleet.question import FleetQuestion

ROOT = Path(__file__).parents[2]
BEFORE = '    suite: str | None = option("A matrix suite."'
FIELD = '    made_up: int = option("An option of a test.", default=4, metavar="N")\n'
ASKED = """
import inspect, json
from trnbench.verbs.matrix.run import matrix
from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.asking.command_lines import command_question

asked = matrix.request("8x8x8", on="trainium2", made_up=7)
print(json.dumps({
    "argument": str(inspect.signature(matrix).parameters["made_up"].default),
    "documented": "made_up: An option of a test." in matrix.__doc__,
    "inputs": asked.inputs()["made_up"],
    "again": command_question("matrix", asked).line,
}))
"""


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_made_up_option_is_found_everywhere(tmp_path):
    shutil.copytree(
        ROOT / "trnbench", tmp_path / "trnbench", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "trnbench" / "_data").mkdir()
    for data in ("specs", "workloads"):
        (tmp_path / "trnbench" / "_data" / data).symlink_to(ROOT / data)
    path = tmp_path / "trnbench" / "verbs" / "matrix" / "question.py"
    text = path.read_text()
    assert text.count(BEFORE) == 1
    path.write_text(text.replace(BEFORE, FIELD + BEFORE))
    shown = run(tmp_path, "-m", "trnbench", "matrix", "--help-all")
    assert "--made-up N" in shown
    assert "An option of a test.  [default: 4]" in shown
    asked = ["matrix", "8x8x8", "--on", "trainium2", "--made-up", "7", "--no-keep", "--json"]
    assert json.loads(run(tmp_path, "-m", "trnbench", *asked))["inputs"]["made_up"] == 7
    assert json.loads(run(tmp_path, "-c", ASKED)) == {
        "argument": "4",
        "documented": True,
        "inputs": 7,
        "again": "trnbench matrix 8x8x8 --made-up 7 --on trainium2 --dtype bf16",
    }


class Fuel(Question):
    """Options of a group."""

    litres: int | None = option("How much.", default=None, read=whole)


class Trip(Question):
    """Options of a made-up verb."""

    places: tuple[str, ...] = option("Where to.", default=(), argument=True)
    longest_s: float | None = option("Longest stage.", default=None, name="longest", read=duration)
    by: str = option("How.", default="train", choices=("train", "boat"))
    sleeper: bool = option("By night.", default=False)
    stops: tuple[str, ...] = option("Stop here.", default=(), several="repeated", name="stop")
    fuel: Fuel = group(Fuel)
    found: int = 3

    def __post_init__(self):
        if self.sleeper and self.by == "boat":
            raise InputError("no boat sleeps")


def test_texts_are_read_and_values_taken():
    said = {"places": "Rome,Oslo", "longest": "2h", "stop": ["Bern"], "litres": "4k"}
    asked = Trip.read(said)
    assert asked == Trip(
        places=("Rome", "Oslo"), longest_s=7200.0, stops=("Bern",), fuel=Fuel(litres=4000)
    )
    assert Trip.read({"places": ["Rome", "Oslo"], "longest": 7200.0, "by": None}) == Trip(
        places=("Rome", "Oslo"), longest_s=7200.0
    )


class Ticket(Question):
    """An option of a made-up verb that has to be given."""

    to: str = option("Where to.", default="", argument=True, required=True)


def test_a_required_option_is_given_or_refused():
    assert Ticket.read({"to": "Oslo"}) == Ticket(to="Oslo")
    with pytest.raises(InputError, match="give to: Where to"):
        Ticket.read({"to": None})
    assert command_question("fleet", FleetQuestion(file="two-jobs", limit_costs=False)).line == (
        "trnbench fleet two-jobs --no-limit-costs"
    )


def test_what_is_said_asks_the_same_again():
    asked = Trip(
        places=("Rome", "Oslo"),
        longest_s=86400.0,
        sleeper=True,
        stops=("Bern",),
        fuel=Fuel(litres=5),
    )
    assert asked.said() == {
        **{"places": ["Rome", "Oslo"], "longest": "1d", "sleeper": True, "stop": ["Bern"]},
        "litres": "5",
    }
    assert Trip.read(asked.said()) == asked
    assert Trip().said() == {}


def test_inputs_are_the_fields():
    assert Trip(by="boat").inputs() == {
        **{"places": (), "longest_s": None, "by": "boat", "sleeper": False, "stops": ()},
        **{"litres": None, "found": 3},
    }


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"lonest": "2h"}, UnknownNameError, "did you mean 'longest'"),
        ({"by": "bot"}, UnknownNameError, "did you mean 'boat'"),
        ({"longest": "2 apples"}, InputError, "--longest"),
        ({"by": "boat", "sleeper": True}, InputError, "no boat sleeps"),
    ],
)
def test_faults_of_options_are_told(given, kind, told):
    with pytest.raises(kind, match=told):
        Trip.read(given)


def test_a_question_is_frozen_and_knows_its_fields():
    asked = Trip()
    with pytest.raises(AttributeError):
        setattr(asked, "by", "boat")  # noqa: B010 - mypy refuses the plain form too
    with pytest.raises(TypeError):
        Trip(bye="boat")  # type: ignore[call-arg]
    assert asked.but(by="boat").by == "boat"
    assert asked.by == "train"
    assert hash(asked) == hash(Trip())
    with pytest.raises(TypeError, match="every question has that already"):
        type("Bad", (Question,), {"__annotations__": {"said": "str"}, "said": ""})

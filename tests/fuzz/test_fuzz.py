"""Whatever is read or typed is answered or refused in a line, and a kill loses nothing.

A seed makes one input; `python -m tests.fuzz.run` tries many, `make fuzz` new ones for a while.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.fuzz import foreign, judge, lines
from tests.fuzz.judge import Ended, ended
from tests.fuzz.keys import CORPUS, pressed, read_steps, steps_of, written_steps
from tests.fuzz.kills import killed, losses_after_kills
from tests.fuzz.run import HOMES, tried

INPUTS, LINES, KILLS = range(20), range(30), range(2)
KEYS, MORE_KEYS = range(2), range(2, 42)
"""Seeds of keys for some 10 s, and for two minutes."""


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for name in HOMES:
        monkeypatch.setenv(f"XDG_{name}_HOME", "/nonexistent")
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", "")


@pytest.mark.slow
def test_what_was_found_before_stays_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "MOST_BYTES", float("inf"))  # of the other tests of this process
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ".home"))
    monkeypatch.chdir(tmp_path)
    for code, line in foreign.kept(tmp_path):
        found = ended(line)
        assert (found.wrong, found.code) == (None, code), line


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), [("inputs", INPUTS), ("lines", LINES)])
def test_a_sample_is_answered_or_refused(kind, seeds, monkeypatch):
    monkeypatch.setattr(judge, "MOST_BYTES", float("inf"))  # of the other tests of this process
    for seed in seeds:
        for line, found in tried(kind, seed):
            assert found.wrong is None, f"{kind} {seed}: {found.wrong}\n{line}"


@pytest.mark.slow
def test_a_sample_of_kills_leaves_old_or_new_files(tmp_path):
    for seed in KILLS:
        assert killed(seed, tmp_path) is None


@pytest.mark.soak
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.txt")), ids=lambda path: path.stem)
def test_keys_that_once_went_wrong_leave_the_terminal_as_it_was(path, tmp_path):
    assert pressed(read_steps(path), tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", KEYS)
def test_keys_pressed_at_random_leave_the_terminal_as_it_was(seed, tmp_path):
    assert pressed(steps_of(seed), tmp_path) is None


@pytest.mark.soak
@pytest.mark.parametrize("seed", MORE_KEYS)
def test_more_keys_pressed_at_random_leave_the_terminal_as_it_was(seed, tmp_path):
    assert pressed(steps_of(seed), tmp_path) is None


def test_keys_are_written_to_a_file_and_read_back(tmp_path):
    steps = [*steps_of(3), "\x1b[<0;10;10M", "\u2028", [10, 3]]
    (tmp_path / "keys.txt").write_text(written_steps(steps), "utf-8")
    assert read_steps(tmp_path / "keys.txt") == steps


@pytest.mark.soak
def test_a_run_that_was_killed_again_and_again_has_the_same_losses(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, _ = losses_after_kills(0, tmp_path / "whole", 0)
    again, kills = losses_after_kills(1, tmp_path / "killed", 12)
    assert kills
    assert again == whole


def test_every_verb_is_tried():
    verbs = lines.verbs()
    assert ("train",) in verbs
    assert ("spec", "new") in verbs
    assert len(verbs) >= 20


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["--version"], 0, None),
        (["spec", "show", "nothing"], 2, None),
    ],
)
def test_the_judge_lets_through_what_is_right(line, code, said):
    found = ended(line)
    assert (found.code, found.wrong) == (code, said)


@pytest.mark.parametrize(
    ("code", "written", "said", "wrong"),
    [
        (70, "", "trnbench: internal error: x\n", "exit code 70"),
        (0, "", "x.py:1: RuntimeWarning: y\n", "trouble"),
        (0, "a\x1b[31mb", "", "raw control characters"),
        (2, "", "", "refused without a word"),
        (0, '{\n  "schema": "x", "rows": [{"mfu": NaN}]}', "", "no JSON"),
        (0, '{\n  "schema": "x", "rows": [{"mfu": 1.5}]}', "", "mfu 1.5"),
    ],
)
def test_the_judge_finds_what_is_wrong(code, written, said, wrong):
    assert (judge.wrong_with([], code, written, said) or "").startswith(wrong)


def test_the_judge_stops_what_takes_too_long(monkeypatch):
    def endless(_: object) -> int:
        while True:
            pass

    monkeypatch.setattr(judge, "LONGEST_S", 0.05)
    monkeypatch.setattr(judge, "main", endless)
    found: Ended = ended(["x"])
    assert found.wrong is not None
    assert "processor time" in found.wrong
    assert signal.getsignal(signal.SIGPROF) in (signal.SIG_DFL, signal.SIG_IGN)
    assert os.getcwd()

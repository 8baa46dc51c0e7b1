"""`trnbench tui` without a terminal: a polite refusal, and nothing of textual is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trnbench.cli.main import main
from trnbench.store.place import KEEP_VARIABLE, keeps


def test_without_a_terminal_it_refuses(capsys):
    assert main(["tui"]) == 3
    err = capsys.readouterr().err
    assert "needs a terminal" in err
    assert "trnbench compare" in err


def test_a_refusal_loads_no_textual():
    probe = (
        "import sys; from trnbench.cli.main import main; main(['tui']); "
        "print('textual' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_is_refused(term, monkeypatch, capsys):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["tui"]) == 3
    assert "TERM is dumb" in capsys.readouterr().err


def test_an_unknown_view_proposes_the_nearest(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["tui", "layuots"]) == 2
    assert "did you mean 'layouts'?" in capsys.readouterr().err


def test_answers_may_be_left_out_of_the_kept_ones(monkeypatch, capsys):
    monkeypatch.setenv(KEEP_VARIABLE, "1")
    assert main(["tui"]) == 3
    assert keeps()
    assert main(["tui", "--no-keep"]) == 3
    assert not keeps()
    capsys.readouterr()

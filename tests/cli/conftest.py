"""Running the command line in process, with its streams captured."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from trnbench.cli.main import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TRNBENCH_SPEC_PATH", raising=False)
    # Tests run side by side already, and what one search has priced the next need not price again.
    # Goldens, captures and the tests of `search_all` ask on all processors.
    monkeypatch.setattr("trnbench.cli.watching.processors", lambda: 1)

    def run(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        return Outcome(code, captured.out.decode(), captured.err.decode())

    return run

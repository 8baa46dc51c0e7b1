"""What the README shows of runs with real numbers is what they print, closely.

Sums depend on the processor in their last digits, and rounding carries that into losses; so these
captures are held to the words and about to the numbers. A line of dots stands for lines left out.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.golden.documents import text_of_all
from trnbench.cli.main import main
from trnbench.cli.output import WIDTH

CAPTURE = re.compile(r"```text\n\$ (?P<command>[^\n]+)\n(?P<shown>.*?)```", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*")
CAPTURES = [(m["command"], m["shown"]) for m in CAPTURE.finditer(text_of_all())]
NEAR = 3e-3


def _alike(shown: str, printed: str) -> bool:
    """Whether two lines have the same words, and about the same numbers."""
    words = [" ".join(NUMBER.sub("#", line).replace("-", "").split()) for line in (shown, printed)]
    if words[0] != words[1]:
        return False
    numbers = [
        [float(text.replace(",", "")) for text in NUMBER.findall(line)] for line in (shown, printed)
    ]
    return numbers[0] == pytest.approx(numbers[1], rel=NEAR, abs=NEAR)


@pytest.mark.soak
@pytest.mark.parametrize(("command", "shown"), CAPTURES, ids=[one for one, _ in CAPTURES])
def test_every_line_shown_is_printed_in_this_order(command, shown, capfdbinary, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert main([*shlex.split(command)[1:], "--quiet"]) == 0
    printed = capfdbinary.readouterr().out.decode().splitlines()
    at = 0
    for line in shown.splitlines():
        if line == "...":
            continue
        found = next((i for i in range(at, len(printed)) if _alike(line, printed[i])), None)
        assert found is not None, f"{line!r} is not among what {command!r} prints"
        at = found + 1


def test_both_runs_with_real_numbers_are_shown():
    verbs = [shlex.split(command)[1] for command, _ in CAPTURES]
    assert verbs == ["train", "numerics"]


def test_other_words_and_other_numbers_are_told_apart():
    assert _alike("bf16   5.3934  0.13", "bf16  5.3935   0.13")
    assert not _alike("bf16   5.3934  0.13", "bf16  5.4134   0.13")
    assert not _alike("send  10 MiB  agrees", "send  10 MiB  DIFFERS")

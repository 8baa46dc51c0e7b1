"""From numbers to a decision, held with made-up calibrations that no new fit changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.golden.test_golden import MADE_UP, ROOT
from trnbench.cli.main import main

HERE = Path(__file__).parent / "decisions"
DAY = ("--price-date", "2026-11-21", *MADE_UP)
LARGE = ("llama3.1-70b", "--tokens", "2T", *DAY)
SMALL = ("llama3.1-8b", "--sequence", "2048", "--global-batch", "64", *DAY)
SMALL_TWO = (*SMALL, "--on", "trn2.48xlarge,p5.48xlarge")
ON_TRN1 = (*LARGE, "--on", "trn1.32xlarge", "--nodes", "64")
TWO = ("--on", "trn2.48xlarge,p5.48xlarge", "--nodes", "64")
CASES = {
    "late_is_bought_as_cheap.txt": (1, ("compare", *ON_TRN1, "--deadline", "60d")),
    "without_a_deadline.txt": (0, ("compare", *ON_TRN1)),
    "plan_comes_nearest.txt": (
        1,
        ("plan", *LARGE, "--on", "trn1.32xlarge", "--max-nodes", "64", "--deadline", "60d"),
    ),
    "none_in_time.txt": (
        1,
        ("compare", *LARGE, "--on", "trn1.32xlarge,p5.48xlarge", "--deadline", "2h"),
    ),
    "none_with_confidence.txt": (
        1,
        ("compare", *LARGE, *TWO, "--deadline", "41d", "--confidence", "99%"),
    ),
    "by_the_estimate.txt": (0, ("compare", *LARGE, *TWO)),
    "no_price.txt": (1, ("compare", *LARGE, "--on", "trn2-ultraserver", "--nodes", "16")),
    "a_day_for_minutes.txt": (0, ("compare", *SMALL_TWO, "--samples", "10K", "--nodes", "1")),
    "hours.txt": (0, ("plan", *SMALL_TWO, "--samples", "50K")),
    "open_batch.txt": (0, ("compare", *LARGE, "--on", "trn2.48xlarge", "--nodes", "48")),
    "given_batch.txt": (
        0,
        (
            *("compare", *LARGE, "--on", "trn2.48xlarge", "--nodes", "36"),
            *("--global-batch", "1024", "--purchase", "capacity-block"),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_decision_reads_as_before(name, capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    code, words = CASES[name]
    assert main(words) == code
    out = capfdbinary.readouterr().out.replace(str(ROOT).encode(), b"<root>")
    held = HERE / name
    if os.environ.get("TRNBENCH_UPDATE_GOLDEN"):
        HERE.mkdir(exist_ok=True)
        held.write_bytes(out)
    assert out == held.read_bytes()


@pytest.mark.slow
def test_a_report_reads_as_before(capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "report.md"
    asked = ("compare", *LARGE, *TWO, "--deadline", "60d", "-q", "--author", "Ada")
    assert main([*asked, "--report", str(path)]) == 0
    text = path.read_text().replace(str(ROOT), "<root>").replace(str(tmp_path), "<folder>")
    text = re.sub(r"Asked on \S+", "Asked on <day>", text)
    held = HERE / "report.md"
    if os.environ.get("TRNBENCH_UPDATE_GOLDEN"):
        held.write_text(text)
    assert text == held.read_text()

"""The bytes people and scripts get, held in files; `make snapshots` rewrites them.

How predictions look is held with the made-up calibrations of `specs/`, which no new fit changes;
the numbers of the shipped calibrations are those of the two JSON files of `SHIPPED`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trnbench import __version__
from trnbench.cli.main import main

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DIFF = ("spec", "diff", "trn1.32xlarge", "trn2.48xlarge")
MADE_UP = ("--spec-dir", str(HERE / "specs"))
STEP = ("train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8", "--global-batch", "1024")
TRAIN = (*STEP, *MADE_UP)
CLAIMS = (
    *("claims", "trn1-bf16", "trn1-memory", "trn1-memory-bandwidth", "trn1-network-1600"),
    *("trn1-customers", "trn2-fp8", "trn2-over-trn1", "trn3-compute", "gpu-price-cut"),
)

RUN = (
    *("llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,trn2.48xlarge,p5.48xlarge"),
    *("--max-nodes", "16", "--price-date", "2026-11-21"),
)

SHIPPED = {
    "compare.json": ("compare", *RUN, "--deadline", "60d", "--json"),
    "train.json": (*STEP, "--json"),
}
CASES = {
    **SHIPPED,
    "compare.txt": (
        *("compare", *RUN, *MADE_UP, "--deadline", "60d", "--baseline", "p5.48xlarge"),
    ),
    "compare_help.txt": ("compare", "--help"),
    "compare_scaling.txt": ("compare", *RUN, *MADE_UP, "--scaling", "strong", "--plot"),
    "plan.txt": ("plan", *RUN, *MADE_UP, "--deadline", "30d", "--plot"),
    "plan_details.txt": ("plan", *RUN, *MADE_UP, "--deadline", "30d", "--details"),
    "compare_details.txt": ("compare", *RUN, *MADE_UP, "--deadline", "60d", "--details"),
    "plan_help.txt": ("plan", "--help"),
    "help.txt": ("--help",),
    "spec_help.txt": ("spec", "--help"),
    "spec_diff.txt": DIFF,
    "spec_diff.csv": (*DIFF, "--format", "csv"),
    "spec_diff.json": (*DIFF, "--json"),
    "spec_diff.jsonl": (*DIFF, "--format", "jsonl"),
    "spec_diff.md": (*DIFF, "--format", "markdown"),
    "spec_show_trn2u.txt": ("spec", "show", "trn2u.48xlarge"),
    "spec_show_p4d.txt": ("spec", "show", "p4d.24xlarge"),
    "train_help.txt": ("train", "--help"),
    "train.txt": TRAIN,
    "train.md": (*TRAIN, "--format", "markdown"),
    "train_both.txt": (*TRAIN, "--pp", "4", "--engine", "both", "--plot"),
    "train_suite.txt": ("train", "--suite", "nxd-examples", *MADE_UP),
    "workload_show_mixtral.txt": ("workload", "show", "mixtral-8x7b"),
    "claims.txt": CLAIMS,
    "claims.csv": (*CLAIMS, "--format", "csv"),
    "claims.json": (*CLAIMS, "--json"),
    "claims_help.txt": ("claims", "--help"),
    "validate_kernels.txt": ("validate", "--evidence", str(HERE / "validate_kernels.csv")),
    "validate_kernels.json": (
        "validate",
        "--evidence",
        str(HERE / "validate_kernels.csv"),
        "--json",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_output_is_as_before(name, capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    assert main(CASES[name]) == 0
    out = capfdbinary.readouterr().out.decode()
    out = out.replace(str(ROOT), "<root>").replace(f'"{__version__}"', '"<version>"')
    path = HERE / name
    if os.environ.get("TRNBENCH_UPDATE_GOLDEN"):
        path.write_text(out)
    assert _NUMBER.split(out) == _NUMBER.split(path.read_text())
    assert _numbers(out) == pytest.approx(_numbers(path.read_text()), rel=1e-9, abs=0.0)


# Processors differ in the last digits of exponentials and logarithms; shorter numbers are text.
_NUMBER = re.compile(r"-?\d+\.\d{9,}(?:e[+-]\d+)?")


def _numbers(text: str) -> list[float]:
    return [*map(float, _NUMBER.findall(text))]

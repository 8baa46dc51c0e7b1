"""A row of a fp8 LoRA job that does not say how its frozen weights are kept."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trnbench.verbs.validate.run import validate

PUBLISHED = Path(__file__).parents[3] / "workloads" / "published" / "mlperf_lora.csv"


def compared(tmp_path: Path, **cells: str):
    """Return the first published row, with other cells, beside its prediction."""
    with PUBLISHED.open(newline="") as lines:
        first = next(csv.DictReader(lines))
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, [*first, "frozen_format"])
        writer.writeheader()
        writer.writerow({**first, **cells})
    (section,) = validate(evidence=path)
    return section.rows[0]


def test_it_is_kept_as_the_stack_does(tmp_path: Path):
    found = compared(tmp_path)
    assert "frozen format fp8: habit of nemo-hopper" in found.assumed
    assert found.fit_probability == pytest.approx(1, abs=0.01)
    said = compared(tmp_path, frozen_format="none")
    assert not [what for what in said.assumed if what.startswith("frozen")]
    assert said.memory_predicted_bytes > found.memory_predicted_bytes + 30e9
    assert said.fit_probability < 0.5


def test_products_of_16_bits_do_not_narrow_weights(tmp_path: Path):
    found = compared(tmp_path, precision="bf16")
    assert not [what for what in found.assumed if what.startswith("frozen")]

"""The systolic model against a published simulator, under that simulator's own conventions.

Every row must be met exactly, in cycles and in all three utilisations. The rows come from
`tests/oracles`, or from the folder that the environment variable TRNBENCH_ORACLES names.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from trnbench.engines.analytic.matrix.systolic import SCALE_SIM, Dataflow, array_time
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import replace
from trnbench.program.matrix import matrix_product

# The file prints percentages to 9 and 6 decimals.
FLOWS: dict[str, Dataflow] = {"ws": "ws", "is": "is", "os": "os"}
OVERALL_DIGITS = 6e-10
EFFICIENCY_DIGITS = 6e-7


def rows() -> list[dict[str, str]]:
    folder = Path(os.environ.get("TRNBENCH_ORACLES", Path(__file__).parents[1] / "oracles"))
    with (folder / "gemm.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_is_met_exactly():
    found = rows()
    assert found
    wrong = [row["name"] + " " + row["dataflow"] for row in found if not met(row)]
    assert wrong == []


def met(row: dict[str, str]) -> bool:
    conventions = replace(
        SCALE_SIM,
        dataflow=FLOWS[row["dataflow"]],
        rows=int(row["array_rows"]),
        columns=int(row["array_cols"]),
    )
    time = array_time(matrix_product(int(row["m"]), int(row["k"]), int(row["n"])), conventions)
    return (
        int(time.cycles) == int(row["cycles_reported"])
        and int(time.folds) == int(row["folds"])
        and int(time.cycles_per_fold) == int(row["cycles_per_fold"])
        and near(time.overall_utilization, row["overall_util_pct"], OVERALL_DIGITS)
        and near(time.mapping_efficiency, row["mapping_eff_pct"], EFFICIENCY_DIGITS)
        and near(time.compute_utilization, row["compute_util_pct"], EFFICIENCY_DIGITS)
    )


def near(found: FloatArray, percent: str, digits: float) -> bool:
    return abs(float(found) * 100 - float(percent)) <= digits


def test_overlap_only_removes_loading_and_skew():
    # 256^3 on 128 x 128: 4 folds of 256 + 254 + 128 cycles, counted from 0; with overlap 4 x 256.
    product = matrix_product(256, 256, 256)
    assert int(array_time(product, SCALE_SIM).cycles) == 4 * 638 - 1
    overlapped = replace(SCALE_SIM, overlap=True, count_from_zero=False)
    time = array_time(product, overlapped)
    assert int(time.cycles) == 1024
    assert float(time.overall_utilization) == 1.0

"""A machine made of measured rows: what it rests on, and what it predicts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trnbench.errors import InputError
from trnbench.evidence.measure.machine import machine_files
from trnbench.evidence.measure.machine_fits import _line, _lines
from trnbench.evidence.rows import read_evidence
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.verbs.measure.answer import MeasuredRow, StepsVerdict
from trnbench.verbs.measure.run import evidence_of, verdict_of

ROWS = Path(__file__).parents[2] / "cli" / "rows" / "measured_host.csv"


def verdict(file) -> StepsVerdict:
    found = verdict_of(open_catalog(), file)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def file():
    return read_evidence(ROWS)


@pytest.mark.slow
def test_training_steps_never_enter_the_calibration_that_predicts_them(file):
    found = verdict(file)
    steps = {row.id for row in file.rows if row.text("kind") == "train"}
    assert {step.id for step in found.wall} == steps
    assert steps
    assert not steps & set(found.rests_on)
    assert set(found.rests_on) == {row.id for row in file.rows} - steps
    slower = tuple(
        replace(row, cells={**row.cells, "step_time_s": "9.0", "processor_s": "9.0"})
        if row.id in steps
        else row
        for row in file.rows
    )
    other = verdict(replace(file, rows=slower))
    assert [one.predicted_s for one in other.wall] == [one.predicted_s for one in found.wall]
    assert [one.measured_s for one in other.wall] == [9.0] * len(steps)


def test_the_verdict_is_one_line_with_every_error(file):
    found = verdict(file)
    assert found.says.startswith("Verdict: 3 training steps predicted from the other rows")
    errors, _, largest = found.says.partition("; largest ")
    assert errors.count("%") == 5
    assert largest.count("%") == 1
    assert "\n" not in found.says


@pytest.mark.slow
def test_twice_as_slow_products_make_steps_slower_and_nothing_else(file):
    def slowed(row, by):
        cells = dict(row.cells)
        cells["latency_ms"] = repr(by * float(cells["latency_ms"]))
        return replace(row, cells=cells)

    before = verdict(file)
    slow = tuple(slowed(row, 2.0) if row.text("kernel") == "matmul" else row for row in file.rows)
    after = verdict(replace(file, rows=slow))
    pairs = zip(before.wall, after.wall, strict=True)
    ratios = [(b.predicted_s or 0) / (a.predicted_s or 1) for a, b in pairs]
    assert all(1.3 < ratio < 2.0 for ratio in ratios)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [("matmul", "how fast products"), ("triad copy", "how fast memory"), ("program", "program")],
)
def test_too_few_rows_are_refused_by_what_they_lack(file, left_out, said):
    rows = [row for row in file.rows if row.text("kernel") not in left_out.split()]
    with pytest.raises(InputError, match=said):
        machine_files(open_catalog(), rows)


def test_a_bad_cell_is_named(file):
    rows = [replace(file.rows[0], cells={**file.rows[0].cells, "latency_ms": "fast"})]
    with pytest.raises(InputError, match="latency_ms: 'fast' is not a number"):
        machine_files(open_catalog(), [*rows, *file.rows[1:]])


def test_rows_of_a_session_are_those_of_its_file(file):
    cells = list(csv.DictReader(ROWS.read_text().splitlines()))
    rows = [MeasuredRow(cells={k: v for k, v in one.items() if v}) for one in cells]
    assert [row.id for row in evidence_of(rows).rows] == [row.id for row in file.rows]


def test_a_known_chip_keeps_its_data_sheet_and_takes_shares(file):
    rows = [replace(row, cells={**row.cells, "chip": "h100"}) for row in file.rows]
    rows = [row for row in rows if row.text("dtype") != "fp16"]
    tables: Any = machine_files(open_catalog(), rows, name="mine").tables
    assert tables["chips", "mine-device"]["like"] == "h100"
    assert tables["instances", "mine"]["chip"] == "mine-device"
    share = tables["calibration", "chip-mine"]["tensor_share"]["value"]
    assert 0 < share < 0.01, "a host is no H100"


def test_exchanges_are_one_line_or_two():
    sizes = 1024.0 * 4.0 ** np.arange(7)
    one = list(zip(sizes, 1e-5 + sizes / 1e9, strict=True))
    launch_s, s_per_byte, apart = _line(one)
    assert (launch_s, s_per_byte) == pytest.approx((1e-5, 1e-9))
    assert apart == pytest.approx(0, abs=1e-9)
    assert len(_lines(one)) == 1
    kinked = [(size, time * (5 if size > 1e5 else 1)) for size, time in one]
    (limit, *_), (last, *_) = _lines(kinked)
    assert last is None
    assert limit == 1024.0 * 4**4

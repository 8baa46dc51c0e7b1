"""Fitted rows scored without their configuration, and reports by what predictions rest on."""

from __future__ import annotations

import math

import pytest

from tests.unit.evidence.test_calibrate_fit import WORKS, measured_with
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.fit.calibrate import calibrate, reach
from trnbench.evidence.fit.left_out import (
    LeftOut,
    entries,
    left_out,
    without_its_configuration,
    without_its_family,
)
from trnbench.evidence.fit.problem import KERNEL
from trnbench.evidence.statistics import by_class, stranger_baseline, summarise
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.population import KindOfSoftware, SpreadWithout
from trnbench.facts.records import asdict, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.ranges import END
from trnbench.show.text_table import Style
from trnbench.verbs.validate.answer import ScoredSet
from trnbench.verbs.validate.text import validation_report

LAYOUT = Layout(
    tp=1, dp=8, micro_batch=1, global_batch=64, sequence=4096, precision="bf16", recompute="none"
)


def step(name: str, measured_s: float, predicted_s: float, **more) -> Comparison:
    ends = {"low_s": 0.9 * predicted_s, "high_s": 1.2 * predicted_s}
    known = {"set": "gpu_training", "platform": "p5.48xlarge", "rests_on": "inside rows"}
    return Comparison(
        **{
            "id": name,
            "measured_s": measured_s,
            "predicted_s": predicted_s,
            **ends,
            **known,
            **more,
        }
    )


def test_of_few_cases_the_largest_is_asked_for():
    # Six cases and a prior of eight: 0.9 x 14 + 0.5 = 13.1 of 14, and 13 are near.
    assert reach([*((0.01, 1.0) for _ in range(5)), (0.3, 1.0)], 0.01) == pytest.approx(0.3)
    # Of 100 cases at nothing and the prior, 9 far ones are within the tenth that may lie outside
    # (0.9 x 117 + 0.5 = 105.8 of 108 near ones), and 13 are not (109.4).
    near = [(0.0, 1.0)] * 100
    assert reach([*near, *[(0.3, 1.0)] * 9], 0.05) < 0.15
    assert reach([*near, *[(0.3, 1.0)] * 13], 0.05) == pytest.approx(0.3)


def test_an_entry_is_the_fit_without_the_row_over_the_fit_with_it():
    found = calibrate(measured_with({"factor": 1.2}))
    told = entries(tuple(left_out(found.rows, None)))
    assert list(told) == [one.row.id for one in found.rows]
    for one in found.rows:
        known = told[one.row.id]
        without = (1 + one.without_configuration) / (1 + one.fitted)
        assert known.ratio == pytest.approx(without, rel=1e-3)
        assert known.rests_on == "carried over"  # no row has a layout
        assert known.low is not None
        assert known.low < 1.001 * math.exp(-END * math.sqrt(one.expected))


def test_a_kernel_left_out_is_as_uncertain_as_a_chip_without_its_kind():
    rows = [replace(row, quantity=KERNEL) for row in measured_with({"factor": 1.2})]
    found = calibrate(rows)
    told = entries(tuple(left_out(found.rows, None)))
    for one in found.rows:
        known, wide = told[one.row.id], math.hypot(math.sqrt(one.expected), one.row.scatter)
        assert (known.low, known.high) == pytest.approx(
            (math.exp(-END * wide), math.exp(END * wide)), rel=1e-3
        )
        assert known.rests_on is None


def test_a_row_is_beyond_its_rows_where_no_other_configuration_has_its_settings():
    layouts = [LAYOUT] * (len(WORKS) - 1) + [replace(LAYOUT, cp=4, dp=2)]
    rows = [
        replace(row, layout=layout, family="decoder", node_ranks=8)
        for row, layout in zip(measured_with({"factor": 1.2}), layouts, strict=True)
    ]
    told = entries(tuple(left_out(calibrate(rows).rows, None)))
    assert [one.rests_on for one in told.values()] == ["inside rows"] * 5 + ["beyond rows"]


def test_a_fitted_row_is_scored_by_the_fit_without_it():
    told = (f"a: {LeftOut(ratio=1.2, low=0.9, high=1.1, rests_on='beyond rows').text}", "b: 0.5")
    row = replace(step("a", 10.0, 10.0, fitted=True), memory_predicted_bytes=8.0)
    scored = without_its_configuration(row, told, ("a: 0.75",))
    assert (scored.predicted_s, scored.low_s, scored.high_s) == pytest.approx((12.0, 10.8, 13.2))
    assert (scored.rests_on, scored.left_out) == ("beyond rows", True)
    assert scored.memory_predicted_bytes == 6.0
    # A kernel's interval keeps its form; a row that set nothing stays as it is predicted.
    kernel = without_its_configuration(step("b", 1.0, 1.0, fitted=True), told)
    assert (kernel.low_s, kernel.predicted_s, kernel.high_s) == pytest.approx((0.45, 0.5, 0.6))
    assert without_its_configuration(step("a", 1.0, 1.0), told) == step("a", 1.0, 1.0)


def test_a_stranger_has_the_interval_that_other_software_tells():
    kind = KindOfSoftware(
        families=("ours", "theirs"),
        rows=2,
        level=1.0,
        spread=Spread(low=0.9, high=1.2),
        without={"ours": SpreadWithout(low=0.8, high=1.5, level=1.1)},
        without_family=0.1,
    )
    row = step("a", 1.0, 10.0, software="ours", rests_on="population", kind="eager")
    scored = without_its_family(row, kind, row.software)
    # All of the interval was spread: none is left of uncertain numbers.
    assert (scored.low_s, scored.predicted_s) == pytest.approx((0.8 * 11, 11.0))
    assert scored.high_s == pytest.approx(1.5 * 11)
    assert without_its_family(row, kind, "theirs").left_out is False


def test_the_baseline_has_not_seen_the_software():
    rows = [
        step("a", 2.0, 2.0, software="x", ideal_s=1.0),  # half of the peak
        step("b", 4.0, 2.0, software="y", ideal_s=1.0),  # a quarter of it
        step("c", 4.0, 2.0, software="y", ideal_s=1.0, set="trainium_training"),
    ]
    assert [(row.id, row.predicted_s) for row in stranger_baseline(rows)] == [
        ("a", 4.0),
        ("b", 2.0),
    ]


def test_a_brief_report_says_the_answer_first_and_then_the_classes():
    rows = tuple(
        step(f"r{i}", 10.0, 10.0 + i, rests_on=rests_on)
        for i in range(60)
        for rests_on in ("inside rows", "carried over")
    )
    sections = [
        ScoredSet(name=name, files=(), rows=rows, summary=summarise(rows), fits={})
        for name in ("trainium", "gpu", "collectives", "kernels", "attention", "compile")
    ]
    report = validation_report(sections, {}, brief=True)
    assert report.people is not None
    lines = report.people(report, Style()).splitlines()
    assert lines[0].startswith("Verdict: 720 steps predicted that no calibration has seen: ")
    assert len(lines) <= 60
    assert report.summary["rests_on"] == {
        name: asdict(errors) for name, errors in by_class(rows * 6).items()
    }
    whole = validation_report(sections, {})
    assert whole.people is not None
    assert len(whole.people(whole, Style()).splitlines()) > 720
    assert by_class(rows)["inside rows"].rows == 60

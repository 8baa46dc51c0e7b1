"""Charts of an answer: bars of parts that add up to the whole, points where the figures are."""

from __future__ import annotations

from trnbench.show.charts import BarChart, charts_of
from trnbench.show.report import Report

PARTS = {"memory_weights_bytes": 6.0, "memory_activations_bytes": 3.0, "memory_scratch_bytes": 1.0}
TIMES = {"exposed_matrix_s": 2.0, "exposed_element_wise_s": 1.0}
NO_PARTS = {
    **{"memory_bytes": 10.0, "memory_peak_bytes": 10.0, "memory_capacity_bytes": 16.0},
    **{"memory_measured_bytes": 11.0, "memory_available_bytes": 15.0, "memory_bytes_per_s": 9.0},
    **{"exposed_s": 3.0, "exposed_all_s": 3.0},
}


def charts(*rows):
    report = Report(verb="compare", inputs={}, rows=rows, columns=(), people=lambda *_: "")
    return {chart.title: chart for chart in charts_of(report) if isinstance(chart, BarChart)}


def test_bars_hold_the_parts_alone_and_add_up_to_the_whole():
    found = charts({"instance": "trn1.32xlarge", "nodes": 2, **PARTS, **TIMES, **NO_PARTS})
    memory, time = found["memory of a rank"], found["time of a training step"]
    assert memory.parts == ("weights", "activations", "scratch")
    assert memory.bars == (("2 x trn1.32xlarge", 0.0, (6.0, 3.0, 1.0)),)
    assert sum(memory.bars[0][2]) == NO_PARTS["memory_bytes"]
    assert time.parts == ("matrix", "element-wise")
    assert time.bars[0][2] == (2.0, 1.0)


def test_figures_that_are_no_parts_draw_no_bars():
    assert not charts({"instance": "trn1.32xlarge", **NO_PARTS})

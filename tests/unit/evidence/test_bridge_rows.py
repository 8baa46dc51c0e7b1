"""Rows of racks, of NVFP4 and of a hybrid: none is refused, each is near; ends as layers."""

from __future__ import annotations

from pathlib import Path

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.step import training_step
from trnbench.verbs.validate.run import validate

CATALOG = open_catalog(environment={})
ROWS = Path(__file__).parents[3] / "workloads" / "published" / "bridge_steps.csv"


def test_ends_count_as_layers_in_a_pipeline() -> None:
    model = load_model(CATALOG, "llama3.1-405b")
    layout = Layout(
        tp=4,
        pp=16,
        vpp=8,
        global_batch=64,
        sequence=8192,
        precision="nvfp4",
        schedule="interleaved",
        stage_split="layers-and-ends",
    )
    program = training_step(model, layout)
    assert program.legal, program.refusals()
    # 126 layers and two ends are 8 for each of 16 stages; the first and the last have 7 layers.
    held = {stage.role: float(stage.blocks["dense"]) for stage in program.stages}
    assert held == {"first": 7, "light": 8, "last": 7}
    assert float(program.instances("dense")) == 126
    uneven = training_step(model, replace(layout, pp=10, vpp=1, schedule="1f1b"))
    assert "does not divide 126 layers and 2 ends" in uneven.refusals()[0]


def test_the_bridge_rows_are_within_15_percent() -> None:
    (section,) = validate(evidence=ROWS)
    errors = {row.id: row.error for row in section.rows}
    assert len(errors) == 5
    assert all(error is not None and abs(error) <= 0.15 for error in errors.values()), errors

"""A window of 1,024 in 131,072 tokens cuts the time of a step, in each of the parts it is about."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.predict.setup import train_setup
from trnbench.predict.step import predict

WINDOW, SEQUENCE = 1024, 131_072


@pytest.mark.parametrize(
    ("instance", "nodes", "tp", "cp"), [("p5.48xlarge", 2, 2, 8), ("trn2.48xlarge", 1, 4, 16)]
)
def test_a_window_cuts_time(instance, nodes, tp, cp):
    catalog = open_catalog()
    full = load_model(catalog, "llama3.1-8b")
    assert full.transformer is not None
    assert full.transformer.attention is not None
    attention = replace(full.transformer.attention, window=WINDOW)
    sliding = replace(full, transformer=replace(full.transformer, attention=attention))
    layout = Layout(
        tp=tp,
        cp=cp,
        sequence_parallel=True,
        zero=1,
        recompute="full",
        global_batch=4,
        sequence=SEQUENCE,
        precision="bf16-master",
    )
    steps = []
    for model in (full, sliding):
        setup = train_setup(catalog, model, instance, nodes, assume_supported=True)
        step = predict(setup, layout).step
        assert step is not None
        steps.append(step)
    whole, cut = steps
    # Each token sees half of all tokens, or the window: 64 times as many.
    core = whole.exposed_s["attention"] / cut.exposed_s["attention"]
    assert 0.4 * SEQUENCE / 2 / WINDOW < core < 1.1 * SEQUENCE / 2 / WINDOW
    # 15/16 or 7/8 of the sequence go round, or 1,023 tokens.
    ring = [one.exposed_s["context"] + one.hidden_s["context"] for one in (whole, cut)]
    assert ring[1] < ring[0] / 10
    # What has nothing to do with the window stays as it is.
    assert cut.exposed_s["matrix"] == pytest.approx(whole.exposed_s["matrix"], rel=1e-9)
    assert cut.step_time_s < whole.step_time_s / 3

"""One job has one answer: whatever its question leaves open, every verb settles it alike."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.sampling import sampled
from trnbench import __version__
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.tui.questions.layouts import layout_detail
from trnbench.tui.questions.scenarios import compare_rows
from trnbench.tui.work_process import WorkHooks
from trnbench.verbs.compare.run import compare
from trnbench.verbs.explain.run import explain
from trnbench.verbs.plan.run import plan
from trnbench.verbs.train.run import train
from trnbench.verbs.validate.run import validate
from trnbench.verbs.verify.run import verify

CATALOG = open_catalog(environment={})
PLACES = (
    ("llama3.1-8b", "trn1.32xlarge", 4),
    ("llama3.1-8b", "trn2.48xlarge", 2),
    ("llama2-7b", "p5.48xlarge", 2),
    ("llama3.1-70b", "p5.48xlarge", 8),
    ("mixtral-8x7b", "p5.48xlarge", 4),
    ("llama3.1-8b", "p4d.24xlarge", 2),
    ("bert-large", "trn1.32xlarge", 1),
    ("qwen3-8b", "trn2.48xlarge", 1),
)
KNOBS: dict[str, tuple[Any, ...]] = {
    "tp": (1, 4, 8),
    "pp": (1, 1, 2),
    "cp": (1,),
    "vpp": (1,),
    "micro_batch": (1, 2),
    "zero": (0, 1),
    "recompute": ("none", "selective", "full"),
    "sequence_parallel": (True, False),
}
QUESTIONS = 40
"""Seeded questions, of which `FEW` are asked in the quick suite."""
FEW = (1, 4, 8)
HOOKS = WorkHooks(lambda progress: None, lambda: None)
BILL: dict[str, Any] = {"tokens": "10B", "price_date": "2026-11-21"}


class Asked(NamedTuple):
    """A question: the model, the cluster, and the knobs that are said."""

    model: str
    instance: str
    nodes: int
    knobs: dict[str, Any]

    @property
    def where(self) -> str:
        return f"{self.instance}:{self.nodes}"


def question(seed: int) -> Asked:
    """A question with half of the knobs unsaid, drawn by seed."""
    draw = random.Random(seed)
    model, instance, nodes = PLACES[seed % len(PLACES)]
    sequence = 512 if model == "bert-large" else draw.choice((2048, 4096, 8192))
    said = {name: draw.choice(values) for name, values in KNOBS.items() if draw.random() < 0.5}
    return Asked(
        model=model,
        instance=instance,
        nodes=nodes,
        knobs={"global_batch": draw.choice((256, 512, 1024)), "sequence": sequence, **said},
    )


def log_of(folder: Path, step_time_s: float) -> Path:
    """A log of ten such steps."""
    log = folder / "run.log"
    log.write_text("".join(f"step {i} | step time: {step_time_s!r} s\n" for i in range(10)))
    return log


def launched(folder: Path, row: Mapping[str, Any]) -> Path:
    """A folder of a job whose row was predicted so."""
    told = {"schema": "trnbench.launch/1", "version": __version__, "rows": [row]}
    (folder / "prediction.json").write_text(json.dumps(told))
    return folder


def asked_alike(asked: Asked, folder: Path) -> None:
    """Ask every verb, and hold step time, interval, memory and bill together to the bit."""
    (trained,) = train(asked.model, on=asked.where, catalog=CATALOG, **asked.knobs)
    told = trained.step.step_time_s if trained.step else 10.0
    log = log_of(folder, 1.2 * told)
    ran = {"model": asked.model, "on": asked.where, "catalog": CATALOG, **asked.knobs}
    (scored,) = validate(evidence=log, **ran)
    (row,) = scored.rows
    if trained.step is None:
        assert row.reason is not None
        assert trained.reasons[0] in row.reason
        return
    step, memory = trained.step, trained.memory
    ends = step.low_step_time_s, step.step_time_s, step.high_step_time_s
    assert (row.low_s, row.predicted_s, row.high_s) == ends
    (figure,) = explain(log, **ran).measured.figures
    assert (figure.low, figure.predicted, figure.high) == ends
    (verified,) = verify(launched(folder, trained.row()), log, catalog=CATALOG).steps
    assert (verified.low, verified.predicted, verified.high) == ends
    job = TrainCase(
        model=asked.model,
        instance=asked.instance,
        nodes=asked.nodes,
        layout=PartialLayout(**asked.knobs),
    )
    seen, _ = layout_detail(CATALOG, job, PartialLayout(), False, HOOKS)
    assert (seen.step, seen.memory, seen.layout) == (step, memory, trained.layout)
    assert memory is not None
    held = memory.low_bytes, memory.total_bytes, memory.high_bytes, memory.fit_probability
    assert held == (
        *(row.memory_low_bytes, row.memory_predicted_bytes, row.memory_high_bytes),
        row.fit_probability,
    )
    (run,) = train(asked.model, on=asked.where, catalog=CATALOG, **asked.knobs, **BILL)
    place = {"on": asked.instance, "nodes": asked.nodes, "catalog": CATALOG}
    compared = compare(asked.model, **place, **asked.knobs, **BILL).compared[0].quote
    planned = plan(asked.model, **place, **asked.knobs, **BILL, deadline="9999d").best
    assert planned is not None
    scenario = {"model": asked.model, "on": asked.instance, "nodes": str(asked.nodes), **BILL}
    (drawn,) = compare_rows(CATALOG, {**scenario, **asked.knobs}, HOOKS).answers
    for answer in (run, compared.step, planned.step, drawn.step):
        assert answer.step == step
        assert answer.memory == memory
        assert answer.layout == trained.layout
        assert answer.assumptions == trained.assumptions
    assert run.part is not None
    assert compared.cost_usd is not None
    assert planned.cost_usd is not None
    assert drawn.cost_usd is not None
    assert run.part.cost_usd == compared.cost_usd.value == planned.cost_usd.value
    assert drawn.cost_usd == compared.cost_usd


@pytest.mark.parametrize("seed", sampled(FEW, FEW[:1]))
def test_every_verb_gives_one_answer(seed, tmp_path):
    asked_alike(question(seed), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_every_verb_gives_one_answer_to_many_questions(seed, tmp_path):
    asked_alike(question(seed), tmp_path)

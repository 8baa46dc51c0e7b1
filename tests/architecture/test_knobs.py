"""A knob stands once: one line in the table of layouts, and one meaning, reach every place."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Job
from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.program.job_phases import ENGINE, phases_of
from trnbench.program.schedule import slot_order
from trnbench.program.step import training_step

ROOT = Path(__file__).parents[2]
CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))
FIELD = """    made_up: Literal["off", "on"] = _knob(
        "off", "A knob of a test.", metavar="HOW", searched=("off", "on")
    )
"""
BEFORE = "    capacity_factor: Ratio | None = _knob("
SUITE = """
name = "of-a-test"
title = "One case"
source = "test"
kind = "vendor"
[sources]
test = { title = "made up", date = 2026-01-01 }
[[case]]
label = "one"
model = "tiny-gpt"
instance = "trn1.2xlarge"
nodes = 1
[case.layout]
tp = 2
global_batch = 8
sequence = 256
precision = "bf16-master"
made_up = "on"
"""
ASKED = """
import json
from trnbench.verbs.search_layouts.run import search_layouts
from trnbench.facts.catalog.search import open_catalog
from trnbench.program.step import training_step
from trnbench.tui.cluster_view import layout_fields
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model

asked = dict(model="tiny-gpt", instance="trn1.2xlarge", nodes=1, global_batch=8, sequence=256,
             precision="bf16-master", top=1000)
both, on = search_layouts(**asked), search_layouts(**asked, made_up="on")
model = load_model(open_catalog(), "tiny-gpt")
ops = {}
for value in ("off", "on"):
    layout = Layout(global_batch=8, sequence=256, precision="bf16-master", made_up=value)
    blocks = training_step(model, layout).blocks
    ops[value] = [op.name for block in blocks.values() for op in block.ops]
print(json.dumps({
    "searched": sorted({one.layout.made_up for one in both.ranked}),
    "legal": [both.legal, on.legal],
    "fixed": sorted({one.layout.made_up for one in on.ranked}),
    "form": [field.key for field in layout_fields()],
    "ops": ops,
}))
"""


def changed_copy(folder: Path, *, meaning: bool) -> None:
    """Put a copy of the package into a folder, with one more knob in its table."""
    shutil.copytree(
        ROOT / "trnbench", folder / "trnbench", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "trnbench" / "_data").mkdir()
    for data in ("specs", "workloads"):
        (folder / "trnbench" / "_data" / data).symlink_to(ROOT / data)
    edits = [("facts/workload/layout.py", BEFORE, FIELD + BEFORE)]
    if meaning:
        edits += [
            ("program/grid.py", "    precision: Prec", "    made_up: str\n    precision: Prec"),
            ("program/ends.py", "if transformer.dropout", "if b.grid.made_up == 'on'"),
        ]
    for name, old, new in edits:
        path = folder / "trnbench" / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1))


def run(
    folder: Path, *arguments: str, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200", **variables}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.slow
def test_a_made_up_knob_is_found_everywhere(tmp_path):
    changed_copy(tmp_path, meaning=True)
    for verb in ("train", "compare"):
        shown = run(tmp_path, "-m", "trnbench", verb, "--help-all").stdout
        assert "--made-up HOW" in shown
        assert "A knob of a test." in shown
    own = tmp_path / "own" / "training"
    own.mkdir(parents=True)
    (own / "of-a-test.toml").write_text(SUITE)
    stack = built_in_folder() / "specs" / "calibration" / "training-nxd-trn1.toml"
    (tmp_path / "own" / "calibration").mkdir()
    (tmp_path / "own" / "calibration" / stack.name).write_text(
        stack.read_text().replace('"zero 1",', '"zero 1", "made up on",', 1)
    )
    train = ("-m", "trnbench", "train", "--json", "--suite", "of-a-test", "--spec-dir", "own")
    (row,) = json.loads(run(tmp_path, *train).stdout)["rows"]
    assert row["made_up"] == "on"
    found = json.loads(run(tmp_path, "-c", ASKED, TRNBENCH_SPEC_PATH="own").stdout)
    assert found["searched"] == ["off", "on"]
    assert found["fixed"] == ["on"]
    assert found["legal"][0] == 2 * found["legal"][1] > 0
    assert "made_up" in found["form"]
    assert found["ops"]["off"] != found["ops"]["on"]


def test_a_knob_without_a_meaning_fails_at_import(tmp_path):
    changed_copy(tmp_path, meaning=False)
    done = run(tmp_path, "-c", "import trnbench.program.step", code=1)
    assert "the program ignores the knob 'made_up'" in done.stderr


OTHERS = {
    "sequence_parallel": True,
    "recompute": "full",
    "schedule": "gpipe",
    "attention": "naive",
    "loss": "fused",
    "context_parallel": "all-to-all",
    "dispatcher": "alltoall",
    "overlapped": "off",
    "capacity_factor": 2.0,
    "precision": "fp32",
    "zero": 3,
    "vpp": 2,
    "sequence": 512,
    "job": "lora",
    "adapter_rank": 8,
    "adapter_on": "attention",
    "frozen_format": "nf4",
    "stage_split": "work",
    "pipeline_layout": "Et*15|t*17L",
    "expert_tp": 1,
    "shard": 2,
    "optimizer_offload": "host",
    "activation_offload": "host",
    "mtp_depths": 1,
    "response": 64,
    "reward": "model",
    "reference": "off",
    "idle_models": "host",
    "generation_nodes": 1,
    "generation_tokens_per_s": 1000.0,
    "generation_batch": 1,
}


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_changes_the_program(name):
    model = load_model(CATALOG, "mixtral-8x7b")
    plain = Layout(
        tp=2, pp=2, dp=2, cp=2, ep=2, global_batch=16, sequence=256, precision="bf16-master"
    )
    if name == "shard":
        plain = replace(plain, zero=1)
    if name == "attention":
        plain = replace(plain, cp=1)
    if KNOBS[name].of_jobs:
        model = load_model(CATALOG, "tiny-gpt")
        job: Job = "lora" if "lora" in KNOBS[name].of_jobs else "grpo"
        plain = replace(plain, job=job, ep=1)
    other = OTHERS[name] if name in OTHERS else 2 * getattr(plain, name)
    changed = PartialLayout(**{name: other}).complete(PartialLayout.of(plain).given)
    assert _digest(model, plain) != _digest(model, changed)


@functools.cache
def _digest(model, layout):
    program = training_step(model, layout)
    blocks = [
        (kind, [repr(op) for op in block.ops], repr(block.kept), repr(block.residents))
        for kind, block in program.blocks.items()
    ]
    order = slot_order(
        "interleaved" if layout.vpp > 1 else layout.schedule,
        pp=layout.pp,
        vpp=layout.vpp,
        micro_batches=int(program.micro_batches),
    )
    held = [repr(one.program.blocks.get(ENGINE)) for one in phases_of(program)]
    written = [
        (repr(one.generation), one.times, repr(one.fetched_bytes)) for one in phases_of(program)
    ]
    return blocks, order.kind.tobytes(), repr(program.stages), held, written

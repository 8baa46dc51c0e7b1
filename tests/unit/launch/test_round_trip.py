"""What is written is read back as the same layout, whatever it is; and what people have is read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.launch.test_nxdt import plan_of
from trnbench.errors import InputError
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.pipeline_layout import written
from trnbench.facts.workload.recompute import PLAIN
from trnbench.launch.catalogue import FRAMEWORKS, SCHEDULERS
from trnbench.launch.folder import launch_folder
from trnbench.launch.reading import read_config

ON = {
    "nxdt": "trn2.48xlarge",
    "optimum-neuron": "trn1.32xlarge",
    "torchtitan": "p5.48xlarge",
    "megatron": "p5.48xlarge",
    "megatron-bridge": "p5.48xlarge",
}
RANKS = {"trn2.48xlarge": 64, "trn1.32xlarge": 32, "p5.48xlarge": 8}
NODES = 4
MODES = [*PLAIN, "full:2", "norms", "attention-core,norms", "norms,activations"]
"""Of recompute; a framework refuses those that it has no words for."""


@st.composite
def layouts(draw, framework):
    """A layout that fills the cluster; knobs that act in it, and no others."""
    ranks = NODES * RANKS[ON[framework]]
    model = draw(st.sampled_from(["llama3.1-8b", "llama3.1-70b", "mixtral-8x7b"]))
    tp = draw(st.sampled_from([1, 2, 4, 8]))
    pp = draw(st.sampled_from([1, 2, 4]))
    fixed: dict[str, Any] = {n: value for n, (value, _) in FRAMEWORKS[framework].fixed.items()}
    cp = fixed.get("cp") or draw(st.sampled_from([1, 2, 4]))
    assume(ranks % (tp * pp * cp) == 0)
    dp = ranks // (tp * pp * cp)
    knobs = {"tp": tp, "pp": pp, "cp": cp, "dp": dp}
    if model == "mixtral-8x7b":
        knobs["ep"] = fixed.get("ep") or draw(st.sampled_from([1, 2, 4]))
        if "expert_tp" in FRAMEWORKS[framework].writes and draw(st.booleans()):
            knobs["expert_tp"] = draw(st.sampled_from([1, 2]))
        if "dispatcher" in FRAMEWORKS[framework].writes and knobs["ep"] > 1:
            knobs["dispatcher"] = draw(st.sampled_from(["alltoall", "deepep", "hybridep"]))
    knobs["micro_batch"] = draw(st.sampled_from([1, 2]))
    knobs["global_batch"] = dp * knobs["micro_batch"] * draw(st.sampled_from([4, 8, 12]))
    knobs["sequence"] = draw(st.sampled_from([2048, 4096, 8192]))
    knobs["zero"] = draw(st.sampled_from([0, 1, 2, 3])) if dp * cp > 1 else 0
    if "shard" in FRAMEWORKS[framework].writes and knobs["zero"] and dp % 2 == 0 and dp * cp > 2:
        knobs["shard"] = draw(st.sampled_from([None, dp * cp // 2]))
    knobs["sequence_parallel"] = draw(st.booleans()) if tp > 1 else False
    knobs["recompute"] = draw(st.sampled_from(MODES))
    knobs["attention"] = fixed.get("attention") or draw(st.sampled_from(["fused", "naive"]))
    if cp > 1:
        knobs["context_parallel"] = draw(st.sampled_from(["ring", "all-to-all", "hybrid:2"]))
    if pp > 1:
        runs = [fixed["schedule"]] if "schedule" in fixed else FRAMEWORKS[framework].schedules
        knobs["schedule"] = draw(st.sampled_from(runs))
        if knobs["schedule"] == "interleaved":
            knobs["vpp"] = draw(st.sampled_from([2, 4]))
    if "optimizer_offload" in FRAMEWORKS[framework].writes and knobs["zero"] == 1:
        knobs["optimizer_offload"] = draw(st.sampled_from(["none", "host"]))
    depths = draw(st.sampled_from([None, 1]))
    if "mtp_depths" in FRAMEWORKS[framework].writes and depths:
        knobs["mtp_depths"] = depths
    if pp > 1 and "pipeline_layout" in FRAMEWORKS[framework].writes and draw(st.booleans()):
        layers, stages = {"llama3.1-70b": 80}.get(model, 32), pp * knobs.get("vpp", 1)
        least = stages - 1
        cuts = sorted(draw(st.lists(st.integers(0, layers), min_size=least, max_size=least)))
        ends = zip((0, *cuts), (*cuts, layers), strict=True)
        drawn = tuple(end - start for start, end in ends)
        knobs["pipeline_layout"] = written(drawn, (0,) * least + (knobs.get("mtp_depths", 0),))
    knobs["precision"] = draw(st.sampled_from(sorted(FRAMEWORKS[framework].precisions)))
    if draw(st.booleans()):
        knobs["job"] = draw(st.sampled_from(FRAMEWORKS[framework].jobs))
        if knobs["job"] == "lora":
            knobs["adapter_rank"] = draw(st.sampled_from([8, 64]))
            knobs["adapter_on"] = draw(st.sampled_from(["attention", "all-linear"]))
    return model, knobs


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_layout_that_is_launched_is_read_back(framework, data):
    model, knobs = data.draw(layouts(framework))
    plan = plan_of(model, ON[framework], NODES, **{"sequence_parallel": False, **knobs})
    facts = FRAMEWORKS[framework]
    assume(not facts.reasons(plan))
    found = launch_folder(plan, facts, SCHEDULERS["slurm"], version="0", predicted=())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in found.texts.items():
            (folder / file).write_text(text)
        whole = read_config(folder)
        script = read_config(folder / "job.sbatch")
    assert whole.framework == script.framework == framework
    assert whole.ranks == script.ranks == NODES * RANKS[ON[framework]]
    for read in (whole, script):
        told = {name: read.knobs.get(name, KNOBS[name].default) for name in knobs}
        assert told == knobs


SLURM = """#!/bin/bash
#SBATCH --nodes=16
TP=8
PP=${PP:-4}
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes $SLURM_NNODES
)
MODEL_ARGS=(
    --num-layers 80 --seq-length 8192   # of Llama 3
    --num-layers-per-virtual-pipeline-stage 5
)
srun torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\
    --micro-batch-size 1 --global-batch-size "512" --bf16 --use-distributed-optimizer \\
    --sequence-parallel --recompute-activations
"""
TITAN = """
[training]
local_batch_size = 2
global_batch_size = 256
seq_len = 4096
[parallelism]
tensor_parallel_degree = 4
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "full"
"""
OPTIMUM = """export NEURON_FUSE_SOFTMAX=1
PROCESSES=32
torchrun --nproc_per_node $PROCESSES finetune_llama.py --model_id meta/llama --do_train \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 \\
  --tensor_parallel_size 8 --zero_1 --async_save
"""
NEURON_YAML = """
name: hf_llama
trainer: {devices: 32, num_nodes: 16}
exp_manager: {checkpoint_callback_params: {model_parallel_size: "${multiply:1, 2}"}}
distributed_strategy: {tensor_model_parallel_size: 32, pipeline_model_parallel_size: 8, zero1: True}
data: {micro_batch_size: 1, global_batch_size: 1024}
model:
  encoder_seq_length: 8192
  activations_checkpoint_granularity: selective
  fusions: {flash_attention: True}
precision: {type: mixed_precisionSR}
"""
HAD = {
    "job.sbatch": (
        SLURM,
        "megatron",
        {"tp": 8, "pp": 4, "vpp": 4, "zero": 1, "recompute": "selective", "global_batch": 512},
    ),
    "llama.toml": (
        TITAN,
        "torchtitan",
        {"tp": 4, "micro_batch": 2, "global_batch": 256, "recompute": "full", "zero": 3},
    ),
    "finetune.sh": (
        OPTIMUM,
        "optimum-neuron",
        {"tp": 8, "zero": 1, "micro_batch": 1, "precision": "bf16-sr-master"},
    ),
    "70b.yaml": (
        NEURON_YAML,
        "nxdt",
        {"tp": 32, "pp": 8, "dp": 2, "recompute": "selective", "precision": "bf16-sr-master"},
    ),
}


@pytest.mark.parametrize(("name", "had"), HAD.items())
def test_what_people_run_already_is_read(tmp_path, name, had):
    text, framework, knobs = had
    path = tmp_path / name
    path.write_text(text)
    found = read_config(path)
    assert found.framework == framework
    assert {knob: found.knobs.get(knob) for knob in knobs} == knobs


def test_a_function_of_torchtitan_is_read_and_not_run(tmp_path):
    path = tmp_path / "runs.py"
    path.write_text(
        "raise SystemExit('run')\n"
        "def llama():\n"
        "    return Trainer.Config(\n"
        "        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=16384,\n"
        "            num_tokens_per_train_step=1048576, max_context_length=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=2,\n"
        "            pipeline_parallel_degree=2),\n"
        "        activation_checkpoint=FullAC.Config(),\n"
        "    )\n"
    )
    knobs = read_config(path).knobs
    wanted = {"tp": 2, "pp": 2, "sequence": 8192, "micro_batch": 2, "global_batch": 128}
    assert {name: knobs[name] for name in wanted} == wanted
    assert knobs["recompute"] == "full"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "a: [1", "is not one YAML document in line"),
        ("a.yaml", "a: 1\n", "has no distributed_strategy"),
        ("a.yaml", "distributed_strategy: {}\ntrainer: {devices: many}\n", "whole number above 0"),
        ("a.toml", "a = 1\n", r"has no \[parallelism\]"),
        ("a.toml", "a = \n", "not valid TOML"),
        ("a.py", "def broken(:\n", "not Python"),
        ("a.sh", "echo 'unfinished\n", "says no layout"),
        ("a.sh", "bash a.sh\n", "says no layout"),
        ("a.sh", "x --tensor-model-parallel-size -3\n", "whole number above 0, found -3"),
        ("a.sh", "x --tensor-model-parallel-size $(cat tp)\n", "whole number above 0"),
        ("a.bin", "\0\0", "binary"),
    ],
)
def test_what_is_no_configuration_is_refused_in_a_line(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_config(path)


OFFLOADED: dict[str, Any] = {
    **{"tp": 8, "pp": 2, "global_batch": 16, "sequence": 2048, "optimizer_offload": "host"},
}


def test_an_optimizer_on_the_host_is_written_and_read(tmp_path):
    asked = {**OFFLOADED, "dp": 2, "zero": 1}
    for name in ("megatron", "megatron-bridge"):
        facts = FRAMEWORKS[name]
        plan = plan_of("llama3.1-8b", ON[name], NODES, **asked)
        assert facts.reasons(plan) == ()
        found = launch_folder(plan, facts, SCHEDULERS["slurm"], version="0", predicted=())
        folder = tmp_path / name
        folder.mkdir()
        for file, text in found.texts.items():
            (folder / file).write_text(text)
        assert read_config(folder).knobs["optimizer_offload"] == "host"
        script = found.texts["train.sh"]
        assert "optimizer-cpu-offload" in script.replace("_", "-")
        assert "use-precision-aware-optimizer" in script.replace("_", "-")
        half = script.replace("offload-fraction 1.0", "offload-fraction 0.5")
        (folder / "train.sh").write_text(half.replace("fraction=1.0", "fraction=0.5"))
        with pytest.raises(InputError, match=r"fraction 0\.5 is not modelled"):
            read_config(folder / "train.sh")
        whole = plan_of("llama3.1-8b", ON[name], NODES, **{**asked, "zero": 0})
        assert any("try --zero 1" in why for why in facts.reasons(whole))


@pytest.mark.parametrize("name", sorted({*FRAMEWORKS} - {"megatron", "megatron-bridge"}))
def test_frameworks_without_an_optimizer_on_the_host_refuse_it(name):
    plan = plan_of("llama3.1-8b", ON[name], NODES, **OFFLOADED)
    assert any("leave --optimizer-offload out" in why for why in FRAMEWORKS[name].reasons(plan))

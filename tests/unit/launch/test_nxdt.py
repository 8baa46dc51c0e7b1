"""NxD Training's YAML: keys it knows, layouts it ships, one `devices:` line."""

from __future__ import annotations

import datetime

import pytest
import yaml

from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.launch.frameworks import nxdt
from trnbench.launch.plan import LaunchPlan
from trnbench.money.failures import Estimate

CATALOG = open_catalog()
# config_overview.rst and examples/conf of NxD Training 1.6.0 (2025-09-22), and of 2.28's examples.
TOP = {
    *("name", "model_source", "seed", "trainer", "exp_manager", "distributed_strategy", "data"),
    *("model", "precision", "compiler_flags", "compiler_cache_url", "bucket_size_collectives"),
    *("aync_exec_max_inflight_requests", "neuron_rt_exec_timeout", "model_alignment_strategy"),
    "neuron_experimental_compress_rg",
}
KEYS = {
    "trainer": {
        *("devices", "lnc", "num_nodes", "max_epochs", "max_steps", "log_every_n_steps"),
        *("val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"),
        *("limit_val_batches", "limit_test_batches", "gradient_clip_val", "sequential_move_factor"),
    },
    "distributed_strategy": {
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "zero1", "kv_replicator"),
        *("virtual_pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel"),
        "expert_model_parallel_size",
    },
    "data": {"micro_batch_size", "global_batch_size", "train_dir", "seq_length", "tokenizer"},
    "model": {
        *("model_config", "encoder_seq_length", "max_position_embeddings", "num_layers", "moe"),
        *("hidden_size", "qkv_linear", "fuse_qkv", "rope_theta", "use_cpu_initialization"),
        *("activations_checkpoint_granularity", "activations_checkpoint_recompute", "fusions"),
        *("do_layer_norm_weight_decay", "optim", "weight_init_only"),
    },
    "precision": {
        *("type", "master_weights", "fp32_grad_acc", "xla_use_bf16", "xla_downcast_bf16"),
        "neuron_rt_stochastic_rounding_en",
    },
}


def plan_of(model, instance, nodes, /, **knobs):
    layout = Layout(**{"precision": "bf16-master", "sequence_parallel": True, **knobs})
    return LaunchPlan(
        model=load_model(CATALOG, model),
        platform=load_platform(CATALOG, instance),
        nodes=nodes,
        reserved=False,
        logical_size=None,
        layout=layout,
        step_time_s=10.0,
        checkpoint_interval_s=995.0,
        compile_s=Estimate(value=1800.0, low=800.0, high=7200.0, kind=Kind.ASSUMED),
        steps=None,
        date=datetime.date(2026, 11, 23),
    )


# examples/conf: devices a node, nodes, tp, pp, cp, global batch, sequence, kv_replicator
SHIPPED = {
    ("llama3.1-8b", "trn1.32xlarge"): (32, 4, 32, 1, 1, 1024, 8192, 4),
    ("llama3.1-8b", "trn2.48xlarge"): (64, 1, 16, 1, 1, 1024, 8192, 2),
    ("llama3.1-70b", "trn2.48xlarge"): (64, 8, 32, 4, 1, 1024, 8192, 4),
    ("llama3.1-70b", "trn1.32xlarge"): (32, 16, 32, 8, 2, 1024, 8192, 4),
    ("llama3.1-405b", "trn1.32xlarge"): (32, 64, 32, 32, 1, 256, 8192, 4),
}


@pytest.mark.parametrize(("where", "shipped"), SHIPPED.items())
def test_a_shipped_layout_is_written_with_the_shipped_numbers(where, shipped):
    devices, nodes, tp, pp, cp, batch, sequence, copies = shipped
    dp = devices * nodes // (tp * pp * cp)
    model, instance = where
    plan = plan_of(
        model,
        instance,
        nodes,
        **{"tp": tp, "pp": pp, "cp": cp, "dp": dp, "zero": 1},
        **{"global_batch": batch, "sequence": sequence},
    )
    assert nxdt.FACTS.reasons(plan) == ()
    text = nxdt.FACTS.files(plan, "stamp")[nxdt.CONFIG]
    config = yaml.safe_load(text)
    assert set(config) <= TOP
    for table, keys in KEYS.items():
        assert set(config[table]) <= keys, table
    # What train.sh greps: the second word of the only such line.
    (line,) = [line for line in text.splitlines() if "devices:" in line]
    assert line.split()[1] == str(devices)
    assert config["trainer"]["num_nodes"] == nodes
    assert config["distributed_strategy"]["kv_replicator"] == copies
    assert config["model"]["fusions"]["ring_attention"] == (cp > 1)
    assert config["model"]["fusions"]["flash_attention"] == (cp == 1)
    # 995 s between checkpoints of steps of 10 s.
    assert config["exp_manager"]["checkpoint_callback_params"]["every_n_train_steps"] == 100


def test_lora_is_written_as_in_the_shipped_example():
    plan = plan_of(
        "llama3.1-8b",
        "trn1.32xlarge",
        1,
        **{"tp": 32, "global_batch": 64, "sequence": 4096, "job": "lora", "adapter_rank": 16},
        **{"precision": "auto-cast-bf16", "adapter_on": "attention"},
    )
    assert nxdt.FACTS.reasons(plan) == ()
    config = yaml.safe_load(nxdt.FACTS.files(plan, "stamp")[nxdt.CONFIG])
    assert config["model_alignment_strategy"]["peft"]["lora_rank"] == 16
    assert config["precision"]["type"] == "autocast"
    assert config["distributed_strategy"]["zero1"] is False
    assert config["data"]["seq_length"] == 4096
    assert set(config["model"]) <= KEYS["model"]


ORPO = {"tp": 32, "global_batch": 16, "sequence": 4096, "job": "orpo"}


def test_a_drawn_pipeline_is_refused_with_what_cuts_it():
    drawn = {"pp": 2, "pipeline_layout": "Et*20|t*12L"}
    plan = plan_of("llama3.1-8b", "trn1.32xlarge", 2, **ORPO | drawn | {"job": "pretrain"})
    (reason,) = nxdt.FACTS.reasons(plan)
    assert "pipeline_cuts are an argument of NxD Core" in reason
    assert reason.endswith("leave --pipeline-layout out")


def test_orpo_is_written_as_in_the_shipped_example_and_dpo_refused_with_the_reason():
    plan = plan_of("llama3.1-8b", "trn1.32xlarge", 1, **ORPO)
    assert nxdt.FACTS.reasons(plan) == ()
    config = yaml.safe_load(nxdt.FACTS.files(plan, "stamp")[nxdt.CONFIG])
    assert config["model_alignment_strategy"] == {
        "orpo": {"beta": 0.1, "max_prompt_length": 2048, "truncation_mode": "keep_start"}
    }
    assert config["data"]["global_batch_size"] == 16, "pairs, as the framework counts"
    assert nxdt.layout_of(config)["job"] == "orpo"
    (reason,) = nxdt.FACTS.reasons(
        plan_of("llama3.1-8b", "trn1.32xlarge", 1, **ORPO | {"job": "dpo"})
    )
    assert "NxD Training has no job dpo here: it runs the reference once" in reason
    (reason,) = nxdt.FACTS.reasons(
        plan_of("llama3.1-8b", "trn1.32xlarge", 1, **ORPO, adapter_rank=16, adapter_on="attention")
    )
    assert "adapters are for supervised fine-tuning" in reason


@pytest.mark.parametrize("table", ["model_alignment_strategy", "data"])
def test_a_configuration_of_dpo_is_refused_not_read_as_fine_tuning(table):
    """Its older place is among the keys of data; its steps pass no reference."""
    key = {"dpo": {"kl_beta": 0.01}}
    config = {table: key if table != "data" else {"alignment_strategy": key}}
    with pytest.raises(ValueError, match="DPO of NxD Training is not modelled"):
        nxdt.layout_of(config)


@pytest.mark.parametrize(
    ("model", "knobs", "said"),
    [
        ("llama3.1-8b", {"zero": 2}, "no ZeRO stage 2"),
        ("qwen3-1.7b", {"pp": 2}, "tied embeddings"),
        ("deepseek-v3", {}, "latent attention"),
        ("gpt3-6.7b", {}, "models like Llama"),
        ("vit-base", {}, "trains decoders"),
        ("llama3.1-8b", {"vpp": 3, "pp": 2}, "do not divide"),
        ("llama3.1-8b", {"precision": "fp8"}, "no precision fp8"),
        ("llama3.1-8b", {"stage_split": "work"}, "share layers evenly"),
    ],
)
def test_what_it_lacks_is_refused_with_the_reason(model, knobs, said):
    plan = plan_of(model, "trn1.32xlarge", 2, **{"global_batch": 64, "sequence": 4096, **knobs})
    assert said in "; ".join(nxdt.FACTS.reasons(plan))

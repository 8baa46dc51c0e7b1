"""NeuronX Distributed Training 1.6: a Hydra YAML, read by its training orchestrator.

Keys and traps: config_overview.rst, examples/conf, train.sh and training_orchestrator.py of 1.6.0.
`train.sh` greps the line `devices:` and takes its second word, so the file has one such line. The
environment of the Neuron runtime and compiler, which Optimum Neuron shares, follows the Neuron SDK:
nxd-training environment variables, runtime configuration guide, logical core configuration.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from trnbench.facts.workload.layout import Value
from trnbench.facts.workload.model import ROTARY_BASE
from trnbench.facts.workload.recompute import PLAIN, Module, modules_of, recompute_named
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, Texts, nested, unwritten
from trnbench.launch.written import yaml_text

LAST_FULL_STACK = "Neuron SDK 2.28"
"""Later releases had NxD Training in maintenance, then without it in images."""
PARALLEL_COMPILE = "neuron_parallel_compile"
CONFIG = "nxdt.yaml"
DEGREES: Mapping[str, str] = {
    "tp": "distributed_strategy.tensor_model_parallel_size",
    "pp": "distributed_strategy.pipeline_model_parallel_size",
    "vpp": "distributed_strategy.virtual_pipeline_model_parallel_size",
    "cp": "distributed_strategy.context_parallel_size",
    "ep": "distributed_strategy.expert_model_parallel_size",
    "micro_batch": "data.micro_batch_size",
    "global_batch": "data.global_batch_size",
    "sequence": "model.encoder_seq_length",
}
PRECISIONS = {
    "bf16-master": "mixed_precision",
    "bf16-sr": "bf16SR",
    "bf16": "manual",
    "fp32": "fp32",
    "auto-cast-bf16": "autocast",
}
_TARGETS = {
    "attention": ["qkv_proj", "o_proj"],
    "all-linear": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
}
MODULES: Mapping[Module, str] = {
    "attention-core": "CoreAttention",
    "norms": "LlamaRMSNorm",
    "activations": "ActivationMultiplyMLP",
}
"""Module -> its name in activations_checkpoint_recompute."""
_NO_DPO = (
    "it runs the reference once, before the first step (precompute_ref_log_probs). Predictions "
    "have a reference in every step; --job orpo predicts steps without it"
)
_GIVEN = "???"
"""Hydra's mark for a value that the command line must give."""


def _config(plan: LaunchPlan) -> dict[str, object]:
    layout, transformer = plan.layout, plan.transformer
    attention, moe = plan.attention, transformer.moe
    assert attention is not None, "a model without attention was refused"
    name = "hf_mixtral" if moe else "hf_llama"
    base = transformer.position.rotary_base or ROTARY_BASE
    flat: dict[str, object] = {
        "name": name,
        "model_source": "hf",
        "seed": 1234,
        "trainer.devices": plan.host_ranks,
        "trainer.lnc": plan.cores_per_rank,
        "trainer.num_nodes": plan.hosts,
        "trainer.max_epochs": -1,
        "trainer.max_steps": plan.steps or 100,
        "trainer.log_every_n_steps": 1,
        "trainer.val_check_interval": (plan.steps or 100) + 1,
        "trainer.check_val_every_n_epoch": None,
        "trainer.num_sanity_val_steps": 0,
        "trainer.limit_val_batches": 0.0,
        "trainer.limit_test_batches": 0.0,
        "trainer.gradient_clip_val": 1.0,
        "trainer.sequential_move_factor": min(plan.host_ranks, 32),
        "exp_manager": {
            **{"log_local_rank_0_only": True, "create_tensorboard_logger": True},
            **{"explicit_log_dir": None, "exp_dir": None, "name": name},
            **{"resume_if_exists": True, "resume_ignore_no_checkpoint": True},
            "create_checkpoint_callback": True,
            "checkpoint_callback_params": {
                **{"monitor": "step", "save_top_k": 1, "mode": "max", "save_last": False},
                "filename": f"{plan.name}--{{step}}-{{consumed_samples}}",
                "every_n_train_steps": plan.checkpoint_steps,
                "model_parallel_size": layout.tp * layout.pp,
                "use_master_weights_in_ckpt": False,
            },
            **{"log_parameter_norm": True, "log_gradient_norm": True},
            **{"save_xser": True, "load_xser": True, "async_checkpointing": False},
            "resume_from_checkpoint": None,
        },
        **{key: getattr(layout, knob) for knob, key in DEGREES.items()},
        "distributed_strategy.zero1": layout.zero == 1,
        "distributed_strategy.sequence_parallel": layout.sequence_parallel,
        "distributed_strategy.kv_replicator": max(layout.tp // attention.kv_heads, 1),
        "data.train_dir": _GIVEN,
        "model.model_config": _GIVEN,
        "model.max_position_embeddings": layout.sequence,
        "model.num_layers": transformer.layers,
        "model.hidden_size": transformer.hidden,
        "model.qkv_linear": layout.tp > attention.kv_heads,
        "model.fuse_qkv": True,
        "model.rope_theta": base,
        "model.use_cpu_initialization": True,
        "model.activations_checkpoint_granularity": (
            {"none": None, "full": "full"}.get(layout.recompute, "selective")
        ),
        "model.activations_checkpoint_recompute": (
            [MODULES[module] for module in modules_of(layout.recompute)] or None
        ),
        "model.fusions.softmax": True,
        "model.fusions.flash_attention": layout.attention == "fused" and layout.cp == 1,
        "model.fusions.ring_attention": layout.cp > 1,
        "model.do_layer_norm_weight_decay": True,
        "model.optim": {
            "name": "adamw_fp32OptState" if layout.job in ("lora", "orpo") else "adamw",
            **{"lr": float(FACTS.defaults["LEARNING_RATE"]), "weight_decay": 0.1},
            **{"capturable": False, "betas": [0.9, 0.95]},
            "sched": {
                **{"name": "LinearAnnealingWithWarmUp", "warmup_steps": 10},
                "max_steps": plan.steps or 100,
            },
        },
        "precision.type": PRECISIONS[layout.precision],
        **{"precision.master_weights": False, "precision.fp32_grad_acc": False},
        "precision.xla_use_bf16": "1" if layout.precision == "bf16" else "0",
        "precision.xla_downcast_bf16": "0",
        "precision.neuron_rt_stochastic_rounding_en": "0",
        "compiler_flags": "--model-type transformer",
        "compiler_cache_url": _GIVEN,
        "aync_exec_max_inflight_requests": 5,  # spelt so
        "bucket_size_collectives": 1024,
        "neuron_rt_exec_timeout": 100,
        "neuron_experimental_compress_rg": False,
    }
    if moe is not None:
        flat |= {
            "model.moe.num_experts": moe.experts,
            "model.moe.top_k": moe.top_k,
            "model.moe.dropless": layout.capacity_factor is None,
            "model.moe.capacity_factor": layout.capacity_factor or 0.0,
        }
    return nested(flat | _alignment(plan))


def _alignment(plan: LaunchPlan) -> dict[str, object]:
    layout = plan.layout
    if layout.job == "pretrain":
        return {}
    settings: dict[str, object] = {
        "data.seq_length": layout.sequence,
        "data.tokenizer.type": _GIVEN,
        "model.weight_init_only": True,
    }
    # ORPO has a strategy of its own; packing belongs to supervised fine-tuning and its adapters.
    if layout.job == "orpo":
        # As here, a sample is a pair of answers: twice as many sequences are passed.
        return settings | {
            "model_alignment_strategy.orpo": {
                "beta": 0.1,
                "max_prompt_length": layout.sequence // 2,
                "truncation_mode": "keep_start",
            }
        }
    settings["model_alignment_strategy.sft.packing"] = True
    if layout.job == "lora" and layout.adapter_on is not None:
        settings["model_alignment_strategy.peft"] = {
            "lora_rank": layout.adapter_rank,
            **{"lora_alpha": 32, "lora_dropout": 0.05, "lora_bias": "none", "lora_verbose": True},
            "target_modules": _TARGETS[layout.adapter_on],
            **{"load_lora_from_ckpt": False, "save_lora_base": True, "merge_lora": False},
            **{"save_lora_config_adapter": True, "merge_sharded_lora": False},
        }
    return settings


def _files(plan: LaunchPlan, stamp: str) -> Texts:
    return {CONFIG: yaml_text(_config(plan), head=(stamp,))}


def _arguments(plan: LaunchPlan) -> Iterator[str]:
    given = {
        "trainer.max_steps": "${MAX_STEPS}",
        "model.optim.lr": "${LEARNING_RATE}",
        "model.optim.sched.max_steps": "${MAX_STEPS}",
        "model.model_config": "${MODEL_DIR}/config.json",
        "data.train_dir": "${DATA_DIR}",
        "compiler_cache_url": "${COMPILE_CACHE}",
        "exp_manager.explicit_log_dir": "${CHECKPOINT_DIR}",
    }
    if plan.layout.job != "pretrain":
        given["data.tokenizer.type"] = "${TOKENIZER_DIR}"
        given["exp_manager.resume_from_checkpoint"] = "${MODEL_DIR}"
    yield from ("--config-path=${LAUNCH_DIR}", f"--config-name={CONFIG.removesuffix('.yaml')}")
    yield from (f"{key}={value}" for key, value in given.items())


def _environment(plan: LaunchPlan) -> Mapping[str, str]:
    return {**xla_environment(plan), "XLA_DISABLE_FUNCTIONALIZATION": "0", "HYDRA_FULL_ERROR": "1"}


def _refusals(plan: LaunchPlan) -> Iterator[str]:
    layout, transformer, vocabulary = plan.layout, plan.transformer, plan.model.vocabulary
    mlp = transformer.mlp if transformer.moe is None else transformer.moe.expert
    if transformer.norm != "rms" or mlp is None or not mlp.gated:
        yield "NxD Training reads models like Llama and Mixtral here: RMS norms and gated MLPs"
    yield from unwritten(plan)
    if layout.pp > 1 and vocabulary is not None and vocabulary.tied:
        yield "NxD Training does not run tied embeddings in a pipeline; try --pp 1"
    if layout.cp > 1 and layout.attention == "naive":
        yield "NxD Training runs context parallelism with ring attention alone; try fused attention"
    if layout.zero > 1:
        yield f"NxD Training has no ZeRO stage {layout.zero}; try --zero 1"
    if layout.vpp > 1 and transformer.layers % (layout.pp * layout.vpp):
        parts = layout.pp * layout.vpp
        yield f"{transformer.layers} layers do not divide into pp x vpp = {parts} chunks"
    if layout.job == "orpo" and layout.adapter_rank is not None:
        yield "NxD Training's adapters are for supervised fine-tuning; leave --adapter-rank out"
    if layout.job == "lora" and layout.zero:
        yield "LoRA of NxD Training does not run with ZeRO; try --zero 0"
    if layout.job == "lora" and layout.precision != "auto-cast-bf16":
        yield "LoRA of NxD Training needs its autocast; try --precision auto-cast-bf16"


def _recompute(granularity: object, modules: object) -> str:
    if granularity != "selective":
        return "none" if granularity is None else str(granularity)
    words = modules if isinstance(modules, list) else []
    named = {spelled: name for name, spelled in MODULES.items()}
    if unknown := next((word for word in words if word not in named), None):
        raise ValueError(f"recompute of {unknown} is not modelled; modelled: {', '.join(named)}")
    return recompute_named(",".join(named[word] for word in words) or "selective")


def layout_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """Knobs that a configuration settles."""

    def at(key: str, otherwise: Any = None) -> Any:  # noqa: ANN401
        table: Any = config
        for part in key.split("."):
            table = table.get(part) if isinstance(table, Mapping) else None
        return otherwise if table is None else table

    knobs: dict[str, Value] = {
        knob: at(key, 1)
        for knob, key in DEGREES.items()
        if at(key) is not None or knob not in ("micro_batch", "global_batch", "sequence")
    }
    if (length := at("data.seq_length")) is not None:
        knobs["sequence"] = length
    recipes = {spelled: name for name, spelled in PRECISIONS.items()}
    # Read in both spellings; never written, as no recipe of PRECISIONS rounds a master copy so.
    recipes |= {"mixed_precisionSR": "bf16-sr-master", "mixed_precision_SR": "bf16-sr-master"}
    if (kind := at("precision.type")) in recipes:
        knobs["precision"] = recipes[kind]
    # Ring attention is a fused kernel, whatever the switch of flash attention says.
    ring = bool(at("model.fusions.ring_attention", False))
    fused = ring or bool(at("model.fusions.flash_attention", False))
    knobs |= {
        "zero": int(bool(at("distributed_strategy.zero1", False))),
        "sequence_parallel": bool(at("distributed_strategy.sequence_parallel", False)),
        "recompute": _recompute(
            at("model.activations_checkpoint_granularity"),
            at("model.activations_checkpoint_recompute"),
        ),
        "attention": "fused" if fused else "naive",
        "schedule": "interleaved" if knobs["vpp"] != 1 else "1f1b",
        "context_parallel": "ring",
    }
    # Dropless routing drops no token, so a capacity factor beside it says nothing.
    if (factor := at("model.moe.capacity_factor")) and not at("model.moe.dropless", False):
        knobs["capacity_factor"] = factor
    if at("model_alignment_strategy.dpo") or at("data.alignment_strategy.dpo"):
        raise ValueError(f"DPO of NxD Training is not modelled: {_NO_DPO}")
    peft = at("model_alignment_strategy.peft")
    if peft:
        every = set(peft.get("target_modules", ())) - set(_TARGETS["attention"])
        knobs |= {"job": "lora", "adapter_rank": peft.get("lora_rank", 16)}
        knobs["adapter_on"] = "all-linear" if every else "attention"
    elif at("model_alignment_strategy.orpo"):
        knobs["job"] = "orpo"
    elif at("model_alignment_strategy") or at("data.alignment_strategy"):
        knobs["job"] = "finetune"
    return knobs


FACTS = Framework(
    name="nxdt",
    title="NxD Training",
    versions=f"NxD Training 1.6.0, {LAST_FULL_STACK}, PyTorch/XLA",
    source="neuronx-distributed-training 1.6.0: config_overview.rst, examples",
    date=datetime.date(2025, 9, 22),
    jobs=("pretrain", "finetune", "lora", "orpo"),
    no_jobs={"dpo": _NO_DPO},
    fixed={
        "context_parallel": ("ring", "NxD Training has no all-to-all context exchange"),
        "stage_split": (
            "layers",
            "its stages share layers evenly: it partitions them itself (auto_partition)",
        ),
        "loss": ("full", "NxD Training makes the logits of all tokens"),
        "frozen_format": ("none", "NxD Training stores frozen weights as the precision has them"),
    },
    recompute=(*PLAIN, *MODULES),
    precisions=PRECISIONS,
    refusals=_refusals,
    files=_files,
    folder="${CODE_DIR}/examples",
    script=("training_orchestrator.py",),
    arguments=_arguments,
    environment=_environment,
    defaults={"LEARNING_RATE": "1.5e-5"},
    compiler=PARALLEL_COMPILE,
    not_written={
        "pipeline_layout": "pipeline_cuts are an argument of NxD Core and no key of its "
        "configuration, which partitions layers evenly itself"
    },
    assumes=(
        "the software is that of Neuron SDK 2.28: later images and containers leave NxD Training "
        "out (a DLAMI up to SDK 2.30.0 has it)",
        "CODE_DIR is a clone of github.com/aws-neuron/neuronx-distributed-training, release 1.6.0; "
        "ORPO needs its alignment_requirements.txt too",
    ),
)


def xla_environment(plan: LaunchPlan) -> dict[str, str]:
    """Environment of the Neuron runtime, for SDKs up to 2.30."""
    environment = {
        "NEURON_RT_NUM_CORES": str(plan.host_ranks),
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "5",
        "NEURON_RT_EXEC_TIMEOUT": "100",
        "NEURON_PROCESS_TAG": plan.name,
        "NEURON_COMPILE_CACHE_URL": "${COMPILE_CACHE}",
        "MALLOC_ARENA_MAX": "128" if plan.layout.pp > 1 else "64",
    }
    if plan.cores_per_rank > 1 or plan.logical_size is not None:
        environment["NEURON_LOGICAL_NC_CONFIG"] = str(plan.cores_per_rank)
    return environment

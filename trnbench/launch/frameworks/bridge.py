"""Megatron Bridge: its recipe runner, with overrides of the recipe's configuration.

Sources: scripts/training/run_recipe.py and README, the guide from Megatron-LM to Megatron Bridge
(2026-08).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from trnbench.errors import InputError
from trnbench.facts.workload.choices import neighbours_of
from trnbench.facts.workload.layout import Value
from trnbench.launch.arguments import Flags, number, whole
from trnbench.launch.frameworks import megatron
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework

DEGREES: Mapping[str, str] = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "vpp": "model.virtual_pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "micro_batch": "train.micro_batch_size",
    "global_batch": "train.global_batch_size",
    "sequence": "model.seq_length",
}
EXPERT_TP = "model.expert_tensor_parallel_size"
INSIDE = "model.hierarchical_context_parallel_sizes"
DEPTHS = "model.mtp_num_layers"
OFFLOAD = "optimizer.optimizer_cpu_offload"
OFFLOAD_SHARE = "optimizer.optimizer_offload_fraction"
MEANWHILE = f"comm_overlap.{megatron.MEANWHILE}"
DRAWN = "model.pipeline_model_parallel_layout"
_PRECISIONS = {
    "bf16-master": "bf16_mixed",
    "fp16-master": "fp16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_TARGETS = {
    "attention": "[linear_qkv,linear_proj]",
    "all-linear": "[linear_qkv,linear_proj,linear_fc1,linear_fc2]",
}
_MODES = {"pretrain": "pretrain", "finetune": "sft", "lora": "lora"}


def _settings(plan: LaunchPlan) -> Iterator[tuple[str, object]]:
    layout = plan.layout
    for knob, key in DEGREES.items():
        if knob == "vpp":
            drawn = layout.pipeline_layout is not None
            yield key, layout.vpp if layout.vpp > 1 and not drawn else "null"
        else:
            yield key, getattr(layout, knob)
    if layout.pipeline_layout is not None:
        # (What overrides are written in has signs of its own: quotes keep these whole.)
        yield DRAWN, f"'{layout.pipeline_layout}'"
    yield "dataset.seq_length", layout.sequence
    yield "model.sequence_parallel", _spelled(layout.sequence_parallel)
    if layout.cp > 1:
        yield "model.cp_comm_type", megatron.EXCHANGES.get(layout.context_parallel, megatron.HYBRID)
        if inside := neighbours_of(layout.context_parallel):
            yield INSIDE, f"[{inside},{layout.cp // inside}]"
    again = megatron.recompute_settings(layout.recompute) or {"recompute_granularity": "null"}
    for name, value in again.items():
        yield f"model.{name}", f"[{','.join(value)}]" if isinstance(value, list) else value
    yield "model.attention_backend", "flash" if layout.attention == "fused" else "unfused"
    yield "ddp.use_distributed_optimizer", _spelled(layout.zero > 0)
    if layout.optimizer_offload == "host":
        yield OFFLOAD, "true"
        yield OFFLOAD_SHARE, "1.0"
        yield "optimizer.use_precision_aware_optimizer", "true"
    if layout.zero in megatron.SHARDED:
        yield "ddp.use_megatron_fsdp", "true"
        yield "ddp.data_parallel_sharding_strategy", megatron.SHARDED[layout.zero]
    yield "mixed_precision", _PRECISIONS[layout.precision]
    if layout.expert_tp is not None:
        yield EXPERT_TP, layout.expert_tp
    if plan.depths or layout.mtp_depths == 0:
        yield DEPTHS, plan.depths or "null"
    if layout.dispatcher is not None:
        for name, value in megatron.dispatch_settings(layout).items():
            yield f"model.{name}", value
    if layout.overlapped is not None:
        yield MEANWHILE, _spelled(layout.overlapped == "on")
    if layout.capacity_factor is not None:
        yield "model.moe_expert_capacity_factor", layout.capacity_factor
    if layout.job == "lora" and layout.adapter_on is not None:
        yield "peft.dim", layout.adapter_rank
        yield "peft.target_modules", _TARGETS[layout.adapter_on]
    yield from (("train.train_iters", "${MAX_STEPS}"), ("optimizer.lr", "${LEARNING_RATE}"))
    yield from (("checkpoint.save", "${CHECKPOINT_DIR}"), ("checkpoint.load", "${CHECKPOINT_DIR}"))
    yield "checkpoint.save_interval", plan.checkpoint_steps
    if layout.job != "pretrain":
        yield "checkpoint.pretrained_checkpoint", "${MODEL_DIR}"
    data = "dataset.data_path" if layout.job == "pretrain" else "dataset.dataset_root"
    yield from ((data, "${DATA_DIR}"), ("logger.log_interval", 1))


def _spelled(value: bool) -> str:
    return str(value).lower()


def _arguments(plan: LaunchPlan) -> Iterator[str]:
    job = plan.layout.job
    data = "megatron-indexed" if job == "pretrain" else "local-jsonl"
    yield from ("--recipe", "${RECIPE}", "--mode", _MODES[job], "--dataset", data)
    yield from (f"{key}={value}" for key, value in _settings(plan))


def layout_of(flags: Flags) -> dict[str, Value]:
    """Knobs that overrides settle; the recipe's own values are unknown here."""
    overrides = flags.settings
    knobs: dict[str, Value] = {
        knob: whole(flags.of, key, overrides[key])
        for knob, key in DEGREES.items()
        if overrides.get(key, "null") != "null"
    }
    # "null" is a value here, which takes back the recipe's; a missing key leaves the recipe's.
    if overrides.get(DEGREES["vpp"]) == "null":
        knobs["vpp"] = 1
    if (drawn := overrides.get(DRAWN, "null").strip("'\"")) != "null":
        knobs |= megatron.drawn_knobs(flags.of, drawn, int(knobs.get("pp", 1)))
    if "vpp" in knobs:
        knobs["schedule"] = "interleaved" if knobs["vpp"] != 1 else "1f1b"
    switches = {"true": True, "false": False}
    if (value := switches.get(overrides.get("model.sequence_parallel", "").lower())) is not None:
        knobs["sequence_parallel"] = value
    if (
        value := switches.get(overrides.get("ddp.use_distributed_optimizer", "").lower())
    ) is not None:
        knobs["zero"] = int(value)
    fsdp = {cut: stage for stage, cut in megatron.SHARDED.items()}
    cut = overrides.get("ddp.data_parallel_sharding_strategy", "")
    if overrides.get("ddp.use_megatron_fsdp", "").lower() == "true" and cut in fsdp:
        knobs["zero"] = fsdp[cut]
    if (kept := overrides.get("model.recompute_granularity")) is not None:
        some = overrides.get("model.recompute_num_layers", "1")
        knobs["recompute"] = megatron.recompute_of(
            flags.of,
            kept,
            overrides.get("model.recompute_method"),
            whole(flags.of, "model.recompute_num_layers", some) if some != "null" else 1,
            overrides.get("model.recompute_modules", "").replace("null", ""),
        )
    if (backend := overrides.get("model.attention_backend")) is not None:
        knobs["attention"] = "naive" if backend in ("unfused", "local") else "fused"
    if (how := overrides.get("model.cp_comm_type")) in (
        megatron.HYBRID,
        *megatron.EXCHANGES.values(),
    ):
        knobs["context_parallel"] = megatron.exchange_of(how, overrides.get(INSIDE))
    recipes = {spelled: name for name, spelled in _PRECISIONS.items()}
    recipes["bf16_with_fp8_current_scaling_mixed"] = "fp8"
    if (recipe := overrides.get("mixed_precision", "null")) != "null":
        if recipe not in recipes:
            raise InputError(
                f"{flags.of}: mixed_precision {recipe!s:.60} is not modelled; modelled: "
                f"{', '.join(recipes)}",
                hint="give --precision with --config, and take it out of the file",
            )
        knobs["precision"] = recipes[recipe]
    if overrides.get(EXPERT_TP, "null") != "null":
        knobs["expert_tp"] = whole(flags.of, EXPERT_TP, overrides[EXPERT_TP])
    if overrides.get(OFFLOAD, "").lower() == "true":
        knobs["optimizer_offload"] = megatron.offload_of(
            flags.of, overrides.get(OFFLOAD_SHARE, "1.0")
        )
    if (depths := overrides.get(DEPTHS)) is not None:
        knobs["mtp_depths"] = 0 if depths == "null" else whole(flags.of, DEPTHS, depths)
    if knobs.get("ep", 1) != 1:
        kind, backend = (overrides.get(f"model.{key}") for key in megatron.DISPATCHED_BY)
        knobs |= megatron.dispatch_knobs(kind, backend)
        if (meanwhile := switches.get(overrides.get(MEANWHILE, "").lower())) is not None:
            knobs["overlapped"] = "on" if meanwhile else "off"
    if (factor := overrides.get("model.moe_expert_capacity_factor")) is not None:
        knobs["capacity_factor"] = number(flags.of, "model.moe_expert_capacity_factor", factor)
    modes = {spelled: job for job, spelled in _MODES.items()}
    if (mode := flags.text("mode")) in modes:
        knobs["job"] = modes[mode]
    if knobs.get("job") == "lora":
        wide = "linear_fc1" in overrides.get("peft.target_modules", "linear_fc1")
        knobs["adapter_rank"] = whole(flags.of, "peft.dim", overrides.get("peft.dim"), 32)
        knobs["adapter_on"] = "all-linear" if wide else "attention"
    return knobs


FACTS = Framework(
    name="megatron-bridge",
    title="Megatron Bridge",
    versions="Megatron Bridge of 2026-08",
    source="Megatron-Bridge: scripts/training, guide from Megatron-LM",
    date=datetime.date(2026, 8, 22),
    jobs=("pretrain", "finetune", "lora"),
    no_jobs=megatron.NO_JOBS,
    fixed=megatron.FIXED,
    recompute=megatron.RECOMPUTE,
    precisions=_PRECISIONS,
    refusals=megatron.refusals,
    folder="${CODE_DIR}",
    script=("scripts/training/run_recipe.py",),
    arguments=_arguments,
    environment=megatron.gpu_environment,
    defaults={"LEARNING_RATE": "3e-4"},
    assumes=(
        "CODE_DIR is a clone of github.com/NVIDIA-NeMo/Megatron-Bridge as of 2026-08, with its "
        "requirements, or the NeMo container",
        "RECIPE is a recipe of this very model: the shape is not written here",
    ),
    writes=megatron.WRITES,
)

"""Optimum Neuron 0.4: a script with its trainers, and their arguments.

Sources: optimum/neuron/trainers/training_args.py, examples/training/llama (0.4.6.dev4).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from trnbench.facts.workload.layout import Value
from trnbench.launch.arguments import Flags
from trnbench.launch.frameworks.nxdt import PARALLEL_COMPILE, xla_environment
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework
from trnbench.launch.written import from_template

SCRIPT = "train_optimum.py"
_PRECISIONS = {"bf16-sr-master": "mixed", "bf16-master": "mixed", "bf16-sr": "bf16", "bf16": "bf16"}
REPLICA_BATCH = "replica_batch"
"""Read back with the knobs: samples of a replica in a step, until the replicas are known."""
_PLAIN: Mapping[str, str] = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}


def _arguments(plan: LaunchPlan) -> Iterator[str]:
    layout, attention = plan.layout, plan.attention

    def flag(name: str, value: object) -> tuple[str, str]:
        return f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)

    yield from flag("model_id", "${MODEL_DIR}")
    yield from flag("data", "${DATA_DIR}")
    yield from flag("job", layout.job)
    yield from flag("sequence", layout.sequence)
    if layout.job == "lora":
        yield from flag("adapter_rank", layout.adapter_rank)
        yield from flag("adapter_on", layout.adapter_on)
    yield "--do_train"
    yield from flag("max_steps", "${MAX_STEPS}")
    yield from flag("learning_rate", "${LEARNING_RATE}")
    yield from flag("per_device_train_batch_size", layout.micro_batch)
    yield from flag("gradient_accumulation_steps", plan.micro_batches)
    if layout.pp > 1:
        # Accumulation is folded into the batch of a pipeline.
        yield from flag("pipeline_parallel_num_microbatches", plan.micro_batches)
    for knob, name in _PLAIN.items():
        yield from flag(name, getattr(layout, knob))
    if layout.tp > attention.kv_heads:
        yield from flag("kv_size_multiplier", layout.tp // attention.kv_heads)
    yield from flag("zero_1", layout.zero == 1)
    yield from flag("disable_sequence_parallel", not layout.sequence_parallel)
    yield from flag("gradient_checkpointing", layout.recompute == "full")
    yield from flag("bf16", True)
    yield from flag("optimizer_use_master_weights", layout.precision.endswith("master"))
    yield from flag("optimizer_use_fp32_grad_acc", layout.precision.endswith("master"))
    yield from flag("stochastic_rounding_enabled", "-sr" in layout.precision)
    yield from flag("logging_steps", 1)
    yield from flag("save_strategy", "steps")
    yield from flag("save_steps", plan.checkpoint_steps)
    yield from flag("output_dir", "${CHECKPOINT_DIR}")


def _environment(plan: LaunchPlan) -> Mapping[str, str]:
    flags = "--model-type transformer --retry_failed_compilation"
    return {**xla_environment(plan), "NEURON_CC_FLAGS": flags, "NEURON_FUSE_SOFTMAX": "1"}


def _refusals(plan: LaunchPlan) -> Iterator[str]:
    layout = plan.layout
    if layout.zero > 1:
        yield f"Optimum Neuron has no ZeRO stage {layout.zero}; try --zero 1"
    if layout.zero == 0 and layout.precision.endswith("master"):
        yield "Optimum Neuron switches master weights off without ZeRO; try --zero 1"
    if layout.recompute == "selective":
        yield "Optimum Neuron recomputes whole layers or nothing; try --recompute full"


def layout_of(flags: Flags) -> dict[str, Value]:
    """Knobs that arguments settle."""
    knobs: dict[str, Value] = {knob: flags.whole(name, 1) for knob, name in _PLAIN.items()}
    knobs |= {
        **_batch(flags),
        "zero": int(flags.true("zero_1", otherwise=True)),
        "sequence_parallel": not flags.true("disable_sequence_parallel"),
        "recompute": "full" if flags.true("gradient_checkpointing") else "none",
        **{"cp": 1, "ep": 1, "vpp": 1, "schedule": "1f1b", "attention": "fused"},
        **{"context_parallel": "ring", "precision": _precision(flags)},
    }
    for name in ("sequence", "max_seq_length", "block_size"):
        if name in flags:
            knobs["sequence"] = flags.whole(name)
    job = flags.text("job")
    if job is not None:
        knobs["job"] = job
    if job == "lora":
        knobs["adapter_rank"] = flags.whole("adapter_rank", 16)
        knobs["adapter_on"] = flags.text("adapter_on") or "all-linear"
    return knobs


def _batch(flags: Flags) -> dict[str, Value]:
    each = flags.whole("per_device_train_batch_size", 8)
    replica = each * flags.whole("gradient_accumulation_steps", 1)
    piped = flags.whole("pipeline_parallel_size", 1) > 1
    if not piped:
        return {"micro_batch": each, REPLICA_BATCH: replica}
    # In a pipeline the whole is one batch, cut into this number of micro-batches, or into single
    # samples.
    count = flags.text("pipeline_parallel_num_microbatches") or "-1"
    parts = replica if count == "-1" else flags.whole("pipeline_parallel_num_microbatches")
    return {"micro_batch": max(replica // parts, 1), REPLICA_BATCH: replica}


def _precision(flags: Flags) -> str:
    # Without ZeRO, Optimum Neuron switches master weights off, whatever their own switch says.
    master = flags.true("optimizer_use_master_weights", otherwise=True)
    rounded = flags.true("stochastic_rounding_enabled", otherwise=True)
    if master and flags.true("zero_1", otherwise=True):
        return "bf16-sr-master" if rounded else "bf16-master"
    return "bf16-sr" if rounded else "bf16"


FACTS = Framework(
    name="optimum-neuron",
    title="Optimum Neuron",
    versions="Optimum Neuron 0.4, Neuron SDK 2.26.1",
    source="optimum-neuron 0.4.6.dev4: training_args.py, examples/training",
    date=datetime.date(2026, 8, 19),
    jobs=("pretrain", "finetune", "lora"),
    fixed={
        "cp": (1, "Optimum Neuron has no context parallelism"),
        "ep": (1, "Optimum Neuron has no expert parallelism"),
        "vpp": (1, "Optimum Neuron has no model chunks"),
        "schedule": ("1f1b", "Optimum Neuron runs pipelines as 1F1B"),
        "attention": ("fused", "its models are loaded with fused attention"),
        "loss": ("full", "Optimum Neuron makes the logits of all tokens"),
        "stage_split": ("layers", "its stages share layers evenly"),
        "frozen_format": ("none", "Optimum Neuron stores frozen weights as the precision has them"),
    },
    precisions=_PRECISIONS,
    refusals=_refusals,
    files=lambda plan, stamp: {SCRIPT: from_template("train_optimum.py", stamp=stamp)},
    folder="${LAUNCH_DIR}",
    script=(f"${{LAUNCH_DIR}}/{SCRIPT}",),
    arguments=_arguments,
    environment=_environment,
    defaults={"LEARNING_RATE": "1e-4"},
    compiler=PARALLEL_COMPILE,
    assumes=(
        "Optimum Neuron 0.4 with the Neuron SDK that it pins (2.26.1) is installed",
        "MODEL_DIR is a model of which Optimum Neuron has its own code (Llama, Qwen3, Granite); "
        "training starts from its weights, pre-training too",
        "DATA_DIR holds JSON lines with a key text",
    ),
)

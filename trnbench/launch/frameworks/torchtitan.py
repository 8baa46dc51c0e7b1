"""torchtitan: a Python function that returns a configuration, made from that of the model.

Sources: torchtitan/config of 2026-08 (README, parallelism.py, training.py; before, configs.py with
batches in samples), torchtitan-neuron 0.2.2 (beta) of Neuron SDK 2.33.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterator, Mapping

from trnbench.facts.workload.layout import Value
from trnbench.launch.arguments import whole
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, Texts
from trnbench.launch.written import from_template

MODULE = "launch_config"
FUNCTION = "layout"
DEGREES: Mapping[str, str] = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
_SCHEDULE_OF = {
    **{spelled: name for name, spelled in SCHEDULES.items()},
    "ZBVZeroBubble": "zb-h1",
    "InterleavedZeroBubble": "zb-h1",
}
_RECOMPUTE = {"none": None, "selective": "SelectiveAC", "full": "FullAC"}
_PRECISIONS = {"bf16-master": "float32", "bf16": "bfloat16", "fp32": "float32"}
_KNOWN: Mapping[str, tuple[str, str]] = {
    "llama3.1-8b": ("llama3", "llama3_8b"),
    "llama3.1-70b": ("llama3", "llama3_70b"),
    "llama3.1-405b": ("llama3", "llama3_405b"),
}
"""Models with a shipped configuration -> torchtitan's folder of models, its function."""


def parallelism(plan: LaunchPlan) -> dict[str, object]:
    """Fields of `parallelism`."""
    layout = plan.layout
    # Context ranks share a sequence and always shard: torchtitan multiplies by them itself.
    shards = 1 if layout.zero == 0 else (layout.shard or layout.dp * layout.cp) // layout.cp
    settings: dict[str, object] = {
        "data_parallel_replicate_degree": layout.dp // shards,
        "data_parallel_shard_degree": shards,
        "fsdp_reshard_after_forward": "always" if layout.zero == 3 else "never",
        "enable_sequence_parallel": layout.sequence_parallel,
        **{field: getattr(layout, knob) for knob, field in DEGREES.items()},
        "pipeline_parallel_schedule": SCHEDULES.get(layout.schedule),
    }
    if layout.pp > 1:
        parts = layout.pp * layout.vpp
        settings["pipeline_parallel_layers_per_stage"] = plan.transformer.layers // parts
        settings["pipeline_parallel_first_stage_less_layers"] = 0
        settings["pipeline_parallel_last_stage_less_layers"] = 0
    return settings


def _files(plan: LaunchPlan, stamp: str) -> Texts:
    layout = plan.layout
    text = from_template(
        "launch_config.py",
        stamp=stamp,
        plan=plan,
        function=FUNCTION,
        parallelism=parallelism(plan),
        recompute=_RECOMPUTE[layout.recompute],
        dtype=_PRECISIONS[layout.precision],
        parameters="float32" if layout.precision == "fp32" else "bfloat16",
    )
    return {f"{MODULE}.py": text}


def _environment(plan: LaunchPlan) -> Mapping[str, str]:
    given = {name: f"${{{name}}}" for name in ("MODEL_MODULE", "MODEL_CONFIG", "TOKENIZER_DIR")}
    given |= {name: f"${{{name}}}" for name in ("DATA_DIR", "CHECKPOINT_DIR", "MAX_STEPS")}
    given |= {"LEARNING_RATE": "${LEARNING_RATE}", "PYTHONPATH": "${LAUNCH_DIR}"}
    if plan.neuron and plan.logical_size is not None:
        given["NEURON_LOGICAL_NC_CONFIG"] = str(plan.cores_per_rank)
    return given


def _refusals(plan: LaunchPlan) -> Iterator[str]:
    layout, layers = plan.layout, plan.transformer.layers
    if layout.dp * layout.cp > 1 and layout.zero in (1, 2):
        yield f"torchtitan shards by FSDP: no ZeRO stage {layout.zero}; try --zero 3"
    if layout.precision == "bf16-master" and layout.dp * layout.cp == 1:
        yield "torchtitan mixes precisions by FSDP, over several replicas; try --precision bf16"
    if layout.cp > 1 and layout.zero == 0:
        yield "torchtitan shards over ranks that share a sequence; try --zero 3"
    if layers % (layout.pp * layout.vpp):
        parts = layout.pp * layout.vpp
        yield f"{layers} layers do not divide into pp x vpp = {parts} stages"
    if layout.shard is not None and layout.shard % layout.cp:
        yield f"torchtitan shards over all ranks of a sequence; try --shard {layout.cp}"
    if layout.capacity_factor is not None:
        yield "torchtitan drops no tokens of experts; leave --capacity-factor out"


def known_defaults(plan: LaunchPlan) -> Mapping[str, str]:
    """Configuration of a model that torchtitan ships, as user values."""
    folder, function = _KNOWN.get(plan.model.name, ("", ""))
    if not folder:
        return {}
    own = "torchtitan_neuron" if plan.neuron else "torchtitan"
    module = f"{own}.models.{folder}" + ("" if plan.neuron else ".config_registry")
    return {"MODEL_MODULE": module} | ({} if plan.neuron else {"MODEL_CONFIG": function})


def layout_of_function(of: str, text: str) -> dict[str, Value]:
    """Knobs that a configuration function settles by keyword arguments and fields."""
    # A syntax tree is read, nothing is run: constants of keyword arguments and assignments.
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"not Python: {error}") from None
    modes = {spelled: mode for mode, spelled in _RECOMPUTE.items() if spelled}
    settings: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            settings |= {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if keyword.arg and isinstance(keyword.value, ast.Constant)
            }
            if (name := _called(node.func)) in modes:
                settings["mode"] = modes[name]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    settings[target.attr] = node.value.value
                elif isinstance(target, ast.Name):
                    # A plain name may be any constant: fields of the configuration win.
                    settings.setdefault(target.id, node.value.value)
    return layout_of(of, settings)


def _called(function: ast.expr) -> str:
    """Last name of a called function, before .Config."""
    if isinstance(function, ast.Attribute) and function.attr == "Config":
        function = function.value
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def layout_of(of: str, settings: Mapping[str, object]) -> dict[str, Value]:
    """Knobs that fields of a configuration settle, by their names."""
    knobs: dict[str, Value] = {
        knob: whole(of, field, settings.get(field), 1) for knob, field in DEGREES.items()
    }
    sequence = settings.get("sequence", settings.get("max_context_length", settings.get("seq_len")))
    if sequence is not None:
        knobs["sequence"] = whole(of, "sequence", sequence)
    if "local_batch_size" in settings:
        knobs["micro_batch"] = whole(of, "local_batch_size", settings["local_batch_size"])
        if knobs["pp"] != 1 and "pipeline_parallel_microbatch_size" in settings:
            size = settings["pipeline_parallel_microbatch_size"]
            knobs["micro_batch"] = whole(of, "pipeline_parallel_microbatch_size", size)
    if settings.get("global_batch_size", -1) != -1:
        knobs["global_batch"] = whole(of, "global_batch_size", settings["global_batch_size"])
    # As `launch` writes them; then the fields of newer versions, which count tokens.
    for knob in ("micro_batch", "global_batch"):
        if knob in settings:
            knobs[knob] = whole(of, knob, settings[knob])
    for knob, field in (
        ("micro_batch", "num_tokens_per_microbatch_per_dp_rank"),
        ("global_batch", "num_tokens_per_train_step"),
    ):
        if settings.get(field, -1) != -1 and "sequence" in knobs:
            knobs[knob] = whole(of, field, settings[field]) // int(knobs["sequence"])
    replicas = settings.get("data_parallel_replicate_degree", 1)
    shards = settings.get("data_parallel_shard_degree", -1)
    gathered = settings.get("fsdp_reshard_after_forward", "default") != "never"
    # A single shard is plain data parallelism; in a pipeline, weights may stay gathered (stage 2).
    alone = shards == 1 and knobs["cp"] == 1
    knobs["zero"] = 0 if alone else 3 if gathered or knobs["pp"] == 1 else 2
    if isinstance(replicas, int) and isinstance(shards, int) and shards > 0:
        knobs["dp"] = replicas * shards
        if replicas > 1 and not alone:
            knobs["shard"] = shards * int(knobs["cp"])
    schedule = _SCHEDULE_OF.get(str(settings.get("pipeline_parallel_schedule", "1F1B")), "1f1b")
    layers, held = settings.get("LAYERS"), settings.get("pipeline_parallel_layers_per_stage")
    if schedule != "interleaved":
        knobs["vpp"] = 1
    elif isinstance(layers, int) and isinstance(held, int):
        knobs["vpp"] = max(layers // (held * int(knobs["pp"])), 1)
    pure = settings.get("dtype") == "bfloat16"
    plain = settings.get("mixed_precision_param") == "float32"
    mode = settings.get("mode", "none")
    return knobs | {
        "schedule": schedule,
        "sequence_parallel": bool(settings.get("enable_sequence_parallel", True)),
        "recompute": mode if mode in _RECOMPUTE else "none",
        **{"attention": "fused", "context_parallel": "ring"},
        "precision": "bf16" if pure else "fp32" if plain else "bf16-master",
    }


FACTS = Framework(
    name="torchtitan",
    title="torchtitan",
    versions="torchtitan of 2026-08; on Trainium torchtitan-neuron 0.2.2 (beta), Neuron SDK 2.33",
    source="torchtitan: torchtitan/config; AWS Neuron docs, TorchTitan Neuron",
    date=datetime.date(2026, 10, 19),
    jobs=("pretrain",),
    no_jobs={
        "grpo": "its reinforcement learning (torchtitan/rl) is a program of its own, of which no "
        "configuration is written here"
    },
    fixed={
        "attention": ("fused", "its models call fused attention"),
        "context_parallel": ("ring", "its context parallelism gathers keys and values in turn"),
        "stage_split": ("layers", "stages are written with as many layers each"),
        "frozen_format": ("none", "it stores weights as the precision has them"),
        "loss": ("full", "its loss takes the logits of all tokens"),
    },
    schedules=("1f1b", "interleaved", "gpipe"),
    precisions=_PRECISIONS,
    writes=frozenset({"shard"}),
    not_written={
        "optimizer_offload": "its enable_cpu_offload takes weights and gradients to the host too"
    },
    refusals=_refusals,
    files=_files,
    folder="${CODE_DIR}",
    script=("-m", "torchtitan.train"),
    arguments=lambda plan: ("--module", MODULE, "--config", FUNCTION),
    environment=_environment,
    defaults={"LEARNING_RATE": "3e-4"},
    own_defaults=known_defaults,
    assumes=(
        "CODE_DIR is a clone of github.com/pytorch/torchtitan as of 2026-08 (on Trainium of "
        "github.com/aws-neuron/torchtitan-neuron, on PyTorch 2.14 and torch-neuronx), installed",
        "MODEL_MODULE and MODEL_CONFIG name a function that returns the model's Trainer.Config",
        "DATA_DIR is a data set by name or folder, as that configuration's loader takes it",
    ),
)

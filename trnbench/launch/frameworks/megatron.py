"""Megatron-LM: arguments of pretrain_gpt.py. Megatron Bridge shares its facts of Megatron Core.

Sources: megatron/training/arguments.py and examples/llama of Megatron-LM (2026-08-22).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping

from trnbench.errors import MOST_NAMED, InputError, listed
from trnbench.facts.workload import recompute
from trnbench.facts.workload.choices import Job, neighbours_of
from trnbench.facts.workload.layout import Layout, Value
from trnbench.facts.workload.model import ROTARY_BASE
from trnbench.facts.workload.pipeline_layout import drawn_text, stages_of
from trnbench.launch.arguments import BESIDE, Flags, number
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, unwritten

DEGREES: Mapping[str, str] = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "vpp": "num-virtual-stages-per-pipeline-rank",
    "micro_batch": "micro-batch-size",
    "global_batch": "global-batch-size",
    "sequence": "seq-length",
}
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "bf16-master": ("--bf16",),
    "fp16-master": ("--fp16",),
    "fp8": ("--bf16", "--fp8-format", "hybrid"),
    "fp8-blockwise": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
    "fp32": (),
}
_FP8_RECIPES = {"mxfp8": "mxfp8", "blockwise": "fp8-blockwise"}
SHARDED: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage -> states that Megatron FSDP shards."""
EXCHANGES = {"ring": "p2p", "all-to-all": "a2a"}
HYBRID = "a2a+p2p"
"""All-to-all inside, ring outside; --hierarchical-context-parallel-sizes has the inner size
first."""


MODULES: Mapping[recompute.Module, str] = {
    "attention-core": "core_attn",
    "norms": "layernorm",
    "activations": "moe_act",
    "up-projection": "mla_up_proj",
}
"""Module -> its name in --recompute-modules."""


def recompute_settings(mode: str) -> dict[str, object]:
    """Fields of Megatron Core's configuration for a mode of recompute."""
    if mode == "none":
        return {}
    if modules := recompute.modules_of(mode):
        spelled = [MODULES[module] for module in modules]
        return {"recompute_granularity": "selective", "recompute_modules": spelled}
    some = recompute.repeated_layers(mode)
    return {
        "recompute_granularity": "full",
        "recompute_method": "uniform" if some is None else "block",
        "recompute_num_layers": some or 1,
    }


def recompute_of(
    of: str, granularity: str | None, method: str | None, layers: int, modules: str
) -> str:
    """Mode of recompute of these settings; an unmodelled one is an InputError."""
    match granularity:
        case None | "null" | "none":
            return "none"
        case "full":
            return f"full:{layers}" if method == "block" else "full"
        case "selective":
            return _selected(of, modules)
        case _:
            raise InputError(
                f"{of}: recompute granularity {granularity:.40} is not modelled; modelled: full, "
                "selective",
                hint=BESIDE,
            )


def _selected(of: str, modules: str) -> str:
    named = {spelled: name for name, spelled in MODULES.items()}
    words = [word for word in re.split(r"[\s,\[\]'\"]+", modules) if word]
    if unknown := [word for word in dict.fromkeys(words) if word not in named]:
        raise InputError(
            f"{of}: recompute of {listed([f'{module:.40}' for module in unknown[:MOST_NAMED]])} "
            f"is not modelled; modelled: {', '.join(named)}",
            hint=BESIDE,
        )
    chosen = dict.fromkeys(named[word] for word in words)
    return recompute.recompute_named(",".join(chosen) or "selective")


def _model(plan: LaunchPlan) -> Iterator[str]:
    transformer, vocabulary = plan.transformer, plan.model.vocabulary
    attention, moe = plan.attention, transformer.moe
    mlp = moe.expert if moe is not None and transformer.mlp is None else transformer.mlp
    assert mlp is not None
    yield from ("--use-mcore-models", "--num-layers", str(transformer.layers))
    yield from ("--hidden-size", str(transformer.hidden), "--ffn-hidden-size", str(mlp.hidden))
    yield from ("--num-attention-heads", str(attention.heads))
    yield from ("--kv-channels", str(attention.head_size))
    if attention.kv_heads != attention.heads:
        yield from ("--group-query-attention", "--num-query-groups", str(attention.kv_heads))
    # A longer sequence than the model's needs more positions, where these can be extended.
    length = max(plan.layout.sequence, transformer.position.length)
    yield from ("--max-position-embeddings", str(length))
    if transformer.position.encoding == "rotary":
        base = transformer.position.rotary_base or ROTARY_BASE
        yield from ("--position-embedding-type", "rope", "--rotary-base", str(int(base)))
    else:
        yield from ("--position-embedding-type", "learned_absolute")
    if mlp.gated:
        yield "--swiglu"
    yield from ("--normalization", "RMSNorm" if transformer.norm == "rms" else "LayerNorm")
    if not mlp.biases:
        yield "--disable-bias-linear"
    if attention.biases == "qkv":
        yield "--add-qkv-bias"
    if attention.query_key_norm:
        yield "--qk-layernorm"
    if not transformer.dropout:
        yield from ("--attention-dropout", "0", "--hidden-dropout", "0")
    if vocabulary is not None and not vocabulary.tied:
        yield "--untie-embeddings-and-output-weights"
    if moe is not None:
        yield from ("--num-experts", str(moe.experts), "--moe-router-topk", str(moe.top_k))
        yield from ("--moe-ffn-hidden-size", str(moe.expert.hidden), "--moe-grouped-gemm")
        for name, value in dispatch_settings(plan.layout).items():
            yield from (f"--{name.replace('_', '-')}", value)
        if plan.layout.overlapped == "on":
            yield f"--{MEANWHILE.replace('_', '-')}"
        if plan.layout.capacity_factor is not None:
            yield from ("--moe-expert-capacity-factor", str(plan.layout.capacity_factor))


FLEX = ("deepep", "hybridep")
"""Dispatchers that Megatron Core reaches through its flexible one."""
DISPATCHED_BY = ("moe_token_dispatcher_type", "moe_flex_dispatcher_backend")
MEANWHILE = "overlap_moe_expert_parallel_comm"


def dispatch_settings(layout: Layout) -> dict[str, str]:
    """Keys of the configuration that say how tokens reach experts."""
    if layout.dispatcher not in FLEX:
        return {DISPATCHED_BY[0]: "alltoall"}
    return dict(zip(DISPATCHED_BY, ("flex", layout.dispatcher), strict=True))


def dispatch_knobs(kind: str | None, backend: str | None) -> dict[str, Value]:
    """The dispatcher of a type and its backend; that which gathers all tokens is not modelled."""
    if kind == "flex":
        return {"dispatcher": backend if backend in FLEX else FLEX[0]}
    return {"dispatcher": kind} if kind == "alltoall" else {}


def _layout(plan: LaunchPlan) -> Iterator[str]:
    layout = plan.layout
    for knob, flag in DEGREES.items():
        # A drawn layout settles the chunks itself.
        if knob == "vpp" and (layout.vpp == 1 or layout.pipeline_layout is not None):
            continue
        yield from (f"--{flag}", str(getattr(layout, knob)))
    if layout.pipeline_layout is not None:
        yield from ("--pipeline-model-parallel-layout", layout.pipeline_layout)
    if layout.cp > 1:
        yield from ("--cp-comm-type", EXCHANGES.get(layout.context_parallel, HYBRID))
        if inside := neighbours_of(layout.context_parallel):
            yield "--hierarchical-context-parallel-sizes"
            yield from (str(inside), str(layout.cp // inside))
    if layout.expert_tp is not None:
        yield from ("--expert-tensor-parallel-size", str(layout.expert_tp))
    if plan.depths:
        yield from ("--mtp-num-layers", str(plan.depths))
    if layout.sequence_parallel:
        yield "--sequence-parallel"
    if layout.zero:
        yield from ("--use-distributed-optimizer", "--overlap-grad-reduce")
        yield "--overlap-param-gather"
    if layout.optimizer_offload == "host":
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0")
        yield "--use-precision-aware-optimizer"
    if layout.zero in SHARDED:
        yield from ("--use-megatron-fsdp", "--data-parallel-sharding-strategy")
        yield SHARDED[layout.zero]
        yield from ("--no-gradient-accumulation-fusion", "--ckpt-format", "fsdp_dtensor")
    for name, value in recompute_settings(layout.recompute).items():
        words = value if isinstance(value, list) else [str(value)]
        yield from (f"--{name.replace('_', '-')}", *words)
    if layout.attention == "fused":
        yield from ("--attention-backend", "flash")
    else:
        yield from ("--attention-backend", "unfused")
    yield from PRECISIONS[layout.precision]


def _run(plan: LaunchPlan) -> Iterator[str]:
    yield from ("--train-iters", "${MAX_STEPS}", "--lr", "${LEARNING_RATE}")
    yield from ("--lr-decay-style", "cosine", "--weight-decay", "0.1", "--clip-grad", "1.0")
    yield from ("--data-path", "${DATA_DIR}", "--split", "99,1,0", "--eval-iters", "0")
    yield from ("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "${TOKENIZER_DIR}")
    yield from ("--save", "${CHECKPOINT_DIR}", "--load", "${CHECKPOINT_DIR}")
    yield from ("--save-interval", str(plan.checkpoint_steps))
    yield from ("--log-interval", "1", "--log-throughput")
    yield from ("--tensorboard-dir", "${CHECKPOINT_DIR}/tensorboard")


def _arguments(plan: LaunchPlan) -> Iterator[str]:
    yield from _model(plan)
    yield from _layout(plan)
    yield from _run(plan)


def gpu_environment(plan: LaunchPlan) -> Mapping[str, str]:
    """Environment that keeps calls in order; Megatron FSDP needs the opposite."""
    return {} if plan.layout.zero in SHARDED else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def refusals(plan: LaunchPlan) -> Iterator[str]:
    """Yield reasons why Megatron Core cannot run a plan."""
    layout, transformer = plan.layout, plan.transformer
    yield from unwritten(plan)
    if layout.dispatcher == "uccl":
        yield "UCCL takes the place of DeepEP when it is installed; ask for --dispatcher deepep"
    if "activations" in recompute.modules_of(layout.recompute) and transformer.moe is None:
        yield "Megatron runs activations of experts again, not those of a dense MLP; try norms"
    if transformer.moe is not None and (transformer.moe.shared_experts or transformer.dense_layers):
        yield "no arguments for shared experts and leading dense layers are written here"
    if layout.cp > 1 and layout.sequence % (2 * layout.cp):
        yield f"Megatron cuts sequences into 2 x cp = {2 * layout.cp} parts; this does not divide"
    if layout.zero in SHARDED and layout.pp > 1:
        yield f"Megatron FSDP (ZeRO stage {layout.zero}) runs without a pipeline here; try --pp 1"
    if layout.optimizer_offload == "host" and layout.zero not in (1, 2):
        yield (
            "Megatron offloads an optimizer that is precision-aware, which only its distributed "
            "optimizer is: try --zero 1"
        )
    if layout.pipeline_layout is not None:
        return
    if layout.vpp > 1 and transformer.layers % (layout.pp * layout.vpp):
        parts = layout.pp * layout.vpp
        yield f"{transformer.layers} layers do not divide into pp x vpp = {parts} chunks"
    elif transformer.layers % layout.pp:
        yield f"{transformer.layers} layers do not divide into {layout.pp} stages"


def layout_of(flags: Flags) -> dict[str, Value]:
    """Knobs that arguments settle."""
    named = {knob: flag.replace("-", "_") for knob, flag in DEGREES.items()}
    knobs: dict[str, Value] = {
        knob: flags.whole(named[knob], 1) for knob in ("tp", "pp", "cp", "ep", "vpp")
    }
    for knob in ("micro_batch", "global_batch", "sequence"):
        if named[knob] in flags:
            knobs[knob] = flags.whole(named[knob])
    # The older flag gives layers of a chunk: the number of chunks follows from the model's layers.
    if "num_layers_per_virtual_pipeline_stage" in flags and "num_layers" in flags:
        held = flags.whole("num_layers_per_virtual_pipeline_stage")
        held *= flags.whole(named["pp"], 1)
        knobs["vpp"] = max(flags.whole("num_layers") // held, 1)
    if (drawn := flags.text("pipeline_model_parallel_layout")) is not None:
        knobs |= drawn_knobs(flags.of, drawn, flags.whole(named["pp"], 1))
    # The strategy counts only with Megatron FSDP; without it the distributed optimizer is stage 1.
    fsdp = {cut: stage for stage, cut in SHARDED.items()}
    cut = flags.text("data_parallel_sharding_strategy") or "optim_grads_params"
    zero = 1 if "use_distributed_optimizer" in flags else 0
    if flags.true("use_megatron_fsdp") or flags.true("use_custom_fsdp"):
        zero = fsdp.get(cut, 1)
    kept = flags.text("recompute_granularity")
    kept = "selective" if flags.true("recompute_activations") else kept
    again = recompute_of(
        flags.of,
        kept,
        flags.text("recompute_method"),
        flags.whole("recompute_num_layers", 1),
        flags.text("recompute_modules") or "",
    )
    backend = flags.text("attention_backend")
    knobs |= {
        "zero": zero,
        "sequence_parallel": flags.true("sequence_parallel"),
        "recompute": again,
        "schedule": "interleaved" if knobs["vpp"] != 1 else "1f1b",
        "attention": "naive" if backend in ("unfused", "local") else "fused",
        "context_parallel": exchange_of(
            flags.text("cp_comm_type"), flags.text("hierarchical_context_parallel_sizes")
        ),
        "precision": _precision(flags),
    }
    if "expert_tensor_parallel_size" in flags:
        knobs["expert_tp"] = flags.whole("expert_tensor_parallel_size")
    if "mtp_num_layers" in flags:
        knobs["mtp_depths"] = flags.whole("mtp_num_layers")
    if flags.true("optimizer_cpu_offload"):
        knobs["optimizer_offload"] = offload_of(
            flags.of, flags.text("optimizer_offload_fraction") or "1.0"
        )
    if knobs["ep"] != 1:
        kind, backend = (flags.text(key) for key in DISPATCHED_BY)
        knobs |= dispatch_knobs(kind, backend)
        if flags.true(MEANWHILE):
            knobs["overlapped"] = "on"
    if (factor := flags.text("moe_expert_capacity_factor")) is not None:
        knobs["capacity_factor"] = number(flags.of, "--moe-expert-capacity-factor", factor)
    return knobs


def exchange_of(kind: str | None, sizes: str | None) -> str:
    """Context exchange of a --cp-comm-type; a list of sizes begins with the inner one."""
    if kind == HYBRID:
        return f"hybrid:{(sizes or '').strip('[] ').replace(',', ' ').split(' ')[0]}"
    return {spelled: name for name, spelled in EXCHANGES.items()}.get(kind or "p2p", "ring")


def offload_of(of: str, share: str) -> str:
    """Place of the optimizer for an offloaded share of 1 or 0; other shares are not modelled."""
    modelled = {1.0: "host", 0.0: "none"}
    try:
        return modelled[float(share)]
    except (KeyError, ValueError):
        raise InputError(
            f"{of}: optimizer-offload-fraction {share!s:.20} is not modelled; modelled: 1.0 (all "
            "of the optimizer on the host) and 0.0"
        ) from None


def drawn_knobs(of: str, text: str, pp: int) -> dict[str, Value]:
    """Knobs that a pipeline layout settles: itself, and the chunks of a stage."""
    try:
        drawn = drawn_text(text)
    except ValueError as fault:
        raise InputError(f"{of}: pipeline-model-parallel-layout: {fault}") from fault
    return {"pipeline_layout": drawn, "vpp": max(len(stages_of(drawn)) // pp, 1)}


def _precision(flags: Flags) -> str:
    # Narrow formats stand beside --bf16, so they are looked for first.
    if flags.text("fp4_format") is not None:
        return "nvfp4"
    if flags.text("fp8_format") is not None:
        return _FP8_RECIPES.get(flags.text("fp8_recipe") or "delayed", "fp8")
    if flags.true("bf16"):
        return "bf16-master"
    return "fp16-master" if flags.true("fp16") else "fp32"


FIXED: Mapping[str, tuple[Value, str]] = {
    "stage_split": ("layers", "its stages share layers evenly unless a layout is drawn by hand"),
    "frozen_format": ("none", "it stores frozen weights as the precision has them"),
    "loss": ("full", "it makes the logits of all tokens; its fused cross-entropy joins passes"),
}
WRITES = frozenset(
    {"expert_tp", "pipeline_layout", "mtp_depths", "optimizer_offload", "dispatcher", "overlapped"}
)
RECOMPUTE = (*recompute.PLAIN, recompute.SOME_LAYERS, *MODULES)
_OF_NEMO_RL = (
    "NeMo RL runs it on Megatron Core (docs.nvidia.com/nemo/rl), with a configuration that "
    "trnbench does not write"
)
NO_JOBS: Mapping[Job, str] = dict.fromkeys(("dpo", "grpo", "ppo"), _OF_NEMO_RL)
"""Software that runs the jobs missing in the scripts of Megatron-LM and Megatron Bridge."""
FACTS = Framework(
    name="megatron",
    title="Megatron-LM",
    versions="Megatron-LM of 2026-08",
    source="Megatron-LM: megatron/training/arguments.py, examples/llama",
    date=datetime.date(2026, 8, 22),
    jobs=("pretrain",),
    no_jobs=NO_JOBS,
    fixed=FIXED,
    recompute=RECOMPUTE,
    precisions={name: " ".join(words) for name, words in PRECISIONS.items()},
    refusals=refusals,
    folder="${CODE_DIR}",
    script=("pretrain_gpt.py",),
    arguments=_arguments,
    environment=gpu_environment,
    defaults={"LEARNING_RATE": "1.5e-4"},
    assumes=(
        "CODE_DIR is a clone of github.com/NVIDIA/Megatron-LM as of 2026-08, with its requirements",
        "DATA_DIR is the prefix of indexed data (.bin, .idx)",
    ),
    writes=WRITES,
)

"""The layout of a training step over ranks and time: the table of its knobs.

The fields of `Layout` are the table: a degree or mode is declared there and nowhere else. Options,
form fields, search axes, keys of suites and of result rows are read from it. `program.grid` has
each knob's effect on a step. Only malformed values are refused here, not what nothing can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
)

from trnbench.facts.catalog.quantity import Ratio
from trnbench.facts.records import (
    MAX_SIZE,
    MISSING,
    MOST_DEPTHS,
    Record,
    field,
    fields,
    force_setattr,
    hints,
)
from trnbench.facts.workload.choices import (
    ADAPTED,
    REINFORCED,
    Dispatcher,
    Job,
    dispatcher_named,
    exchange_named,
    job_defaults,
    sequences_per_sample,
)
from trnbench.facts.workload.pipeline_layout import drawn_text
from trnbench.facts.workload.recompute import recompute_named

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Degree = int | NDArray[int64]
else:
    # A file holds whole numbers; arrays (grids of layouts) arise only inside the program.
    Degree = int

Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
ZeroStage = Literal[0, 1, 2, 3]
AttentionKernel = Literal["naive", "fused"]
LossKernel = Literal["full", "chunked", "fused"]
StageSplit = Literal["layers", "work", "layers-and-ends"]
Reward = Literal["verifier", "model"]
Reference = Literal["on", "off"]
AdapterTargets = Literal["all-linear", "attention"]
FrozenFormat = Literal["none", "fp8", "int8", "nf4"]
IdleModels = Literal["device", "host"]
OptimizerOffload = Literal["none", "host"]
Overlapped = Literal["on", "off"]
Value: TypeAlias = bool | int | float | str
ActsOn = Literal["step", "layers", "experts"]
ANY = "any"
"""The text that leaves a knob to the search."""


def _knob(default: Value | None, help: str, **about: Any) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"help": help, **about})


def _needed(help: str, **about: Any) -> Any:  # noqa: ANN401
    return field(metadata={"help": help, **about})


def _of_answers(help: str, *, default: str | None = None, **about: Any) -> Any:  # noqa: ANN401
    return _knob(default, help, of_jobs=REINFORCED, **about)


class Layout(Record):
    """The parallel degrees, batch and execution mode of a training step.

    The ranks are tp * pp * cp * dp; expert parallelism takes its `ep` ranks out of cp * dp. With an
    `expert_tp`, experts are split over that many tensor-parallel ranks, and `ep` is taken out of tp
    * cp * dp / expert_tp. `vpp` is the number of model chunks per pipeline stage; `global_batch`
    counts samples, `sequence` tokens. With a `shard`, ZeRO slices over groups of that many data
    ranks, `cp` innermost. Degrees and batch sizes may be arrays that broadcast together.
    """

    tp: Degree = _knob(
        1, "Tensor-parallel ranks, e.g. 8; default: searched.", searched=True, part="layers"
    )
    pp: Degree = _knob(
        1, "Pipeline stages, e.g. 4; default: searched.", searched=True, part="layers"
    )
    dp: Degree = _knob(1, "Data-parallel replicas, e.g. 32; default: searched.", searched=True)
    cp: Degree = _knob(
        1,
        "Context-parallel ranks, which share a sequence; default: searched.",
        searched=True,
        part="layers",
    )
    ep: Degree = _knob(
        1, "Expert-parallel ranks, which share the experts; default: searched.", searched=True
    )
    expert_tp: int | None = _knob(
        None,
        "Tensor-parallel ranks that share an expert, e.g. 1; default: those of --tp.",
        title="expert tensor parallel",
        short="expert tp",
        part="experts",
        acts_with=("tp",),
        on_request="searched",
    )
    vpp: Degree = _knob(
        1, "Model chunks per pipeline stage; default: searched.", searched=True, part="layers"
    )
    micro_batch: Degree = _knob(
        1, "Samples per replica and pass; default: searched.", title="micro-batch", searched=True
    )
    global_batch: Degree = _needed(
        "Samples per step; default: 1024, rounded up to what the ranks divide."
    )
    sequence: Degree = _needed(
        "Tokens per sample, e.g. 8k; default: the model's maximum, at most 8192.",
        part="layers",
        tokens=True,
    )
    zero: ZeroStage = _knob(
        0, "ZeRO stage; default: searched.", searched=(0, 1, 2, 3), acts_with=("dp", "cp")
    )
    shard: int | None = _knob(
        None,
        "Data ranks (dp x cp) that share what ZeRO slices, copied outside (hybrid sharding, "
        "HSDP), e.g. 8; default: all of them.",
        title="shard group",
        acts_with=("dp", "cp"),
        on_request="searched",
    )
    optimizer_offload: OptimizerOffload = _knob(
        "none",
        "none, or host: moments and master weights in host memory, updated by its processors; "
        "default: none.",
        title="optimizer offload",
        short="offload",
        metavar="WHERE",
    )
    activation_offload: Literal["host"] | None = _knob(
        None, "host: activations wait there.", metavar="host", short="act. offload", part="layers"
    )
    sequence_parallel: bool = _knob(
        False,
        "Split the residual stream by tokens over tensor-parallel ranks; default: searched.",
        short="seq. par.",
        searched=(True, False),
        part="layers",
        acts_with=("tp",),
    )
    recompute: str = _knob(
        "none",
        "none, selective, full, full:4 (4 layers of each stage) or modules: attention-core, "
        "norms, activations, up-projection; default: none, selective, full are searched.",
        metavar="MODE",
        searched=("none", "selective", "full"),
        part="layers",
        form=recompute_named,
        on_request="modules and layers are searched too",
    )
    schedule: Schedule = _knob(
        "1f1b",
        "gpipe, 1f1b, interleaved or zb-h1; default: searched.",
        metavar="NAME",
        searched=("1f1b", "gpipe", "zb-h1", "interleaved"),
        part="layers",
        acts_with=("pp",),
    )
    attention: AttentionKernel = _knob(
        "fused", "naive or fused; default: what the stack uses.", metavar="KERNEL", part="layers"
    )
    loss: LossKernel = _knob(
        "full",
        "full (all logits in fp32), chunked (16 bits, fp32 in parts) or fused (never whole: Liger, "
        "linear cross-entropy); default: the stack's.",
        metavar="KERNEL",
    )
    context_parallel: str = _knob(
        "ring",
        "With --cp: ring, all-to-all, or hybrid:4 (all-to-all among 4 neighbours in a ring); "
        "default: ring.",
        form=exchange_named,
        title="context exchange",
        short="exchange",
        metavar="HOW",
        part="layers",
        acts_with=("cp",),
        on_request="searched",
    )
    stage_split: StageSplit = _knob(
        "layers",
        "What pipeline stages share evenly: layers, layers-and-ends (embedding and head count as "
        "layers), or work (multiply-adds); default: the stack's.",
        metavar="WHAT",
        part="layers",
        acts_with=("pp",),
        on_request="searched",
    )
    pipeline_layout: str | None = _knob(
        None,
        "Pipeline stages drawn by hand as Megatron-LM does, e.g. 'E|(t*2|)*39t*2|L': embedding "
        "E, layers t, MTP depths m, loss L, next stage |; default: stages share evenly.",
        metavar="STAGES",
        short="pipe layout",
        part="layers",
        acts_with=("pp",),
        form=drawn_text,
        on_request="lighter ends are searched",
    )
    mtp_depths: int | None = _knob(
        None,
        "Multi-token prediction: further tokens to predict, a layer and an output more for "
        "each, e.g. 1; 0: none; default: those of the model file.",
        title="MTP depths",
        part="layers",
        least=0,
        most=MOST_DEPTHS,
    )
    dispatcher: Dispatcher | None = _knob(
        None,
        "Sends tokens to experts: alltoall (a copy per expert), deepep, uccl or "
        "hybridep (a copy per node); default: the stack's on this network.",
        metavar="NAME",
        part="experts",
        acts_with=("ep",),
        form=dispatcher_named,
    )
    overlapped: Overlapped | None = _knob(
        None,
        "on, or off: tokens travel to and from experts while another micro-batch computes; "
        "default: what the stack does.",
        title="expert overlap",
        short="overlap",
        metavar="on|off",
        part="experts",
        acts_with=("ep",),
    )
    capacity_factor: Ratio | None = _knob(
        None,
        "Tokens an expert takes over an even share, e.g. 1.25; default: no token is dropped.",
        short="capacity",
        metavar="NUMBER",
        part="experts",
    )
    precision: str = _needed(
        "bf16-master (bf16, fp32 master weights; default), bf16-sr, fp32, fp8, ...",
        metavar="RECIPE",
    )
    job: Job = _knob(
        "pretrain",
        "pretrain, finetune (all weights), lora (adapters on frozen weights), dpo (pairs and a "
        "frozen reference), orpo (pairs), grpo, ppo (answers are written); default: pretrain.",
        metavar="JOB",
    )
    adapter_rank: int | None = _knob(
        None,
        "Inner width of an adapter; default: 16 with --job lora, else no adapters.",
        of_jobs=ADAPTED,
    )
    adapter_on: AdapterTargets | None = _knob(
        None,
        "With adapters: all-linear or attention; default: all-linear (attention where the "
        "model has experts).",
        title="adapters on",
        of_jobs=ADAPTED,
        metavar="WHERE",
    )
    frozen_format: FrozenFormat = _knob(
        "none",
        "With adapters: format that frozen projections are stored in, fp8, int8 or nf4 "
        "(QLoRA); none: as the precision has it.",
        short="frozen in",
        of_jobs=ADAPTED,
        metavar="FORMAT",
    )

    samples_per_prompt: int | None = _of_answers(
        "With --job grpo or ppo: answers to a prompt; the batch counts answers; default: 8.",
        short="per prompt",
    )
    response: int | None = _of_answers(
        "With --job grpo or ppo: tokens of an answer, of those of --sequence; default: half.",
        tokens=True,
    )
    reward: Reward | None = _of_answers(
        "With grpo or ppo: verifier (on hosts) or model (as the policy's); default: by job.",
        metavar="WHAT",
    )
    reference: Reference | None = _of_answers(
        "With --job grpo or ppo: on or off, a frozen reference to stay near to; default: on.",
        metavar="on|off",
    )
    idle_models: IdleModels = _of_answers(
        "With --job grpo or ppo: where reference and reward model wait: device, or host (fetched "
        "once per step); default: device.",
        title="idle models on",
        short="idle on",
        metavar="WHERE",
        default="device",
    )
    update_epochs: int | None = _of_answers(
        "With --job grpo or ppo: times that the policy (and critic) train on the answers of a "
        "step; default: 1.",
        title="update epochs",
        short="epochs",
    )
    mini_batches: int | None = _of_answers(
        "With --job grpo or ppo: updates of each such epoch, all on as many answers; default: 1.",
        title="mini-batches",
        short="mini-b.",
    )
    generation_batch: int | None = _of_answers(
        "With --job grpo or ppo: answers that tp ranks write at once at most; default: 64.",
        short="gen. batch",
    )
    generation_nodes: int | None = _of_answers(
        "With --job grpo or ppo: nodes that only write answers, while the others train on "
        "those before; default: all nodes do both, in turn.",
        short="gen. nodes",
    )
    generation_tokens_per_s: Ratio | None = _of_answers(
        "With --job grpo or ppo: tokens that a chip writes per second, as measured, e.g. 2500; "
        "default: by memory bandwidth.",
        title="generation tokens/s",
        short="gen. tok/s",
        metavar="RATE",
    )

    def __post_init__(self) -> None:
        if faults := "; ".join(_out_of_bounds(self)):
            raise ValueError(faults)
        sequence = self.sequence if isinstance(self.sequence, int) else None
        for name, chosen in _chosen(sequence, *_modes_of(self)):
            force_setattr(self, name, chosen)
        for name in ("capacity_factor", "generation_tokens_per_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be above 0, found {value}")

    @property
    def ranks(self) -> Degree:
        return self.tp * self.pp * self.cp * self.dp

    @property
    def sample_tokens(self) -> Degree:
        return self.sequence * sequences_per_sample(self.job)


class Knob(Record):
    """A degree or mode of a layout."""

    name: str
    kind: type[Value]
    choices: tuple[Value, ...]
    """All values, where they can be listed."""
    default: Value | None
    needed: bool
    """True without a default: every layout has to set the knob."""
    help: str
    title: str
    """Name in texts."""
    short: str
    """Name in column headings."""
    metavar: str | None = None
    searched: bool
    """True when searches choose the value of an open knob."""
    preferred: tuple[Value, ...]
    """Values of a search, best first among equals; empty for degrees (divisors)."""
    on_request: str = ""
    """Values that a search tries only on request, in words."""
    part: ActsOn = "step"
    """Models with the knob: all, those with layers, or those with experts."""
    acts_with: tuple[str, ...] = ()
    """Degrees without which (all 1) the knob has no effect."""
    tokens: bool = False
    """True for a number of tokens, where 8k is 8,192."""
    of_jobs: tuple[Job, ...] = ()
    """The only jobs with the knob; empty: all."""
    form: Callable[[str], str] | None = None
    """Canonical form of a text; ValueError for an invalid text."""
    least: int = 1
    most: int = MAX_SIZE - 1

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def is_for(self, job: Value | None) -> bool:
        return not self.of_jobs or job in self.of_jobs

    @property
    def counts(self) -> bool:
        """True for whole numbers from `least` on."""
        return self.kind is int and not self.choices

    @property
    def is_degree(self) -> bool:
        """True for required counts of ranks, samples or tokens, which may be arrays."""
        return self.counts and (self.needed or self.default is not None)


def _knobs() -> Mapping[str, Knob]:
    forms = hints(Layout)
    knobs = {}
    for each in fields(Layout):
        about = dict(each.metadata)
        kind, choices = _kind(forms[each.name])
        searched = about.pop("searched", False)
        if asked := about.get("on_request"):
            text, default, rest = about["help"].partition("; default:")
            about["help"] = f"{text}; any: {asked}{default}{rest}"
        title = about.pop("title", each.name.replace("_", " "))
        knobs[each.name] = Knob(
            **{"name": each.name, "kind": kind, "choices": choices, "title": title},
            default=None if each.default is MISSING else each.default,
            needed=each.default is MISSING,
            short=about.pop("short", title),
            searched=bool(searched),
            preferred=searched if isinstance(searched, tuple) else (),
            **about,
        )
    return MappingProxyType(knobs)


def _kind(form: object) -> tuple[type[Value], tuple[Value, ...]]:
    """Type of a knob's values, and all values if listed."""
    if get_origin(form) is Literal:
        return type(get_args(form)[0]), get_args(form)
    if get_origin(form) is Annotated:
        return get_args(form)[0], ()
    if isinstance(form, type):
        return form, ()
    # What may be None: a value of its own, that nothing is bounded.
    return _kind(get_args(form)[0])


KNOBS = _knobs()
"""Every knob by name, in the order of all listings."""
DEGREES = tuple(name for name, knob in KNOBS.items() if knob.is_degree)
"""Knobs that are whole numbers, and arrays in a grid of layouts."""
RANK_DEGREES = tuple(name for name in DEGREES if KNOBS[name].searched and name != "micro_batch")
_MODES = tuple(name for name in KNOBS if name not in DEGREES)
_modes_of = attrgetter(*_MODES)
_COUNTING = tuple(knob for knob in KNOBS.values() if knob.counts)


@lru_cache(maxsize=1024, typed=True)
def _chosen(sequence: int | None, *modes: Value | None) -> tuple[tuple[str, Value], ...]:
    """Modes that follow from others or are written otherwise; all are checked, equal ones once."""
    values = {"sequence": sequence, **dict(zip(_MODES, modes, strict=True))}
    own, job = job_defaults(values), cast("Job", values["job"])
    found: list[tuple[str, Value]] = []
    for name, value in zip(_MODES, modes, strict=True):
        knob = KNOBS[name]
        if not knob.is_for(job):
            if value != knob.default:
                jobs = " or ".join(knob.of_jobs)
                raise ValueError(f"`{name}` is a knob of job {jobs}: found {job}")
        elif value is None:
            found += [(name, own[name])] if name in own else []
        elif knob.choices and value not in knob.choices:
            choices = ", ".join(map(str, knob.choices))
            raise ValueError(f"`{name}` must be one of {choices}; found {value!r}")
        elif knob.form is not None:
            found.append((name, _formed(knob, value)))
    return tuple(found)


def _formed(knob: Knob, value: object) -> str:
    assert knob.form is not None
    try:
        return knob.form(str(value))
    except ValueError as fault:
        raise ValueError(f"`{knob.name}` {fault}") from fault


def _out_of_bounds(layout: Layout) -> Iterator[str]:
    for knob in _COUNTING:
        value = getattr(layout, knob.name)
        if type(value) is int and not knob.least <= value <= knob.most:
            yield f"`{knob.name}` must be from {knob.least} to {knob.most}, found {value}"

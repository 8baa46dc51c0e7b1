"""How one training step is spread over ranks and in time: the table of its knobs.

The fields of `Layout` are the table: a degree or mode is declared there and nowhere else. Options
of the command line, fields of forms, axes of a search, keys of suites and of result rows, and the
words of command lines are read from it. What a knob does to a step is said in `program.grid`.

Whether a layout divides, is legal on a platform or fits in memory is an answer that others give;
here only malformed values are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Literal,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from trnbench.catalog.quantity import Ratio
from trnbench.workload.sizes import MAX_SIZE

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Degree = int | NDArray[int64]
else:
    # A file holds whole numbers; arrays (grids of layouts) arise only inside the program.
    Degree = int

Recompute = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
ZeroStage = Literal[0, 1, 2, 3]
AttentionKernel = Literal["naive", "fused"]
ContextParallel = Literal["ring", "all-to-all"]
Value: TypeAlias = bool | int | float | str
ActsOn = Literal["step", "layers", "experts"]


def _about(
    help: str,
    *,
    title: str = "",
    short: str = "",
    metavar: str | None = None,
    searched: bool | tuple[Value, ...] = False,
    part: ActsOn = "step",
    acts_with: tuple[str, ...] = (),
    tokens: bool = False,
) -> Mapping[str, object]:
    """Return the metadata of a field of `Layout`: the arguments of its `Knob`."""
    return {
        "help": help,
        "title": title,
        "short": short,
        "metavar": metavar,
        "searched": searched,
        "part": part,
        "acts_with": acts_with,
        "tokens": tokens,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parallel degrees, batch and execution mode of a training step.

    The ranks are tp * pp * cp * dp; expert parallelism takes its `ep` ranks out of cp * dp.
    `vpp` is the number of model chunks on each pipeline stage, `global_batch` counts sequences (or
    samples), `sequence` tokens. Degrees and batch sizes may be arrays that broadcast together.
    Selective recompute repeats the attention core. Without `capacity_factor` no token is dropped.
    """

    tp: Degree = field(
        default=1, metadata=_about("Tensor-parallel ranks.", searched=True, part="layers")
    )
    pp: Degree = field(default=1, metadata=_about("Pipeline stages.", searched=True, part="layers"))
    dp: Degree = field(default=1, metadata=_about("Replicas.", searched=True))
    cp: Degree = field(
        default=1, metadata=_about("Ranks that share a sequence.", searched=True, part="layers")
    )
    ep: Degree = field(default=1, metadata=_about("Ranks that share the experts.", searched=True))
    vpp: Degree = field(
        default=1, metadata=_about("Model chunks on each stage.", searched=True, part="layers")
    )
    micro_batch: Degree = field(
        default=1,
        metadata=_about("Samples a replica takes at once.", title="micro-batch", searched=True),
    )
    global_batch: Degree = field(
        metadata=_about("Samples of a step; default: 1024 or just above.", title="global batch")
    )
    sequence: Degree = field(
        metadata=_about(
            "Tokens of a sample; default: the model's own, at most 8192.",
            part="layers",
            tokens=True,
        )
    )
    zero: ZeroStage = field(
        default=0, metadata=_about("ZeRO stage.", searched=(0, 1, 2, 3), acts_with=("dp", "cp"))
    )
    sequence_parallel: bool = field(
        default=False,
        metadata=_about(
            "Cut the residual stream along tokens over tensor-parallel ranks.",
            title="sequence parallel",
            short="seq. par.",
            searched=(True, False),
            part="layers",
            acts_with=("tp",),
        ),
    )
    recompute: Recompute = field(
        default="none",
        metadata=_about(
            "none, selective or full.",
            metavar="MODE",
            searched=("none", "selective", "full"),
            part="layers",
        ),
    )
    schedule: Schedule = field(
        default="1f1b",
        metadata=_about(
            "gpipe, 1f1b, interleaved or zb-h1.",
            metavar="NAME",
            searched=("1f1b", "gpipe", "zb-h1", "interleaved"),
            part="layers",
            acts_with=("pp",),
        ),
    )
    attention: AttentionKernel = field(
        default="fused",
        metadata=_about(
            "naive or fused; default: what the stack uses.", metavar="KERNEL", part="layers"
        ),
    )
    context_parallel: ContextParallel = field(
        default="ring",
        metadata=_about(
            "With --cp: ring or all-to-all; default: ring.",
            title="context exchange",
            short="exchange",
            metavar="HOW",
            part="layers",
            acts_with=("cp",),
        ),
    )
    capacity_factor: Ratio | None = field(
        default=None,
        metadata=_about(
            "Room of an expert, over an even share; default: no token is dropped.",
            title="capacity factor",
            short="capacity",
            metavar="NUMBER",
            part="experts",
        ),
    )
    precision: str = field(
        metadata=_about(
            "bf16-master (bf16, fp32 master weights; default), bf16-sr, fp32, fp8, ...",
            metavar="RECIPE",
        )
    )

    def __post_init__(self) -> None:
        """Refuse values that mean nothing on any machine."""
        faults = list(_out_of_bounds(self))
        if faults:
            raise ValueError("; ".join(faults))
        for knob in KNOBS.values():
            value = getattr(self, knob.name)
            if knob.choices and value not in knob.choices:
                known = ", ".join(str(choice) for choice in knob.choices)
                raise ValueError(f"`{knob.name}` must be one of {known}; found {value!r}")
        if self.capacity_factor is not None and self.capacity_factor <= 0:
            raise ValueError(f"`capacity_factor` must be above 0, found {self.capacity_factor}")

    @property
    def ranks(self) -> Degree:
        """The number of ranks the layout spans."""
        return self.tp * self.pp * self.cp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A degree or mode of a layout.

    `kind` is what its value is: int, float, str or bool. `choices` are all its values, where they
    can be listed. `needed`: it has no default, a layout has to say it. `title` is its name as
    people read it, `short` as it heads a column. `searched`: whether a search chooses it where it
    is open; then `preferred` are its values, those that win among equals first (none for a degree,
    whose values are what divides). `part` says of which models it is a knob: of all, of those with
    layers, or of those with experts. Where the degrees in `acts_with` are 1 it changes nothing.
    `tokens`: it counts tokens, of which 8k are 8,192.
    """

    name: str
    kind: type[Value]
    choices: tuple[Value, ...]
    default: Value | None
    needed: bool
    help: str
    title: str
    short: str
    metavar: str | None
    searched: bool
    preferred: tuple[Value, ...]
    part: ActsOn
    acts_with: tuple[str, ...]
    tokens: bool

    @property
    def option(self) -> str:
        """Its option on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_degree(self) -> bool:
        """Whether it counts ranks, samples or tokens: any whole number from 1, or an array."""
        return self.kind is int and not self.choices


def _knobs() -> Mapping[str, Knob]:
    hints = get_type_hints(Layout, include_extras=True)
    found = {}
    for one in fields(Layout):
        about = dict(one.metadata)
        kind, choices = _kind(hints[one.name])
        searched = about.pop("searched")
        title = about.pop("title") or one.name
        found[one.name] = Knob(
            name=one.name,
            kind=kind,
            choices=choices,
            default=None if one.default is MISSING else one.default,
            needed=one.default is MISSING,
            title=title,
            short=about.pop("short") or title,
            searched=bool(searched),
            preferred=searched if isinstance(searched, tuple) else (),
            **about,
        )
    return MappingProxyType(found)


def _kind(form: object) -> tuple[type[Value], tuple[Value, ...]]:
    """Return the type of a knob's values, and all of them if they are listed."""
    if get_origin(form) is Literal:
        return type(get_args(form)[0]), get_args(form)
    if get_origin(form) is Annotated:
        return get_args(form)[0], ()
    if isinstance(form, type):
        return form, ()
    # What may be None: a value of its own, that nothing is bounded.
    return _kind(get_args(form)[0])


KNOBS = _knobs()
"""Every knob by name, in the order in which they are listed everywhere."""
DEGREES = tuple(name for name, knob in KNOBS.items() if knob.is_degree)
"""Knobs that are whole numbers, and arrays in a grid of layouts."""
RANK_DEGREES = tuple(name for name in DEGREES if KNOBS[name].searched and name != "micro_batch")


def _out_of_bounds(layout: Layout) -> Iterator[str]:
    for name in DEGREES:
        value = getattr(layout, name)
        if type(value) is int and not 1 <= value < MAX_SIZE:
            yield f"`{name}` must be from 1 to {MAX_SIZE - 1}, found {value}"

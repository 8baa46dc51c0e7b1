"""Features that a model in a layout asks of training software, by name.

Features are values of knobs where they act (`schedule zb-h1`, `zero 3`), degrees above 1 (`context
parallel`), number formats (`precision fp8`), and parts of the model. A new knob with listed values
has features without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import get_args

from trnbench.facts.workload.choices import EXCHANGES, REINFORCED
from trnbench.facts.workload.layout import KNOBS, Knob, Value
from trnbench.facts.workload.model import Family, Model, Transformer
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.recompute import CORE, MODULES, PLAIN, parts_of
from trnbench.program.precision import RECIPES, recipe_named

PARALLEL: Mapping[str, str] = {
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
}
"""Degree -> its feature where the degree is above 1."""
EXPERTS = "experts"
DEPTHS = "multi-token prediction"
DRAWN = "pipeline layout"
"""Pipeline stages drawn by hand."""
HYBRID = "hybrid sharding"
"""Slices shared by a group of the data ranks, with copies in other groups."""
OFFLOADED = "optimizer offload"
"""Optimizer states in host memory, updated by the host's processors."""
ACTIVATIONS_AWAY = "activation offload"
"""What layers keep for the backward pass, in host memory meanwhile."""
EXPERTS_APART = "experts apart from tensor parallel"
"""Experts cut over other ranks than the rest of their layer."""
WINDOWED = "attention windowed"
WINDOWED_RING = "attention windowed in a ring"
"""Context ranks that pass round only the keys inside the window."""
SINKS = "attention with sinks"
SCAN = "scan"
TOWER = "vision with text"
_SHARING = ("MHA", "GQA", "MQA", "MLA")


def feature_of(knob: Knob, value: Value) -> str:
    if knob.kind is bool:
        return knob.title if value else f"no {knob.title}"
    return f"{knob.title} {value}"


def recompute_features(mode: str) -> tuple[str, ...]:
    named = ("selective" if one == CORE else one for one in parts_of(mode))
    return tuple(feature_of(KNOBS["recompute"], one) for one in named)


def features_of_knob(knob: Knob) -> tuple[str, ...]:
    """Features that the values of a knob have."""
    match knob.name:
        case "expert_tp":
            return (EXPERTS_APART,)
        case "shard":
            return (HYBRID,)
        case "optimizer_offload":
            return (OFFLOADED,)
        case "activation_offload":
            return (ACTIVATIONS_AWAY,)
        case "pipeline_layout":
            return (DRAWN,)
        case "context_parallel":
            return tuple(feature_of(knob, how) for how in EXCHANGES)
        case "recompute":
            modes = (*PLAIN, "full:1", *MODULES)
            return tuple(dict.fromkeys(f for mode in modes for f in recompute_features(mode)))
        case _ if _listed(knob):
            return tuple(feature_of(knob, value) for value in (knob.choices or (True,)))
    return ()


def features_of(model: Model, layout: PartialLayout) -> tuple[str, ...]:
    """Features that a model asks for in a layout; open knobs ask for none."""
    return (*_of_model(model), *_of_layout(model, layout))


def _of_model(model: Model) -> Iterator[str]:
    yield _family(model.family)
    transformer = model.transformer
    if transformer is not None:
        attention = transformer.attention
        if attention is not None:
            yield _shared(attention.variant)
            if attention.sinks:
                yield SINKS
        if _windowed(transformer):
            yield WINDOWED
        if transformer.scan is not None:
            yield f"{SCAN} {transformer.scan.form}"
        if model.tower is not None:
            yield TOWER
        if transformer.moe is not None:
            yield EXPERTS


def _windowed(transformer: Transformer) -> bool:
    attention = transformer.attention
    bounds = [attention.window, attention.chunk] if attention is not None else []
    return any((*bounds, *(one.window or one.chunk for one in transformer.layer_kinds.values())))


def _of_layout(model: Model, layout: PartialLayout) -> Iterator[str]:
    transformer = model.transformer
    experts = transformer is not None and transformer.moe is not None
    # With all-to-all each rank sees whole sequences: a window needs nothing of the exchange.
    ring = layout.degree("cp") > 1 and layout["context_parallel"] != "all-to-all"
    if transformer is not None and ring and _windowed(transformer):
        yield WINDOWED_RING
    if model.with_depths(layout.number("mtp_depths")).mtp_depths:
        yield DEPTHS
    for name, value in layout.pairs:
        knob = KNOBS[name]
        # A recommender's `ep` cuts its tables: that is how every one of them is trained.
        acts = knob.part == "step" or model.transformer is not None
        if not acts or (knob.part == "experts" and not experts) or knob.of_jobs == REINFORCED:
            continue
        if name in PARALLEL and layout.degree(name) > 1 and (name != "ep" or experts):
            yield PARALLEL[name]
        elif name == "expert_tp" and value != layout["tp"]:
            yield EXPERTS_APART
        elif name == "shard" and value != layout.degree("dp") * layout.degree("cp"):
            yield HYBRID
        elif name == "optimizer_offload":
            if value != knob.default:
                yield OFFLOADED
        elif name == "activation_offload":
            yield ACTIVATIONS_AWAY
        elif name == "pipeline_layout" and _acts(knob, layout):
            yield DRAWN
        elif name == "context_parallel" and _acts(knob, layout):
            yield feature_of(knob, str(value).partition(":")[0])
        elif name == "recompute":
            yield from recompute_features(str(value))
        elif name == "precision":
            yield _precision(recipe_named(str(value)).name)
        # A switch that is off asks nothing of the software.
        elif _listed(knob) and _acts(knob, layout) and value is not False:
            yield feature_of(knob, value)


def _listed(knob: Knob) -> bool:
    return bool(knob.choices) or knob.kind is bool


def _acts(knob: Knob, layout: PartialLayout) -> bool:
    return knob.is_for(layout["job"]) and (
        not knob.acts_with or prod(map(layout.degree, knob.acts_with)) > 1
    )


@cache
def known_features() -> frozenset[str]:
    """Every feature that a model in a layout may have."""
    return frozenset(
        (
            *(*PARALLEL.values(), EXPERTS, DEPTHS, SINKS, TOWER, WINDOWED, WINDOWED_RING),
            *(feature for knob in KNOBS.values() for feature in features_of_knob(knob)),
            *(f"{SCAN} {form}" for form in ("mamba-2", "gated-delta")),
            *(_precision(name) for name in RECIPES),
            *(_family(family) for family in get_args(Family)),
            *(_shared(variant) for variant in _SHARING),
        )
    )


@cache
def plain_features() -> frozenset[str]:
    """Features of knobs at their defaults."""
    return frozenset(
        feature_of(knob, knob.default)
        for knob in KNOBS.values()
        if (knob.choices or knob.form) and knob.default is not None
    )


def _family(family: str) -> str:
    return f"model {family}"


def _shared(variant: str) -> str:
    return f"attention {variant}"


def _precision(recipe: str) -> str:
    return f"precision {recipe}"

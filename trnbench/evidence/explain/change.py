"""A cause at one magnitude applied to a step: other numbers, links, knobs or seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

import numpy as np

from trnbench.engines.analytic.step.utilization import utilization
from trnbench.errors import unhandled
from trnbench.evidence.explain.causes import (
    Added,
    Apart,
    AtLeast,
    CauseWay,
    Counted,
    Each,
    OtherOrder,
    Scaled,
    Scatter,
    Setting,
    SlowLaunch,
    SlowLink,
    SlowNode,
    TimedOtherwise,
)
from trnbench.facts.arrays import slowest_node
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.calibration.training_stack import RankOrder
from trnbench.facts.hardware.fabric import Level, Network, OnChip, Switch, times
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.layout import KNOBS, Layout, Value
from trnbench.facts.workload.partial_layout import PartialLayout, value_parser
from trnbench.facts.workload.weights import active_parameter_count
from trnbench.machine.rank_groups import ORDERS
from trnbench.predict.ranges import OVERLAPS, numbers_by_key
from trnbench.predict.setup import SetupMemo, TrainSetup
from trnbench.program.ops import AttentionOp
from trnbench.program.step import StepProgram, training_step

Magnitude: TypeAlias = float | int | str | tuple[str, float | str]
"""Size of a way.

A number; nodes; an alternative's name; a multiple of a knob or a count; or a reversed convention.
"""
MixedLayouts: TypeAlias = tuple[tuple[float, Layout], ...]
"""Layouts of a step, each with its share of the layers."""
_PASS = "host.layer_pass"


class Ran(Record, eq=False):
    """A step's run: set-up, layouts, changed calibration numbers, and a factor on the time."""

    setup: TrainSetup
    parts: MixedLayouts
    numbers: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0
    least_s: float = 0.0
    """Lower bound of the time."""


class Sites(State, kw_only=False):
    """Set-ups with changed links, each made once; placements are shared by all rows."""

    _memos: dict[tuple[SetupMemo, CauseWay, Magnitude], SetupMemo] = field(default_factory=dict)
    _launching: Memo[TrainSetup, TrainSetup] = field(default_factory=Memo)

    def changed(self, ran: Ran, way: CauseWay, magnitude: Magnitude) -> Ran | None:
        """The run with the cause at work; None where impossible."""
        match way:
            case SlowLink() if isinstance(magnitude, float):
                platform = _linked(ran.setup.platform, way, magnitude)
                stack = ran.setup.collectives
                if way.figure == "latency":
                    stack = _later(stack, way, magnitude)
                setup = replace(ran.setup, platform=platform, collectives=stack)
                return self._placed(ran, way, magnitude, setup)
            case Apart() if isinstance(magnitude, int):
                divided = _divided(ran, magnitude)
                if divided is None:
                    return None
                nodes = ran.setup.nodes * magnitude
                setup = replace(ran.setup, platform=divided, nodes=nodes)
                return self._placed(ran, way, magnitude, setup)
            case SlowLaunch() if isinstance(magnitude, float):
                setup = self._launching.of(ran.setup, lambda: _launching(ran.setup))
                own = _number(numbers_by_key(setup.efficiency)[_PASS])
                return replace(
                    ran, setup=setup, numbers=dict(ran.numbers) | {_PASS: own + magnitude}
                )
            case _:
                return changed(ran, way, magnitude)

    def _placed(self, ran: Ran, way: CauseWay, magnitude: Magnitude, setup: TrainSetup) -> Ran:
        # What was placed is known by names, and other links bear the same ones.
        key = (ran.setup.memo, way, magnitude)
        memo = self._memos.setdefault(key, SetupMemo())
        return replace(ran, setup=replace(setup, memo=memo))


def changed(ran: Ran, way: CauseWay, magnitude: Magnitude) -> Ran | None:
    """The run with a cause at work on its numbers, knobs or time; None where impossible."""
    match way, magnitude:
        case Scaled(), float(by):
            known = numbers_by_key(ran.setup.efficiency)
            if not set(way.numbers) <= set(known):
                return None
            found = {key: _bounded(key, by * _number(known[key])) for key in way.numbers}
            return replace(ran, numbers=dict(ran.numbers) | found)
        case Added(), float(cost_s):
            known = numbers_by_key(ran.setup.efficiency)
            if way.number not in known:
                return None
            more = _number(known[way.number]) + cost_s * _count(ran, way.each)
            return replace(ran, numbers=dict(ran.numbers) | {way.number: more})
        case AtLeast(), float(cost_s):
            return replace(ran, least_s=cost_s * _count(ran, way.each))
        case SlowNode(), float(by):
            return _scattered(ran, by, alone=True)
        case Scatter(), float(by):
            return _scattered(ran, by, alone=False)
        case OtherOrder(), str(name):
            cut = any(layout.expert_tp is not None for _, layout in ran.parts)
            if cut and not ORDERS[cast("RankOrder", name)].cuts_experts:
                return None
            stack = replace(ran.setup.stack, order=cast("RankOrder", name))
            efficiency = replace(ran.setup.efficiency, stack=stack)
            return replace(ran, setup=replace(ran.setup, efficiency=efficiency))
        case Setting(), str() | tuple():
            return _set(ran, way, magnitude)
        case Counted(), str() | tuple():
            return replace(ran, factor=_counted_otherwise(ran.setup, ran.parts, magnitude))
        case TimedOtherwise(), float(by):
            return replace(ran, factor=by)
    raise TypeError(f"{type(way).__name__} takes no {magnitude!r}")


def in_words(way: CauseWay, magnitude: Magnitude) -> str:
    """Text of a cause's change."""
    number = magnitude if isinstance(magnitude, float) else 1.0
    match way:
        case Scaled():
            return f"{_last(way.numbers)} x {number:.2g}"
        case Added():
            more = show(number, Dimension.SECONDS, digits=2)
            return f"each {_last((way.number,)).replace(' ', '-')} + {more}{_each(way.each)}"
        case AtLeast():
            return f"at least {show(number, Dimension.SECONDS, digits=2)}{_each(way.each)}"
        case SlowLaunch():
            return f"a pass through a layer launched in {show(number, Dimension.SECONDS, digits=2)}"
        case SlowLink():
            return f"{way.part} {way.figure} x {number:.2g}"
        case SlowNode():
            return f"slowest node x {number:.3g}"
        case Scatter():
            return f"scatter of nodes + {100 * number:.1f} %"
        case Setting() if isinstance(magnitude, tuple):
            return f"{KNOBS[way.knob].title} x {float(magnitude[1]):g}"
        case Setting():
            return f"{KNOBS[way.knob].title} {magnitude}"
        case OtherOrder():
            return f"ranks counted {magnitude}"
        case Apart():
            return f"tensor-parallel groups on {magnitude} nodes each"
        case Counted():
            return _counted_in_words(magnitude)
        case TimedOtherwise():
            return f"time x {number:.2g}"
        case unknown:
            unhandled(unknown, "cause")


def _each(each: Each) -> str:
    return "" if each == "once" else f" per {each.replace(' of a ', ' per ')}"


def _last(numbers: tuple[str, ...]) -> str:
    name = numbers[0].rpartition(".")[2].replace("_", " ")
    return f"overlap of {name} exchanges" if numbers[0].startswith(OVERLAPS) else name


def _launching(setup: TrainSetup) -> TrainSetup:
    stack = replace(setup.stack, host=setup.stack.host or HostLaunch(dispatch="eager"))
    return replace(setup, efficiency=replace(setup.efficiency, stack=stack))


def _linked(platform: Platform, way: SlowLink, by: float) -> Platform:
    of_network = way.part == "network"
    factors = {way.figure: by}
    fabric = tuple(
        # Cores of a chip exchange through its memory, not over links.
        times(level, **factors)
        if isinstance(level, Network) is of_network and not isinstance(level, OnChip)
        else level
        for level in platform.instance.fabric
    )
    return replace(platform, instance=replace(platform.instance, fabric=fabric))


def _divided(ran: Ran, by: int) -> Platform | None:
    """The platform with nodes of fewer chips and their share of adapters, joined by a switch.

    None where groups still fit in one node, or such nodes are impossible.
    """
    platform, layout = ran.setup.platform, ran.parts[0][1]
    instance = platform.instance
    inside = platform.ranks(ran.setup.logical_size) / by
    vcpus = instance.host.vcpus
    whole = instance.chips % by == 0
    if ran.setup.nodes < by or not whole or layout.tp % inside or layout.tp <= inside:
        return None
    fabric: list[Level] = []
    for level in instance.fabric:
        match level:
            case Switch() if level.chips == instance.chips:
                fabric.append(replace(level, chips=level.chips // by))
            case Network() if level.adapters % by == 0:
                fabric.append(replace(level, adapters=level.adapters // by))
            case OnChip():
                fabric.append(level)
            case _:
                return None
    host = replace(instance.host, vcpus=vcpus and vcpus // by)
    divided = replace(instance, chips=instance.chips // by, fabric=tuple(fabric), host=host)
    return replace(platform, instance=divided)


def _later(stack: CollectiveStack, way: SlowLink, by: float) -> CollectiveStack:
    """The communication stack with its own steps over these links slowed by a factor."""
    name = "network_step_s" if way.part == "network" else "step_s"
    tunings = {
        key: replace(one, **{name: getattr(one, name) * by}) for key, one in stack.tunings.items()
    }
    return replace(stack, tunings=tunings)


def _scattered(ran: Ran, by: float, *, alone: bool) -> Ran:
    """The run with one slow node among several, or with more scatter."""
    own = _number(ran.setup.stack.node_scatter)
    nodes = np.array(_nodes(ran))
    if not alone or nodes <= 1:
        scatter = own + (0.0 if alone else by)
    else:
        slowest = float(slowest_node(own, nodes))
        scatter = (slowest * by - 1) / (float(slowest_node(1.0, nodes)) - 1)
    return replace(ran, numbers=dict(ran.numbers) | {"node_scatter": scatter})


def _set(ran: Ran, way: Setting, magnitude: Magnitude) -> Ran | None:
    also = {name: _value(name, text) for name, text in way.also.items()}
    parts: list[tuple[float, Layout]] = []
    for share, layout in ran.parts:
        one = PartialLayout.of(layout)
        own = one[way.knob]
        if isinstance(magnitude, tuple):
            assert isinstance(own, int)
            assert isinstance(magnitude[1], float | int)
            value: Value = own * magnitude[1]
            if value != int(value) or not value:
                return None
            value = int(value)
        else:
            value = _value(way.knob, str(magnitude))
        if value != own:
            layout = one.changed(**{way.knob: value}, **also).complete()
        parts.append((share, layout))
    same = len({layout for _, layout in parts}) == 1
    return replace(ran, parts=((1.0, parts[0][1]),) if same else tuple(parts))


def _value(knob: str, text: str) -> Value:
    return value_parser(KNOBS[knob], knob)(text)


def _count(ran: Ran, each: Each) -> float:
    samples = float(ran.parts[0][1].global_batch)
    return {"once": 1.0, "sample of a node": samples / _nodes(ran), "sample": samples}[each]


def _nodes(ran: Ran) -> float:
    setup = ran.setup
    per_node = setup.platform.instance.chips * setup.platform.chip.ranks(setup.logical_size)
    return float(np.ceil(int(ran.parts[0][1].ranks) / per_node))


def _bounded(key: str, value: float) -> float:
    share = key.endswith("_share") or key.startswith(OVERLAPS)
    return min(value, 1.0) if share else value


def _number(value: Numbers) -> float:
    assert isinstance(value, float | int)
    return float(value)


def _counted_otherwise(setup: TrainSetup, parts: MixedLayouts, by: object) -> float:
    """Time derived from an MFU or throughput, over the step's time.

    `by` names the convention of the stated MFU, with the time derived by the usual one; ("time",
    name) is the reverse; ("x", number) a factor on the peak, devices or tokens. NaN where the chip
    has no such rate.
    """
    match by:
        case ("x", float() | int() as number):
            return float(number)
        case ("time", str(name)):
            return 1 / _stated(setup, parts, name)
        case str(name):
            return _stated(setup, parts, name)
    raise TypeError(f"no convention is {by!r}")


def _counted_in_words(by: object) -> str:
    """Text of a counting convention."""
    match by:
        case ("x", float() | int() as number):
            return f"peak, devices or tokens counted x {number:g}"
        case ("time", name):
            return f"time with {name}, MFU without"
        case _:
            return f"MFU with {by}"


def _stated(setup: TrainSetup, parts: MixedLayouts, convention: str) -> float:
    """FLOP over peak by the usual meaning of MFU, over the same by a convention."""
    layout = parts[0][1]
    program = training_step(setup.model, layout)
    if convention == "headline peak":
        used = utilization(program, setup.platform, np.ones(()), logical_size=setup.logical_size)
        return float(used.mfu / used.mfu_headline)
    needed = float(program.model_flop)
    if convention == "6 FLOP a weight and token":
        tokens = layout.global_batch * layout.sample_tokens
        return needed / float(6 * active_parameter_count(setup.model) * tokens)
    more = 0.0
    if convention == "no attention":
        more -= _attention_flop(program, causal=None)
    if "attention in full" in convention:
        fused = training_step(setup.model, replace(layout, attention="fused"))
        more += _attention_flop(fused, causal=True)
    if "recompute" in convention:
        once = training_step(setup.model, replace(layout, recompute="none"))
        more -= float(once.hardware_flop)
        more += sum(
            share * float(training_step(setup.model, one).hardware_flop) for share, one in parts
        )
    return float(needed / (needed + more))


def _attention_flop(program: StepProgram, *, causal: bool | None) -> float:
    """Model FLOP of attention in a step; with `causal`, only of causal (or other) attention."""
    found = sum(
        float(program.instances(kind) * op.model_flop)
        for kind, block in program.blocks.items()
        for op in block.computing
        if isinstance(op, AttentionOp) and op.phase != "recompute"
        if causal is None or op.causal == causal
    )
    return float(program.micro_batches) * found

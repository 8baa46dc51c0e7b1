"""What is asked of a training stack beyond what its software is known to run, and in which words.

What no line of a stack's file names is untested, but for knobs at their defaults: those run.
"""

from __future__ import annotations

from trnbench.facts.calibration.supports import Support
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.rank_groups import ORDERS
from trnbench.program.features import EXPERTS_APART, features_of, plain_features


def support_of(stack: TrainingStack, feature: str) -> Support:
    """Return what is known of a feature with a stack."""
    if feature == EXPERTS_APART and not ORDERS[stack.order].cuts_experts:
        why = "it counts ranks so that neither context nor data ranks follow tensor ranks"
        return Support(feature=feature, status="refused", note=why)
    told = stack.support_of(feature)
    if told is not None:
        return told
    return Support(feature=feature, status="runs" if feature in plain_features() else "untested")


def runs(stack: TrainingStack, feature: str) -> bool:
    """Tell whether a stack is known to run a feature."""
    return support_of(stack, feature).status == "runs"


def beyond(stack: TrainingStack, model: Model, layout: PartialLayout) -> tuple[Support, ...]:
    """Return what a model in a layout asks of a stack that it is not known to run."""
    found = (support_of(stack, feature) for feature in features_of(model, layout))
    return tuple(one for one in found if one.status != "runs")


def refusal(stack: TrainingStack, one: Support) -> str:
    """Return in words that a stack refuses a feature, who says so, and what helps."""
    why = f" ({one.words})" if one.words else ""
    instead = ", ".join([*_others(stack, one.feature), "another --stack"])
    return (
        f"{stack.short_name} does not run {one.feature}{why}; try {instead}; train, compare and "
        "plan predict it as if it did with --assume-supported"
    )


def warning(stack: TrainingStack, one: Support) -> str:
    """Return in words that nobody knows whether a stack runs a feature, or that it is assumed."""
    why = f" ({one.words})" if one.words else ""
    wider = ""
    if stack.untested is not None:
        ends = f"{stack.untested.low:g} to {stack.untested.high:g}"
        wider = f"; the interval allows for {ends} times the time"
    if one.status == "refused":
        return f"{stack.short_name} does not run {one.feature}{why}, assumed that it did{wider}"
    return f"{one.feature} is untested with {stack.short_name}{why}{wider}"


def _others(stack: TrainingStack, feature: str) -> list[str]:
    """Return the other values of a feature's knob that a stack's file says it runs."""
    for knob in KNOBS.values():
        of_knob = f"{knob.title} "
        if feature.startswith(of_knob):
            named = (name for line in stack.supports for name in line.features)
            return [name for name in named if name.startswith(of_knob) and runs(stack, name)]
    return []

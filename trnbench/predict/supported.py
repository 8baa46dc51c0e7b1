"""Features beyond what a training stack is known to run, and the texts that report them.

A feature that no line of a stack's file names is untested; a knob at its default runs.
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
    if feature == EXPERTS_APART and not ORDERS[stack.order].cuts_experts:
        why = "it counts ranks so that neither context nor data ranks follow tensor ranks"
        return Support(feature=feature, status="refused", note=why)
    stated = stack.support_of(feature)
    if stated is not None:
        return stated
    return Support(feature=feature, status="runs" if feature in plain_features() else "untested")


def runs(stack: TrainingStack, feature: str) -> bool:
    return support_of(stack, feature).status == "runs"


def beyond(stack: TrainingStack, model: Model, layout: PartialLayout) -> tuple[Support, ...]:
    """Features of a model in a layout that a stack is not known to run."""
    found = (support_of(stack, feature) for feature in features_of(model, layout))
    return tuple(one for one in found if one.status != "runs")


def refusal(stack: TrainingStack, one: Support) -> str:
    """Refusal of a feature by a stack, with the source of the statement and a remedy."""
    why = f" ({one.words})" if one.words else ""
    instead = ", ".join([*_others(stack, one.feature), "another --stack"])
    return (
        f"{stack.short_name} does not run {one.feature}{why}; try {instead}; train, compare and "
        "plan predict it as if it did with --assume-supported"
    )


def warning(stack: TrainingStack, one: Support) -> str:
    """Warning that a feature is untested with a stack, or assumed to run."""
    why = f" ({one.words})" if one.words else ""
    wider = ""
    if stack.untested is not None:
        ends = f"{stack.untested.low:g} to {stack.untested.high:g}"
        wider = f"; the interval allows for {ends} times the time"
    if one.status == "refused":
        return f"{stack.short_name} does not run {one.feature}{why}, assumed that it did{wider}"
    return f"{one.feature} is untested with {stack.short_name}{why}{wider}"


def _others(stack: TrainingStack, feature: str) -> list[str]:
    """Other values of a feature's knob that a stack's file lists as running."""
    for knob in KNOBS.values():
        of_knob = f"{knob.title} "
        if feature.startswith(of_knob):
            named = (name for line in stack.supports for name in line.features)
            return [name for name in named if name.startswith(of_knob) and runs(stack, name)]
    return []

"""Effects of counting conventions on step times derived from an MFU."""

from __future__ import annotations

import numpy as np

from trnbench.engines.analytic.step.utilization import utilization
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.weights import active_parameter_count
from trnbench.predict.setup import TrainSetup
from trnbench.program.ops import AttentionOp
from trnbench.program.step import StepProgram, training_step


def counted_otherwise(
    setup: TrainSetup, parts: tuple[tuple[float, Layout], ...], by: object
) -> float:
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


def counted_in_words(by: object) -> str:
    """Text of a counting convention."""
    match by:
        case ("x", float() | int() as number):
            return f"peak, devices or tokens counted x {number:g}"
        case ("time", name):
            return f"time with {name}, MFU without"
        case _:
            return f"MFU with {by}"


def _stated(setup: TrainSetup, parts: tuple[tuple[float, Layout], ...], convention: str) -> float:
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

"""Programs that can be executed with real numbers, and the memory that this takes here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trnbench.engines.execute.kernels import FUNCTIONS
from trnbench.engines.execute.numbers.accuracy import available_bytes
from trnbench.engines.execute.scans import SCANS
from trnbench.errors import EnvironmentFault
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.choices import PAIRED, REINFORCED
from trnbench.program.ops import AttentionOp, CollectiveOp, Elementwise, Operation, ScanOp
from trnbench.program.step import StepProgram

_EXECUTED = ("adamw",)  # Functions that are no kernel: the optimizer
_STATES = 6  # Weights, gradients, their sums, two moments and a master copy, at most
_NUMBER_BYTES = 8


def problems(program: StepProgram) -> tuple[str, ...]:
    return tuple(_problems(program))


def _problems(program: StepProgram) -> Iterator[str]:
    model = program.model
    if model.transformer is None or model.vocabulary is None:
        yield f"{model.name} does not predict text; only text models are trained with real numbers"
        return
    if model.vocabulary.predicted_ratio < 1 or model.vocabulary.token_types:
        yield f"{model.name} fills gaps; only models that predict the next word are trained"
    if program.layout.job in PAIRED:
        yield f"job {program.layout.job}: training with real numbers has no pairs of answers"
        return
    if program.layout.job in REINFORCED:
        yield f"job {program.layout.job}: training with real numbers writes no answers"
        return
    if model.tower is not None:
        yield f"{model.name} sees images, and there is only text to train on"
    if model.head.pooler or model.head.classes is not None:
        yield f"{model.name} has a pooler or a classifier, which the generated text cannot train"
    if model.transformer.position.encoding == "fixed":
        yield f"{model.name} has fixed positions, whose numbers are not known here"
    if program.grid.optimizer_offload != "none":
        yield "an optimizer on the host is not executed; try optimizer-offload none"
        return
    if program.grid.activation_offload is not None:
        yield "activations on the host are not executed; leave activation-offload out"
        return
    unknown = {
        op.function
        for block in program.blocks.values()
        for op in block.ops
        if isinstance(op, Elementwise) and op.function not in (*FUNCTIONS, *SCANS, *_EXECUTED)
    }
    if any(isinstance(op, ScanOp) for op in _operations(program)) and int(program.layout.cp) > 1:
        yield "scans of a sequence that ranks share are not executed; try cp=1"
    if any(isinstance(op, CollectiveOp) and np.any(op.part < 1) for op in _operations(program)):
        yield "a ring that hands round parts of keys is not executed; try all-to-all, or cp=1"
    if any(
        op.reads[3:] and not op.backward
        for op in _operations(program)
        if isinstance(op, AttentionOp)
    ):
        yield "attention with sinks is not executed"
    if unknown:
        yield f"no arithmetic for {', '.join(sorted(unknown))}"


def _operations(program: StepProgram) -> Iterator[Operation]:
    return (op for block in program.blocks.values() for op in block.ops)


def memory_bytes(program: StepProgram) -> float:
    """Approximate memory of this machine for all ranks together, bytes.

    Every number takes as much as the reference's; tensors that ranks hold at once exist at once
    here.
    """
    total = 0.0
    for stage in program.stages:
        held = 0.0
        for kind, count in stage.blocks.items():
            block = program.blocks[kind]
            elements = sum(
                float(bucket.elements) * (1 if bucket.frozen else _STATES)
                for bucket in block.buckets
            )
            kept = sum(float(tensor.elements) for tensor in block.kept.tensors)
            held += float(count) * (elements + kept * float(program.micro_batches))
        total += held * float(stage.multiplicity) * float(program.grid.ranks_per_stage)
    return total * _NUMBER_BYTES


def check_memory(program: StepProgram) -> None:
    """Refuse a program whose arrays do not fit into the memory that is free here."""
    needed, limit = memory_bytes(program), available_bytes()
    if needed > limit:
        raise EnvironmentFault(
            f"training {program.model.name} with real numbers needs about "
            f"{show(needed, Dimension.BYTES)} of memory, {show(limit, Dimension.BYTES)} is here",
            hint="take a smaller model or fewer ranks; the other engines need no arrays",
        )

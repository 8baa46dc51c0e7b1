"""Messages of a micro-batch between pipeline chunks, and the slice that a rank sends.

Ranks of a tensor group that hold the same tensor send a slice each, and the receivers gather it
inside their group, as Megatron and DeepSpeed do.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import replace
from trnbench.program.ops import Send
from trnbench.program.step import StepProgram
from trnbench.program.tensor import ONE, Dim, Tensor, array


def messages_of(program: StepProgram) -> tuple[Send, ...]:
    """One message for each tensor that stages hand on: the tensor, and its gradient back.

    A tensor without gradient counts half, because it goes one way. A tensor that only some stages
    hand on counts by their share.
    """
    # All stages hand on the same tensors; what the last one gets and sends back, others name too.
    messages = [send for stage in program.stages if stage.role != "last" for send in stage.messages]
    back = {send.tensor for send in messages if send.phase == "B_input"}
    found = {
        send.tensor: send if send.tensor in back else _part(send, "one way", array(0.5))
        for send in messages
        if send.phase == "F" and send.direction == "send"
    }
    # Behind the stream, the head reads streams of MTP depths, which only some stages hand on.
    head = program.blocks.get("head")
    for tensor in head.entering[1:] if head is not None else ():
        if tensor in found:
            found[tensor] = _part(found[tensor], "hops", _share_of_hops(program, tensor))
    return tuple(found.values())


def _share_of_hops(program: StepProgram, tensor: Tensor) -> FloatArray:
    """Share of the messages between chunks that carry a tensor."""
    sent = (
        stage.multiplicity * send.count
        for stage in program.stages
        for send in stage.messages
        if send.tensor is tensor and (send.phase, send.direction) == ("F", "send")
    )
    hops = np.maximum(program.grid.pp * program.grid.vpp - 1, 1)
    return array(sum(sent, start=np.zeros(())) / hops)


def _part(send: Send, name: str, share: FloatArray) -> Send:
    part = Dim(name=name, size=share, whole=share)
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, part)))


def slice_of(send: Send, ranks: FloatArray) -> Send:
    """Slice of a tensor that one of the ranks with a copy of it sends."""
    # With sequence parallelism each rank has tokens of its own: nothing is held twice.
    if "tp" in send.tensor.axes:
        return send
    part = Dim(name="slice", size=array(1 / ranks), whole=ONE, axes=("tp",))
    return replace(send, tensor=replace(send.tensor, dims=(*send.tensor.dims, part)))

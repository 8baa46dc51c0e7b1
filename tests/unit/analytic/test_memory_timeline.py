"""Memory slot by slot: its peak is the closed form's, whatever is cut, kept or repeated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.steps import points_where
from tests.unit.analytic.test_memory_of_a_step import TRN1, WASTEFUL, decoder, layout
from trnbench.engines.analytic.step.memory import NeededMemory, memory
from trnbench.engines.analytic.step.memory_timeline import memory_timeline
from trnbench.facts.calibration.hosts import PLAIN, MemoryOverheads
from trnbench.facts.records import replace
from trnbench.program.step import training_step

BASE = layout(global_batch=64)
LAYOUTS = {
    "one rank": BASE,
    "tensor": replace(BASE, tp=2, sequence_parallel=True),
    "all again": replace(BASE, recompute="full", pp=2),
    "core again": replace(BASE, attention="naive", recompute="selective", pp=4),
    "naive": replace(BASE, attention="naive", tp=2, pp=2),
    "optimizer cut": replace(BASE, zero=1, dp=4, pp=2),
    "gradients cut": replace(BASE, zero=2, dp=4),
    "weights cut": replace(BASE, zero=3, dp=4, pp=2),
    "gpipe": replace(BASE, pp=4, dp=4, schedule="gpipe"),
    "fewer micro-batches than stages": replace(BASE, pp=4, dp=32),
    "chunks": replace(BASE, pp=2, vpp=2, dp=2, schedule="interleaved"),
    "one group of chunks": replace(BASE, pp=4, vpp=2, dp=16, schedule="interleaved"),
    "zero bubble": replace(BASE, pp=4, schedule="zb-h1"),
    "work shared": replace(BASE, pp=2, stage_split="work"),
    "one micro-batch": replace(BASE, global_batch=1),
    "one, all again": replace(BASE, global_batch=1, recompute="full"),
    "one, naive": replace(BASE, global_batch=1, attention="naive", tp=2),
    "all forward first": replace(BASE, global_batch=4, pp=4, schedule="gpipe"),
}
LATE = MemoryOverheads(gradients_made="backward", unfused=1.0, logits=1.5, whole=1.1)
"""Plain PyTorch: gradients are made by the backward pass, and every function is a kernel."""


@pytest.mark.parametrize("overheads", [PLAIN, WASTEFUL, LATE], ids=["plain", "wasteful", "late"])
@pytest.mark.parametrize("how", LAYOUTS)
def test_the_peak_is_what_the_closed_form_says(how, overheads):
    program = training_step(decoder(8), LAYOUTS[how])
    assert not program.refusals()
    said = memory(program, TRN1, fragmentation_ratio=0.05, overheads=overheads)
    found = memory_timeline(program, overheads, 0.05)
    worst = said.worst()
    assert found.role == worst.role
    assert found.peak.total_bytes == pytest.approx(float(said.total_bytes), rel=1e-12)
    assert found.peak.by_category == pytest.approx(
        {name: float(size) for name, size in worst.by_category.items()}, rel=1e-12
    )
    # Slots of every micro-batch and chunk, and the optimizer, that holds nothing of them.
    order = 3 if LAYOUTS[how].schedule == "zb-h1" else 2
    batches = int(program.micro_batches) * int(program.grid.vpp)
    ends = [instant.phase for instant in found.instants].count("gradients")
    assert len(found.instants) == order * batches + ends + 1
    needed = NeededMemory(program=program, overheads=overheads).bytes(
        points_where(np.ones((1,), bool)), fragmentation_ratios=[0.05]
    )
    assert needed[0].max() == pytest.approx(float(said.total_bytes), rel=1e-12)
    assert found.instants[-1].phase == "optimizer"
    assert found.instants[-1].by_category["activations"] == 0
    if not ends:
        least = min(instant.total_bytes for instant in found.instants)
        assert least == found.instants[-1].total_bytes


def test_it_climbs_stays_and_falls_by_hand():
    program = training_step(decoder(4), layout(pp=4, stage_split="layers", global_batch=8))
    found = memory_timeline(program, PLAIN, 0.0)
    assert (found.role, found.stage) == ("first", 0)
    # Three forward slots ahead, then one forward and one backward in turn, at last three backward.
    assert [int(instant.in_flight) for instant in found.instants] == [
        *(1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 2, 1),
        0,
    ]
    first, second = (instant.total_bytes for instant in found.instants[:2])
    kept = sum(
        float(resident.bytes)
        for kind in ("embedding", "dense")
        for resident in program.blocks[kind].residents
        if resident.lifetime in ("until_backward", "until_weight")
    )
    assert second - first == kept
    assert found.peak.slot == 3
    assert found.peak.held["dense", "activations"] == 4 * sum(
        float(resident.bytes)
        for resident in program.blocks["dense"].residents
        if resident.lifetime in ("until_backward", "until_weight")
    )


def test_gradients_appear_as_kept_tensors_go_by_hand():
    program = training_step(decoder(4), layout(global_batch=1))
    plain = memory_timeline(program, PLAIN, 0.0)
    late = memory_timeline(program, MemoryOverheads(gradients_made="backward"), 0.0)
    assert [instant.phase for instant in late.instants] == [
        *("forward", "backward", "gradients", "optimizer")
    ]
    gradients = plain.peak.by_category["gradients"]
    begin, end, update = late.instants[1:]
    assert begin.total_bytes == plain.peak.total_bytes - gradients
    assert end.by_category["gradients"] == update.by_category["gradients"] == gradients
    # One layer still has what it kept when its gradients are made, and no logits are left.
    (kept,) = {
        sum(
            float(one.bytes) for one in program.blocks["dense"].residents if "until" in one.lifetime
        )
    }
    embedded = sum(
        float(one.bytes) for one in program.blocks["embedding"].residents if "until" in one.lifetime
    )
    assert end.by_category["activations"] == kept + embedded
    assert late.peak.total_bytes == max(begin.total_bytes, end.total_bytes)


def test_gradients_that_are_added_up_stay_beside_what_is_kept():
    program = training_step(decoder(4), layout(global_batch=4))
    late = memory_timeline(program, MemoryOverheads(gradients_made="backward"), 0.0)
    plain = memory_timeline(program, PLAIN, 0.0)
    # From the second micro-batch on both are there: nothing is saved.
    assert late.peak.total_bytes == plain.peak.total_bytes

"""What layers keep, on the host: bytes of ranks and hosts, and what a step waits, by hand."""

from __future__ import annotations

from typing import Any

import pytest

import trnbench
from tests.unit.program.test_program_step import decoder
from trnbench.engines.execute.coverage import problems
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.evidence.step_row import step_of
from trnbench.facts.calibration.hosts import load_job_rates
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.workload.layout import Layout
from trnbench.program.block import Block
from trnbench.program.step import StepProgram, host_states_bytes, training_step

CATALOG = open_catalog(environment={})
KNOBS: dict[str, Any] = {"global_batch": 8, "sequence": 16, "precision": "bf16-master"}
RAN: dict[str, Any] = {
    **{"on": "p5.48xlarge", "tp": 2, "pp": 1, "dp": 4, "cp": 1, "vpp": 1, "zero": 1},
    **{"micro_batch": 1, "global_batch": 32, "sequence": 8192, "recompute": "none"},
}


def program(**knobs: Any) -> StepProgram:
    return training_step(decoder(), Layout(**{**KNOBS, **knobs}))


def kept(block: Block, lifetime: str) -> float:
    return sum(
        float(one.bytes)
        for one in block.residents
        if one.category == "activations" and one.lifetime == lifetime
    )


def test_two_layers_stay_on_the_device_and_all_on_the_host() -> None:
    usual, away = program(), program(activation_offload="host")
    for kind, block in usual.blocks.items():
        each = kept(block, "until_backward") + kept(block, "until_weight")
        there = away.blocks[kind]
        if kind == "head":
            # What the output block keeps is read again at once.
            assert not there.offloaded
            assert kept(there, "until_backward") + kept(there, "until_weight") == each
            continue
        assert float(there.offloaded["activations"]) == each
        assert kept(there, "slot") == 2 * each
        assert kept(there, "until_backward") == 0
    # All layers of one micro-batch in flight, on each of four ranks of a node.
    sent = sum(
        float(block.offloaded.get("activations", 0.0)) * float(away.instances(kind))
        for kind, block in away.blocks.items()
    )
    assert float(host_states_bytes(program(activation_offload="host", dp=4), 4)) == 4 * sent
    assert float(host_states_bytes(usual, 4)) == 0


def test_a_step_waits_for_what_no_compute_hides() -> None:
    (usual,) = trnbench.train("llama3.1-8b", **RAN)
    (away,) = trnbench.train("llama3.1-8b", activation_offload="host", **RAN)
    assert usual.step is not None
    assert away.step is not None
    assert usual.memory is not None
    assert away.memory is not None
    rates = load_job_rates(CATALOG)
    link = load_instance(CATALOG, "p5.48xlarge").host.link_per_chip_one_way_bytes_per_s
    assert link
    # 32 layers' tensors of one micro-batch, but for those of the output block, there and back.
    layers = [row for row in away.notes if "goes to the host and back" in row]
    assert len(layers) == 1
    waited = away.step.exposed_s["host"] - usual.step.exposed_s["host"]
    device_s = away.step.device_s_per_microbatch
    assert device_s
    travelled_s = waited / 8 + float(rates.offload_overlap) * device_s
    sent = travelled_s * float(rates.host_link_share) * link / 2
    gone = usual.memory.by_category["activations"] - away.memory.by_category["activations"]
    # Of 32 layers two remain on the device.
    assert sent == pytest.approx(gone * 32 / 30, rel=0.02)
    assert away.step.step_time_s == pytest.approx(usual.step.step_time_s + waited)


def test_what_cannot_offload_says_so() -> None:
    (found,) = trnbench.train(
        "llama3.1-8b", **{**RAN, "on": "trn2.48xlarge", "dp": 32}, activation_offload="host"
    )
    assert found.reasons == (
        "activation offload needs GPUs, trn2.48xlarge has none; leave --activation-offload out",
    )
    (found,) = trnbench.train(
        "llama3.1-8b",
        **{**RAN, "pp": 2, "dp": 2},
        schedule="zb-h1",
        activation_offload="host",
    )
    assert any("needs a whole backward pass, not schedule zb-h1" in why for why in found.reasons)
    # All that 32 layers of half a million tokens keep is more than the host has.
    (found,) = trnbench.train(
        "llama3.1-8b",
        **{**RAN, "tp": 8, "dp": 1, "sequence": 1 << 19},
        sequence_parallel=True,
        loss="fused",
        activation_offload="host",
    )
    assert any("what layers keep on the host needs" in why for why in found.reasons)
    executed = problems(program(activation_offload="host"))
    assert any("not executed" in why for why in executed)


def test_a_row_says_what_was_offloaded() -> None:
    cells = {"instance": "p5.48xlarge", "model": "llama3.1-8b", "step_time_s": "3"}
    row = EvidenceRow(id="one", line=1, cells={**cells, "offload": "Activations"})
    assert step_of(row).layout.given["activation_offload"] == "host"
    assert step_of(EvidenceRow(id="two", line=1, cells=cells)).layout["activation_offload"] is None
    with pytest.raises(RowFault, match="only offloaded activations are scored"):
        step_of(EvidenceRow(id="three", line=1, cells={**cells, "offload": "optimizer"}))

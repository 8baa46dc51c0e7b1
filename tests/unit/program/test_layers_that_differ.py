"""Scans, windows and towers of a program, by hand; figures of published models."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layers import as_pattern, layer_order
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.ops import AttentionOp, CollectiveOp, ScanOp
from trnbench.program.step import StepProgram, training_step

CATALOG = open_catalog(environment={})
TOKENS = 8192


def program_of(name: str, **degrees: object) -> StepProgram:
    layout = {"global_batch": 8, "sequence": TOKENS, "precision": "bf16-master", **degrees}
    return training_step(load_model(CATALOG, name), Layout(**layout))  # type: ignore[arg-type]


def scans(program: StepProgram, kind: str, *phases: str) -> list[ScanOp]:
    block = program.blocks[kind]
    return [op for op in block.ops if isinstance(op, ScanOp) and op.phase in phases]


@pytest.mark.parametrize(
    ("model", "kind", "whole", "needed"),
    [
        # 2 G Q N + 2 H Q P + 4 H P N: 8 groups, chunks of 128, 64 heads of 64, states of 128.
        ("nemotron-3-nano-30b-a3b", "mamba", 262_144 + 1_048_576 + 2_097_152, 2.76e6),
        ("mamba2-2.7b", "mamba", 65_536 + 2_621_440 + 2_621_440, 3.97e6),
        # 2 Hv (3 C K + 2 C V + 3 K V + C^2 / 3): 32 heads of 128 x 128, chunks of 64.
        ("qwen3-next-80b-a3b", "linear", 2 * 32 * (5 * 64 * 128 + 3 * 128**2 + 64**2 / 3), 4.6e6),
    ],
)
def test_operations_of_a_scan_a_token(model: str, kind: str, whole: float, needed: float) -> None:
    program = program_of(model)
    forward = scans(program, kind, "F")
    assert sum(float(op.flop) for op in forward) / TOKENS == pytest.approx(whole, rel=1e-12)
    model_flop = sum(float(op.model_flop) for op in forward) / TOKENS
    assert model_flop == pytest.approx(needed, rel=0.01)
    (backward,) = scans(program, kind, "B_input")
    assert float(backward.flop) / TOKENS == pytest.approx(2 * whole, rel=1e-12)


def test_a_scan_keeps_no_states_but_makes_one_for_each_chunk_again() -> None:
    program = program_of("nemotron-3-nano-30b-a3b")
    block = program.blocks["mamba"]
    assert not any(tensor.name == "scan.states" for tensor in block.kept.tensors)
    (again,) = scans(program, "mamba", "recompute")
    (states,) = again.writes
    # 8,192 / 128 chunks, 64 heads of 64 x 128.
    assert float(states.elements) == 64 * 64 * 64 * 128
    # Input of the layer, what leaves the projection, the scan and the gated norm, in bf16.
    kept = sum(float(tensor.elements) for tensor in block.kept.tensors) / TOKENS
    fused = 2 * 2688 + (2 * 4096 + 2 * 1024 + 64) + 2 * 4096
    assert fused <= kept <= fused + 4096 + 2 * 64 + 8


def test_a_window_cuts_operations_ring_traffic_and_memory() -> None:
    degrees = {"cp": 8, "sequence": 131_072}
    sliding = program_of("gemma-3-4b", **degrees).blocks["sliding"]
    full = program_of("gemma-3-4b", **degrees).blocks["full"]

    def sent(block: object) -> float:
        ops = [op for op in block.ops if isinstance(op, CollectiveOp) and op.axis == "cp"]  # type: ignore[attr-defined]
        return sum(float(op.size_bytes * op.count) for op in ops if op.phase == "F")

    # Key and value of 4 heads of 256 in bf16: 2 x 1,023 tokens of others instead of 7/8 of all.
    assert sent(sliding) == pytest.approx(2 * 2 * 1023 * 4 * 256 * 2)
    assert sent(full) == pytest.approx(2 * 131_072 * 7 / 8 * 4 * 256 * 2)
    pairs = {
        name: next(float(op.whole_pairs) for op in block.ops if isinstance(op, AttentionOp))
        for name, block in (("sliding", sliding), ("full", full))
    }
    assert pairs["sliding"] == 1024 * 131_072 - 1024**2 / 2
    assert pairs["full"] == 131_072**2 / 2
    held = [
        sum(
            float(op.write.held_bytes)
            for op in block.ops
            if isinstance(op, CollectiveOp) and op.ring == "gather" and op.phase == "F"
        )
        for block in (sliding, full)
    ]
    # A rank's own 16,384 tokens and the window's, against its own and one piece of another's.
    assert held == pytest.approx([2 * (16_384 + 2046) * 2048, 2 * 2 * 16_384 * 2048])


def test_a_tower_is_counted_an_image_a_sample() -> None:
    program = program_of("gemma-3-4b", sequence=2048)
    hidden, ffn, patches = 1152, 4304, 4096
    weights = 4 * hidden**2 + 2 * hidden * ffn
    forward = 2 * weights * patches + 4 * patches**2 * hidden
    block = program.blocks["tower.layer"]
    assert float(block.flop("F")) == pytest.approx(forward, rel=1e-9)
    assert float(program.instances("tower.layer")) == 27


def test_flop_of_published_models_a_token() -> None:
    # 6 FLOP for each parameter a token meets but the input table, and three times what attention
    # and scans take forward: 6 causal layers of 32 heads of 128, 23 scans.
    program = program_of("nemotron-3-nano-30b-a3b")
    attention = 6 * 3 * 4 * 32 * 128 * TOKENS / 2
    scan = 23 * 3 * 2.757e6
    expected = 6 * 3.228e9 + attention + scan
    found = float(program.model_flop) / 8 / TOKENS
    assert found == pytest.approx(expected, rel=0.01)


def test_patterns_read_what_they_write() -> None:
    for pattern in ("(sliding*5 full)*5 sliding*4", "a", "a b*3 (c a)*2"):
        assert layer_order(as_pattern(layer_order(pattern))) == layer_order(pattern)
    for bad in ("", "(a", "a)", "*3", "a*0", "a b!", "(a*9999 b)*9999"):
        with pytest.raises(ValueError, match="pattern"):
            layer_order(bad)

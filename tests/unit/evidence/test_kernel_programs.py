"""Kernels of several operations, lowered by hand: products, passes and bytes."""

from __future__ import annotations

import pytest

from trnbench.evidence.kernel_programs import KernelProgram, Lowered, lowered
from trnbench.evidence.kernels import compare_kernels, kernel_of
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.verbs.validate.run import shipped_evidence

CATALOG = open_catalog(environment={})
TRN1 = load_chip(CATALOG, "trainium1")
SIZES = {"M": 256, "K": 512, "N": 1024, "R": 16, "B": 2}


def _row(kernel: str, shape: str, **cells: str) -> EvidenceRow:
    told = {"hardware": "trn1", "dtype": "fp32", "latency_ms": "1", "cores_used": "1"}
    return EvidenceRow(id=kernel, line=1, cells={**told, "kernel": kernel, "shape": shape, **cells})


def test_a_swiglu_is_three_products_and_a_gate() -> None:
    found = lowered("swiglu", SIZES)
    up, down, turned = (256, 512, 1024), (256, 1024, 512), (256, 128, 512)
    assert found.products == (up, up, down, turned)
    assert (found.scalar, found.paired) == (256 * 1024, 2 * 256 * 1024)
    # Tokens in and out, three matrices.
    assert found.moved == 2 * 256 * 512 + 3 * 512 * 1024


def test_other_kernels_by_hand() -> None:
    assert lowered("silu", SIZES) == Lowered(scalar=256 * 1024, moved=2 * 256 * 1024)
    turned = lowered("transpose_matmul", SIZES)
    assert turned.products == ((256, 512, 1024), (256, 128, 512))
    assert turned.moved == 256 * 512 + 512 * 1024 + 256 * 1024
    assert lowered("lora", SIZES).products[1:3] == ((256, 512, 16), (256, 16, 1024))
    assert len(lowered("bmm_softmax", SIZES).products) == 2
    with pytest.raises(RowFault, match="lora needs R"):
        lowered("lora", {"M": 1, "K": 1, "N": 1})


def test_a_tuned_kernel_takes_its_busiest_engine_and_a_baseline_all() -> None:
    work = Lowered(products=((4096, 128, 128),), vector=1e9, paired=1e9, scalar=1e9)
    tuned = KernelProgram(
        chip="trainium1", lowered=work, number_format="fp32", tuned=True, size_bytes=1.0
    )
    parts = tuned.parts_s(TRN1)
    # Trainium1: four passes of fp32 on 128 x 128 at 2.8 GHz; lanes of 1.12 GHz take two cycles for
    # two inputs, of 1.4 GHz one.
    assert parts["tensor"] == pytest.approx(2 * 4096 * 128 * 128 * 4 / (2 * 128 * 128 * 2.8e9))
    assert parts["vector"] == pytest.approx((1e9 + 2e9) / (128 * 1.12e9))
    assert parts["scalar"] == pytest.approx(1e9 / (128 * 1.4e9))
    assert tuned.time_s(TRN1) == parts["vector"]
    assert replace(tuned, tuned=False).time_s(TRN1) == pytest.approx(sum(parts.values()))
    assert replace(tuned, cores=2).time_s(TRN1) == pytest.approx(parts["vector"] / 2)


def test_rows_say_cores_software_and_bytes() -> None:
    row = _row(
        "swiglu, torch.compile", "{K: 512 M: 256 N: 1024}", cores_used="2 (LNC2)", dtype="bf16"
    )
    found = kernel_of(row, [row])
    assert isinstance(found, KernelProgram)
    assert (found.software, found.cores, found.tuned) == ("compiled", 2, False)
    row = _row("silu (baseline)", "{M: 256 N: 1024}", hbm_read_MB="1.5", hbm_write_MB="0.5")
    found = kernel_of(row, [row])
    assert isinstance(found, KernelProgram)
    assert (found.size_bytes, found.tuned) == (2e6, False)


def test_four_of_five_published_kernels_lie_in_their_intervals() -> None:
    rows = [
        one
        for file in shipped_evidence(["kernels"])
        for one in compare_kernels(CATALOG, file)
        if one.family == "several operations"
    ]
    assert len(rows) == 29
    assert (
        sum((one.low_s or 0) <= (one.measured_s or 0) <= (one.high_s or 0) for one in rows)
        / len(rows)
        >= 0.8
    )

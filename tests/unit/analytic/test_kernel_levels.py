"""Levels of Trainium's kernels: busy cores, shares by format, rows with their cores."""

from __future__ import annotations

import pytest

from trnbench.engines.analytic.matrix.levels import reached_time
from trnbench.errors import InputError
from trnbench.evidence.kernels import KernelProduct, Stream, kernel_of
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.machine.tiling.kernel_levels import busy_share
from trnbench.program.matrix import matrix_product

TRN2 = load_chip(open_catalog(), "trainium2")
CUBE = matrix_product(16384, 16384, 16384, format_a="bf16")


def row(**cells: str) -> EvidenceRow:
    usual = {"hardware": "trn2", "shape": "M16384 K16384 N16384", "dtype": "bf16"}
    return EvidenceRow(id="one", line=2, cells={**usual, "latency_ms": "1", **cells})


@pytest.mark.parametrize(
    ("cores", "share"), [(1, 1.0), (2, 1.0), (3, 0.845), (4, 0.845), (8, 0.845)]
)
def test_more_than_half_of_a_die_slows_its_cores(cores, share):
    # Two dies of four cores: logical cores 0 and 1 together kept 0.848 of their rate alone.
    assert busy_share(TRN2, cores) == share


def test_a_pair_is_slower_when_the_chip_is_busy():
    def time_s(busy):
        return float(reached_time(CUBE, TRN2, "compiled", cores=2, busy=busy)[0].time_s)

    # Measured: 63.6 and 65.4 ms alone, 75.6 ms beside the others: 1.16 to 1.19 times.
    assert 1.15 < time_s(8) / time_s(2) < 1.2


def test_formats_of_several_passes_reach_another_share():
    wide = replace(CUBE, format_a="fp32", format_b="fp32")
    found, sheet = reached_time(wide, TRN2)
    assert float(found.time_s / sheet.time_s) == pytest.approx(1 / 0.99, rel=0.002)
    found, sheet = reached_time(CUBE, TRN2)
    assert float(found.time_s / sheet.time_s) == pytest.approx(1 / 0.87, rel=0.002)


def test_a_chip_without_timed_kernels_has_its_documented_rates():
    unit = TRN2.cores
    assert unit is not None
    bare = replace(TRN2, cores=replace(unit, kernels={}))
    found, sheet = reached_time(CUBE, bare)
    assert found is sheet
    with pytest.raises(InputError, match="no compiled kernels are known"):
        reached_time(CUBE, bare, "compiled")


@pytest.mark.parametrize(
    ("used", "cores", "busy"),
    [
        ("1", 1, 1),
        ("", 1, 1),
        ("1 (LNC1)", 1, 1),
        ("2 (LNC2)", 2, 2),
        ("1 logical (LNC2)", 2, 2),
        ("2 (LNC2, all 8 busy)", 2, 8),
    ],
)
def test_a_row_is_scored_on_its_cores(used, cores, busy):
    found = kernel_of(row(kernel="matmul, torch.compile", cores_used=used), ())
    assert isinstance(found, KernelProduct)
    assert (found.cores, found.busy, found.software) == (cores, busy, "compiled")


def test_software_of_a_row_is_what_it_names():
    kinds = {
        "matmul, torch_neuronx.trace (default flags)": "traced",
        "matmul of a layer, torch.compile": "compiled",
        "matmul hoisted loads": "nki",
    }
    for kernel, software in kinds.items():
        found = kernel_of(row(kernel=kernel), ())
        assert isinstance(found, KernelProduct)
        assert found.software == software
    with pytest.raises(RowFault, match="two times in one"):
        kernel_of(row(kernel="matmul 16384 then TP4 all_gather"), ())


def test_a_tuned_pass_alone_draws_on_a_stack_of_memory():
    # 2.9 TB/s over four stacks; untuned, the core's own 16 engines of 23 GB/s less descriptors.
    tuned = Stream(chip="trainium2", size_bytes=725e6, tuned=True)
    assert tuned.time_s(TRN2) == pytest.approx(1e-3, rel=0.01)
    assert replace(tuned, tuned=False).time_s(TRN2) == pytest.approx(2e-3, rel=0.05)

"""Rows of attention kernels: what their words say, and what the closed form makes of them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from trnbench.evidence.attention_kernels import (
    TimedAttention,
    TimedChip,
    attention_kernel,
    interval_s,
    is_attention,
    sampled,
)
from trnbench.evidence.kernels import compare_kernels
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault, read_evidence
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace

PUBLISHED = Path(__file__).parents[3] / "workloads" / "published"
TILE_FLOP = 2 * 2 * 128 * 512 * 128
"""Both products of a tile of 128 queries and 512 keys, heads of 128."""
KNOWN = ChipEfficiency(
    name="chip-hand",
    title="hand",
    chips=("trainium2",),
    tensor_share=0.8,
    half_share_depth=0.0,
    narrow_share=0.9,
    memory_share=0.7,
    attention_forward_share=0.25,
    attention_backward_share=0.5,
    attention_keys=512.0,
    attention_call_s=40e-6,
    attention_row_s=1e-6,
)


@lru_cache
def published() -> EvidenceFile:
    return read_evidence(PUBLISHED / "attention_kernels.csv")


def kernel(name: str) -> TimedAttention:
    row = next(row for row in published().rows if row.id == name)
    return attention_kernel(row, published().rows)


def row(**cells: str) -> EvidenceRow:
    base = {
        "hardware": "trn2",
        "cores_used": "1",
        "kernel": "attention_cte forward, full",
        "shape": "bs1 1 head q1024 k2048 d128",
        "dtype": "bf16",
        "latency_ms": "1",
    }
    return EvidenceRow(id="one", line=2, cells={**base, **cells})


def test_words_of_rows_are_read():
    one = kernel("nkisamples-flashfwd-32k-6h-train")
    assert (one.chip, one.cores, one.heads, one.kv_heads) == ("trainium1", 1, 6, 3)
    assert (one.queries, one.keys, one.head_size) == (32768, 32768, 96)
    assert (one.causal, one.backward, one.tile_keys, one.bound) == (True, False, 2048, False)
    other = kernel("selfforcing-cte-trn2")
    assert (other.heads, other.queries, other.keys, other.cores) == (12, 4680, 6240, 2)
    assert other.assumed == ("cores: the default",)
    assert not other.causal
    bound = kernel("nkisamples-flashbwd-32k")
    assert (bound.backward, bound.bound, bound.heads, bound.flash) == (True, True, 4, True)
    assert kernel("autocomp-4_attention-step9").flash is False
    assert kernel("nkisamples-flashfwd-16k-swa4096").window == 4096
    assert kernel("nkilib-cte-lnc2-b1-q8192-k8192-d64-full-fp32").number_format == "bf16"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("autocomp-4_attention-step8", "intermediate result of a kernel search"),
        ("kda-trn2-gqa_full-v8_ctxsplit", "multiplies in fp32"),
        ("nkisamples-flashfwd-32kx16k", "causal over other keys than queries"),
    ],
)
def test_what_is_no_timing_of_whole_attention_is_refused(name: str, reason: str):
    with pytest.raises(RowFault, match=reason):
        kernel(name)


def test_a_kernel_that_leaves_something_out_says_so():
    file = read_evidence(PUBLISHED / "trainium_kernels.csv")
    best = next(one for one in file.rows if one.id == "autocomp-4_attention-best")
    assert is_attention(best)
    with pytest.raises(RowFault, match="not attention of any input"):
        attention_kernel(best, file.rows)


@pytest.mark.parametrize(
    "cells",
    [{"shape": "k2048 d128"}, {"cores_used": "some"}, {"hardware": "Trainium"}],
)
def test_a_row_that_says_too_little_is_refused(cells: dict[str, str]):
    with pytest.raises(RowFault):
        attention_kernel(row(**cells), ())


@pytest.mark.parametrize(
    ("cells", "size"),
    [
        ({"cores_used": "0"}, "cores"),
        ({"shape": "0 heads q1024 k2048 d128"}, "heads"),
        ({"shape": f"q1024 k{'9' * 30} d128"}, "keys"),
    ],
)
def test_sizes_that_no_call_has_are_refused(cells: dict[str, str], size: str):
    with pytest.raises(RowFault, match=f"`{size}` must be from 1 to"):
        attention_kernel(row(**cells), ())


def test_time_is_that_of_tiles_and_rows_of_tiles_beside_a_start():
    chip = load_chip(open_catalog(), "trainium2")
    tile_s = TILE_FLOP / (chip.peak_flop_per_s("bf16") / 8 * 0.25)
    full = attention_kernel(row(), ())
    # 8 tiles of queries see 4 tiles of keys each, and what the keys themselves cost is as much as
    # one more, where they are more than the queries.
    tiles = (8 + 1) * 4
    assert float(full.times_s(chip, KNOWN)) == pytest.approx(40e-6 + 8e-6 + tiles * tile_s)
    # A head of half the size takes as long, and two cores share heads.
    small = attention_kernel(row(shape="bs1 2 heads q1024 k2048 d64", cores_used="2 (LNC2)"), ())
    assert float(small.times_s(chip, KNOWN)) == pytest.approx(40e-6 + 8e-6 + tiles * tile_s)
    # Of 8 rows of tiles over 1,024 causal keys half need the first tile of 512 alone.
    causal = attention_kernel(row(kernel="flash_fwd causal", shape="q1024 k1024 d128"), ())
    assert float(causal.times_s(chip, KNOWN)) == pytest.approx(40e-6 + 8e-6 + 12 * tile_s)
    # Five products in place of two, at twice the share.
    backward = attention_kernel(row(kernel="flash_attn_bwd, full"), ())
    assert float(backward.times_s(chip, KNOWN)) == pytest.approx(48e-6 + tiles * tile_s * 2.5 / 2)


def test_numbers_in_a_row_give_times_in_a_row():
    chip = load_chip(open_catalog(), "trainium2")
    halves = replace(KNOWN, attention_forward_share=np.array([0.25, 0.125]))
    one, other = attention_kernel(row(), ()).times_s(chip, halves)
    assert other - 48e-6 == pytest.approx(2 * (one - 48e-6))


def test_a_chip_without_timed_kernels_prices_none():
    untimed = replace(KNOWN, attention_forward_share=0.0)
    one, chip = attention_kernel(row(), ()), load_chip(open_catalog(), "trainium2")
    with pytest.raises(RowFault, match="no attention kernel"):
        one.times_s(chip, untimed)


def test_an_interval_holds_the_time_and_is_wider_than_kernels_scatter():
    chip = load_chip(open_catalog(), "trainium2")
    on = TimedChip(chip=chip, efficiency=KNOWN, drawn=sampled(KNOWN))
    time_s, low_s, high_s = interval_s(attention_kernel(row(), ()), on)
    assert low_s < time_s < high_s
    assert high_s / time_s == pytest.approx(1.166, abs=0.01)  # exp(1.2816 * 0.12)


def test_published_kernels_lie_near_their_prediction():
    rows = compare_kernels(open_catalog(), published())
    attention = [one for one in rows if one.set == "attention_kernels" and one.error is not None]
    assert len(attention) > 40
    timed = [one for one in attention if not one.assumed]
    assert np.mean([abs(one.error or 0.0) for one in timed]) < 0.2
    assert np.mean([one.time.covered for one in timed]) > 0.7

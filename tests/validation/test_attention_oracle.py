"""Answers at 128k tokens against the longest attention kernels that were timed.

An answer's seconds of attention must lie between what those kernels mean by the useful part of the
peak that they reach: forward the kernel for training on Trainium1 and the newest on Trainium2, and
backward the only one with a bound.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from trnbench.evidence.rows import read_evidence
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.verbs.train.run import train

PUBLISHED = Path(__file__).parents[2] / "workloads" / "published" / "attention_kernels.csv"
FORWARD_SLOW = ("nkisamples-flashfwd-32k-1h", "nkisamples-flashfwd-32k-6h-train")
BACKWARD = "nkisamples-flashbwd-32k"
FORWARD_FAST = (
    "nkilib-cte-lnc1-b1-q4096-k32768-d128-full-bf16",
    "nkilib-cte-lnc1-b1-q16384-k16384-d128-causal-fp16",
)
SEQUENCE, BATCH, LAYERS, HEADS, HEAD_SIZE, CHIPS = 131072, 64, 32, 32, 128, 256


@lru_cache
def useful(name: str) -> float:
    """Return the part of the peak that a kernel's causal half (or all) of its FLOP took."""
    (row,) = (row for row in read_evidence(PUBLISHED).rows if row.id == name)
    return row.positive("pct_of_peak_derived") / 100


def seconds(forward: float, backward: float) -> float:
    """Return the seconds of a step's attention, all of it computed again once."""
    pairs = BATCH * HEADS * LAYERS * SEQUENCE**2 / 2
    flop = 4 * HEAD_SIZE * pairs * (2 / forward + 2.5 / backward)
    peak = load_chip(open_catalog(), "trainium2").peak_flop_per_s("bf16")
    return flop / (peak * CHIPS)


@pytest.mark.parametrize("stack", ["torchtitan-trn2", "axlearn-trn2", "nxd-trn2"])
def test_attention_over_128k_tokens_takes_what_the_longest_kernels_mean(stack: str):
    slow = seconds(min(map(useful, FORWARD_SLOW)), useful(BACKWARD))
    share = sum(map(useful, FORWARD_FAST)) / len(FORWARD_FAST)
    fast = seconds(share, useful(BACKWARD))
    assert 24 < fast < 28
    assert 39 < slow < 45
    (answer, *_) = train(
        model="llama3.1-8b",
        on="trn2.48xlarge:16",
        sequence="128k",
        global_batch=BATCH,
        tp=4,
        cp=4,
        recompute="full",
        stack=stack,
        assume_supported=True,
    )
    row = answer.row()
    keys = ("exposed_attention_s", "step_time_s", "low_step_time_s", "high_step_time_s")
    attention_s, step_s, low_s, high_s = (float(str(row[key])) for key in keys)
    assert fast < attention_s < slow
    assert slow < high_s
    assert low_s < step_s

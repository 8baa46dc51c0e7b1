"""Attention kernels played on the engines: exact skipping, limits of the core, work by hand."""

from __future__ import annotations

from itertools import product

import pytest

from trnbench.engines.emulate.attention.run import run_attention
from trnbench.engines.emulate.tensor_engine.stream import Heat, Machine
from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.compute_unit import NeuronCores, Throttle
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.machine.tiling.attention import AttentionCall

CATALOG = open_catalog()
CHIPS = {name: load_chip(CATALOG, name) for name in ("trainium1", "trainium2", "trainium3")}


def call_of(tokens: int = 2048, **changes) -> AttentionCall:
    heads = changes.get("heads", 1)
    sizes = {"queries": tokens, "keys": tokens, "heads": heads, "kv_heads": heads}
    return AttentionCall(**{**sizes, "score_size": 128, "value_size": 128, **changes})


@pytest.mark.parametrize(
    ("chip", "backward", "causal"), product(CHIPS, (False, True), (False, True))
)
def test_skipping_what_repeats_changes_nothing(chip, backward, causal):
    for tokens, size, heads in ((1000, 64, 3), (4096, 128, 2), (2304, 192, 1)):
        call = call_of(
            tokens, score_size=size, value_size=size, heads=heads, backward=backward, causal=causal
        )
        assert run_attention(call, CHIPS[chip]) == run_attention(call, CHIPS[chip], shorten=False)


def test_the_training_kernel_runs_on_chips_that_transpose_by_dma_too():
    call = call_of(2048, heads=2)
    for shorten in (True, False):
        found = run_attention(call, CHIPS["trainium2"], kernel="training", shorten=shorten)
        assert found.kernel == "training"
        assert found.busy["turns"] == 0
    with pytest.raises(InputError, match="no DMA transpose"):
        run_attention(call, CHIPS["trainium1"], kernel="library")
    with pytest.raises(InputError, match="no NeuronCores"):
        run_attention(call, load_chip(CATALOG, "h100"))


@pytest.mark.parametrize(("chip", "backward"), product(CHIPS, (False, True)))
def test_few_queries_of_many_keys_wait_for_the_buffer_of_keys(chip, backward):
    """A rank that shares a sequence with many has fewer queries than the kernel has stages."""
    times = []
    for queries in (64, 256, 384, 512, 1024):
        call = call_of(16384, queries=queries, ring_queries=queries, heads=2, backward=backward)
        found = run_attention(call, CHIPS[chip])
        assert found == run_attention(call, CHIPS[chip], shorten=False)
        times.append(found.time_s)
    assert times[-1] == max(times)


@pytest.mark.parametrize(("chip", "backward"), product(CHIPS, (False, True)))
def test_a_long_sequence_is_mostly_looked_up(chip, backward, monkeypatch):
    played = 0
    play = Machine.play

    def counted(self, step):
        nonlocal played
        played += 1
        play(self, step)

    monkeypatch.setattr(Machine, "play", counted)
    run_attention(call_of(32768, heads=64, backward=backward), CHIPS[chip])
    steps = 64 * (32768 // 128) * (32768 // 2048) // 2
    assert played < 0.02 * steps


@pytest.mark.parametrize(("chip", "size"), product(CHIPS, (64, 80, 96, 128, 192, 256)))
def test_buffers_fit_psum_and_sbuf(chip, size):
    unit = CHIPS[chip].unit
    assert isinstance(unit, NeuronCores)
    for backward, number_format in product((False, True), ("bf16", "fp32")):
        call = call_of(
            16384, score_size=size, value_size=size, backward=backward, number_format=number_format
        )
        found = run_attention(call, CHIPS[chip])
        assert found.psum_banks <= unit.psum.banks
        assert found.partition_bytes <= unit.sbuf.partition_bytes


def work_s(call, chip, kernel, engine):
    found = run_attention(call, CHIPS[chip], kernel=kernel)
    return found.busy[engine] * found.time_s


def test_tensor_engine_does_the_products_and_transposes_of_every_tile():
    tiles = 4096 * 4096 // (128 * 512)
    call = call_of(4096, causal=False)
    # Scores; P turned and multiplied with values, 128 keys at a time. 2.8 GHz.
    cycles = tiles * (512 + 4 * 128 + 4 * 128)
    assert work_s(call, "trainium1", "training", "tensor") == pytest.approx(cycles / 2.8e9, 1e-4)
    half = replace(call, score_size=64, value_size=64)
    cycles = tiles * (512 + 4 * 128 + 4 * 64)
    assert work_s(half, "trainium1", "training", "tensor") == pytest.approx(cycles / 2.8e9, 1e-4)
    # Two arrays deep: the scores of a head of 256 take twice as long, and so do the sums.
    double = replace(call, score_size=256, value_size=256)
    cycles = tiles * (2 * 512 + 4 * 128 + 4 * 256)
    assert work_s(double, "trainium1", "training", "tensor") == pytest.approx(cycles / 2.8e9, 1e-4)


def test_backward_has_five_products_and_the_transposes_of_one():
    tiles, keys, queries = 4096 * 4096 // (128 * 512), 4096 // 512, 4096 // 128
    call = call_of(4096, causal=False, backward=True)
    # q and dy are turned for every tile, k once a key tile, the result once a query tile.
    cycles = tiles * (5 * 512 + 512 + 2 * 128) + keys * 512 + queries * 128
    assert work_s(call, "trainium1", "training", "tensor") == pytest.approx(cycles / 2.8e9, 1e-4)


def test_scalar_engine_takes_an_element_a_cycle():
    tiles, queries = 4096 * 4096 // (128 * 512), 4096 // 128
    call = call_of(4096, causal=False)
    # Exponentials with their sum (64 more) and 60 to start, then the scaled output; 1.2 GHz. The
    # rest are copies of turned queries out of PSUM, which the vector engine may take as well.
    least = tiles * (512 + 64 + 60) + queries * (128 + 60)
    most = least + queries * (128 + 60)
    assert least / 1.2e9 * 0.9999 <= work_s(call, "trainium2", "library", "scalar")
    assert work_s(call, "trainium2", "library", "scalar") <= most / 1.2e9 * 1.0001


def test_vector_engine_takes_the_maximum_as_scores_leave_psum():
    tiles, queries = 4096 * 4096 // (128 * 512), 4096 // 128
    call = call_of(4096, causal=False)
    rows = tiles * (512 + 64 + 60)
    small = queries * (3 * 124 + 2 * 188 + 188)
    found = work_s(call, "trainium2", "library", "vector")
    assert rows / 0.96e9 <= found <= (rows + small) / 0.96e9


def test_dma_engines_turn_every_tile_at_half_their_rate():
    tiles = 4096 * 4096 // (128 * 512)
    call = call_of(4096, causal=False)
    # Each of 16 engines serves 8 partitions: 4 rows of 256 B for each, 6 ns a row besides.
    turn = 8 * 4 * (256 / (0.5 * 23e9) + 6e-9)
    found = work_s(call, "trainium2", "library", "dma")
    loads = 4 * 4096 * 128 * 2 / (16 * 23e9)
    assert tiles * turn < found < tiles * turn + 2 * loads


def test_gpsimd_masks_every_tile_of_the_training_kernel():
    call = call_of(4096)
    tiles = 16 * 4 * (1 + 2)
    found = work_s(call, "trainium1", "training", "gpsimd")
    assert found == pytest.approx(tiles * (150 + 512) / 1.4e9, 1e-4)


def test_two_cores_of_a_rank_share_heads():
    chip = CHIPS["trainium2"]
    one = run_attention(call_of(4096, heads=2), chip)
    both = run_attention(call_of(4096, heads=4), chip, cores=2)
    odd = run_attention(call_of(4096, heads=5), chip, cores=2)
    more = run_attention(call_of(4096, heads=6), chip, cores=2)
    assert both.time_s == one.time_s
    assert both.time_s < odd.time_s < more.time_s


def test_an_idle_tensor_engine_is_slow_until_it_has_worked():
    heat = Heat(Throttle(slow_share=0.5, busy_share=0.5, window_s=3e-6))
    microsecond = 10**9
    durations, now = [], 0
    for _ in range(6):
        durations.append(heat.duration_fs(now, microsecond))
        now += durations[-1]
    assert durations == [2 * microsecond, 2 * microsecond, *[microsecond] * 4]
    # Busy for a third of the last 3 us is too little; after all of them at work again it is not.
    now += 2 * microsecond
    durations = []
    for _ in range(3):
        durations.append(heat.duration_fs(now, microsecond))
        now += durations[-1]
    assert durations == [2 * microsecond, 2 * microsecond, microsecond]


def test_gradients_of_shared_keys_are_stored_once():
    chip = CHIPS["trainium2"]
    own = call_of(4096, heads=8, backward=True)
    found = [run_attention(replace(own, kv_heads=n), chip) for n in (8, 2)]
    stored = [run.busy["stores"] * run.time_s for run in found]
    queries, keys = 4096 // 128, 2 * 4096 // 2048
    assert stored[1] / stored[0] == pytest.approx((8 * queries + 2 * keys) / (8 * (queries + keys)))
    assert run_attention(replace(own, kv_heads=2), chip, shorten=False) == found[1]

"""Training adapters with real numbers: what moves, what stays, what a checkpoint holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trnbench.engines.execute.arithmetic import packed_round
from trnbench.engines.execute.checkpoint import resume, save
from trnbench.facts.numbers.formats import NF4

LORA = {"job": "lora", "adapter_rank": 4}
FORMATS = ["none", "fp8", "int8", "nf4"]


def frozen(trainer):
    return [
        (block.plan.block.kind, block.layer, held.whole_weights().copy())
        for stage in trainer.stages
        for block in stage.blocks
        for held in block.frozen
    ]


@pytest.mark.parametrize("zero", [0, 3])
def test_frozen_weights_stay_and_adapters_move(zero, small_model, small_trainer):
    trainer = small_trainer(small_model(), dp=2, zero=zero, **LORA)
    before, adapters = frozen(trainer), trainer.weights()
    losses = [trainer.step() for _ in range(40)]
    assert losses[-1] < losses[0]
    assert {kind for kind, _, _ in before} == {"embedding", "dense", "head"}
    for (*_, then), (*_, now) in zip(before, frozen(trainer), strict=True):
        assert np.array_equal(then, now)
    after = trainer.weights()
    assert all(".lora_" in name for name, _ in after)
    for name, weight in adapters.items():
        assert not np.array_equal(weight, after[name]), name


def test_an_adapter_changes_nothing_at_first(small_model, small_trainer):
    whole = small_trainer(small_model())
    beside = small_trainer(small_model(), **LORA)
    assert beside.step() == whole.step()
    assert beside.step() != whole.step()


@pytest.mark.parametrize("precision", ["bf16-master", "fp8"])
def test_packed_weights_come_near_the_ones_they_were(precision, small_model, small_trainer):
    found = {}
    for kept in FORMATS:
        trainer = small_trainer(
            small_model(), exact=False, precision=precision, frozen_format=kept, **LORA
        )
        layer = [numbers for kind, at, numbers in frozen(trainer) if (kind, at) == ("dense", 0)]
        found[kept] = np.sort(np.concatenate(layer))
        assert np.isfinite([trainer.step() for _ in range(3)]).all()
    errors = {kept: np.abs(found[kept] - found["none"]).max() for kept in FORMATS}
    assert 0 == errors["none"] < errors["int8"] < errors["nf4"] < 0.02
    assert errors["fp8"] < errors["nf4"]


@pytest.mark.parametrize("kept", ["int8", "nf4"])
def test_packed_weights_are_the_same_in_every_layout(kept, small_model, small_trainer):
    given = {"exact": False, "precision": "bf16-master", "frozen_format": kept, **LORA}
    alone = small_trainer(small_model(), **given)
    cut = small_trainer(small_model(), tp=2, dp=2, zero=3, sequence_parallel=True, **given)
    for (*_, one), (*_, other) in zip(frozen(alone), frozen(cut), strict=True):
        assert np.array_equal(one, other)
    expected = [alone.step() for _ in range(5)]
    assert [cut.step() for _ in range(5)] == pytest.approx(expected, rel=1e-3)


def test_nf4_by_hand():
    weights = np.array([-2.0, 0.0, 0.3, 1.0, 2.0])
    unpacked = packed_round(weights, NF4)
    # Largest 2: halves are -1, 0, 0.15, 0.5, 1, of which 0.1609 and 0.4407 are the nearest values.
    expected = [-2, 0, 2 * 0.16093020141124725, 2 * 0.44070982933044434, 2]
    assert unpacked == pytest.approx(expected)
    two_blocks = packed_round(np.concatenate([np.full(64, 0.5), [8.0, 1.0]]), NF4)
    assert two_blocks[0] == 0.5
    assert two_blocks[-1] == pytest.approx(8 * 0.16093020141124725)


def test_a_checkpoint_holds_adapters_and_goes_on_to_the_bit(tmp_path, small_model, small_trainer):
    run = {"job": "lora"}
    first = small_trainer(small_model(), dp=2, zero=1, **LORA)
    losses = [first.step() for _ in range(3)]
    path = save(tmp_path, first, losses, run)
    with np.load(path) as file:
        sizes = {name: file[name].size for name in file.files if name != "note"}
        assert json.loads(bytes(file["note"]))["losses"] == losses
    # Each of 2 layers: rank x (inputs + outputs) of q, k, v, output, gate, up, down.
    adapters = 4 * (16 + 12 + 12 + 16 + 3 * 24)
    assert sum(sizes.values()) == 2 * 3 * adapters
    again = small_trainer(small_model(), dp=2, zero=1, **LORA)
    assert resume(tmp_path, again, run) == tuple(losses)
    assert [again.step() for _ in range(3)] == [first.step() for _ in range(3)]

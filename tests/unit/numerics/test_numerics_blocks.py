from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.execute.numbers.blocks import block_round, dequantise, quantise
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.numbers.formats import FORMATS

BLOCKED = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4"]


def _group(*leading):
    values = np.zeros(32, dtype=np.float32)
    values[: len(leading)] = leading
    return values


def _scale(values, name, rule):
    return quantise(values, name, rule=rule).scales.astype(np.float64).item()


@pytest.mark.parametrize(
    ("name", "rule", "scale"),
    [
        # amax 3: floor(log2 3) = 1
        ("mxfp8_e4m3", "trainium", 2.0 ** (1 - (8 - 1))),
        ("mxfp8_e4m3", "ocp", 2.0 ** (1 - 8)),
        ("mxfp8_e5m2", "trainium", 2.0 ** (1 - (15 - 1))),
        ("mxfp8_e5m2", "ocp", 2.0 ** (1 - 15)),
        ("mxfp4", "trainium", 2.0 ** (1 - (2 - 1))),
        ("mxfp4", "ocp", 2.0 ** (1 - 2)),
    ],
)
def test_scale_rules(name, rule, scale):
    assert _scale(_group(0.25, -3.0), name, rule) == scale


def test_default_rules():
    values = _group(3.0)
    for name, rule in (("mxfp8_e4m3", "trainium"), ("mxfp4", "ocp")):
        assert _scale(values, name, None) == _scale(values, name, rule)


def test_trainium_rule_rounds_where_the_ocp_rule_clamps():
    # amax 500: floor(log2) = 8. OCP: X = 1, 500 is past 448 and clamps. Trainium: X = 2,
    # 250 lies between 240 and 256 in steps of 16 and rounds to 256, times 2 = 512.
    values = _group(500.0)
    assert block_round(values, "mxfp8_e4m3", rule="ocp")[0] == 448
    assert block_round(values, "mxfp8_e4m3", rule="trainium")[0] == 512
    # MXFP4, amax 7: X = 2^(2 - 2) = 1 and 7 clamps to 6; 2.5 ties to even between 2 and 3.
    np.testing.assert_array_equal(block_round(_group(7, 2.5, -0.6), "mxfp4")[:3], [6, 2, -0.5])


@pytest.mark.parametrize("rule", ["trainium", "ocp"])
@pytest.mark.parametrize("name", BLOCKED)
def test_all_zero_group_has_the_smallest_scale(name, rule):
    assert _scale(_group(), name, rule) == 2.0**-127
    assert not block_round(_group(), name, rule=rule).any()


def test_scale_is_clamped_to_e8m0():
    # amax 2^-149 would ask for 2^-156; at 2^-127 it is 2^-22 of a scale, far below E4M3's 2^-9.
    tiny = _group(2.0**-149)
    assert _scale(tiny, "mxfp8_e4m3", "trainium") == 2.0**-127
    assert block_round(tiny, "mxfp8_e4m3")[0] == 0
    # amax 2^127 asks for 2^(127 - 7) = 2^120 and is held exactly.
    assert block_round(_group(2.0**127), "mxfp8_e4m3")[0] == 2.0**127


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", BLOCKED)
def test_a_bad_number_spoils_its_group_only(name, bad):
    values = np.concatenate([_group(1.0, bad), _group(1.0)])
    rounded = block_round(values, name)
    assert np.isnan(rounded[:32]).all()
    assert rounded[32] == 1.0


@pytest.mark.parametrize("name", BLOCKED)
def test_axis_and_short_last_group(name):
    values = np.random.default_rng(0).standard_normal((3, 70, 5), dtype=np.float32)
    along_k = block_round(values, name, axis=-2)
    assert along_k.shape == values.shape
    np.testing.assert_array_equal(
        along_k, np.swapaxes(block_round(np.swapaxes(values, -1, -2), name), -1, -2)
    )
    blocks = quantise(values, name, axis=1)
    assert blocks.scales.shape == (3, 5, 3)
    np.testing.assert_array_equal(along_k[:, 64:], block_round(values[:, 64:], name, axis=1))
    np.testing.assert_array_equal(dequantise(blocks), along_k)


def test_storage_size():
    # 64 elements: 32 bytes of packed FP4 and two scales.
    assert quantise(np.ones(64), "mxfp4").size_bytes == 34


@given(
    exponents=st.lists(st.integers(-20, 20), min_size=32, max_size=64),
    seed=st.integers(0, 1000),
    name=st.sampled_from(BLOCKED),
)
@settings(deadline=None, max_examples=100)
def test_error_is_at_most_half_a_step_of_the_scaled_element(exponents, seed, name):
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.uniform(-2, 2, len(exponents)), exponents).astype(np.float32)
    format = FORMATS[name]
    blocks = quantise(values, name, rule="trainium")
    scale = np.repeat(blocks.scales.astype(np.float64), 32)[: values.size]
    relative = np.abs(values) * 2.0**-format.mantissa_bits
    step = np.maximum(relative, scale * format.smallest)
    assert (np.abs(dequantise(blocks) - values.astype(np.float64)) <= 0.5 * step).all()


def test_bad_arguments():
    with pytest.raises(InputError, match="bf16 has no block scale"):
        quantise(np.ones(32), "bf16")
    with pytest.raises(UnknownNameError, match="unknown scale rule"):
        quantise(np.ones(32), "mxfp4", rule="trn")  # type: ignore[arg-type]


def test_nvfp4_scales_sixteen_by_an_e4m3_number_and_all_by_one_of_fp32() -> None:
    # The largest number takes 6 x 448 of the finest steps: whole scale 2,688 / 2,688 = 1.
    # Its own sixteen have scale 448. The others, of at most 3, have scale 3 / 6 = 0.5: 3 is 6 x
    # 0.5, 0.7 is 1.4 steps of 0.5, nearest to 1.5: 0.75.
    large = np.zeros(16)
    large[0] = 2688
    small = np.zeros(16)
    small[:3] = (3, 0.7, -0.1)
    found = quantise(np.concatenate([large, small]), "nvfp4")
    assert found.whole_scale == 1.0
    assert found.scales.astype(np.float32).tolist() == [448.0, 0.5]
    read = dequantise(found)
    assert read[0] == 2688
    assert read[16:19].tolist() == [3.0, 0.75, 0.0]
    assert found.size_bytes == 32 / 2 + 2


def test_blocks_of_fp8_have_the_least_power_of_two_that_holds_them():
    # 896 is 448 times 2; 900 needs 4: 900 / 4 = 225, halfway between 224 and 226, goes to 224.
    for largest, scale, read in ((896.0, 2.0, 896.0), (900.0, 4.0, 896.0), (448.0, 1.0, 448.0)):
        row = np.zeros(128, dtype=np.float32)
        row[:2] = largest, 17.0
        made = quantise(row, "blockfp8_e4m3")
        assert made.scales.tolist() == [scale]
        assert dequantise(made)[0] == read
    # Steps of 2 between 16 and 32: 17 is halfway, and goes to the even 16; an error of 1 of 17.
    assert block_round(np.array([448.0, 17.0], dtype=np.float32), "blockfp8_e4m3")[1] == 16.0


def test_a_scale_of_blockwise_fp8_reaches_128_along_the_sum_and_in_weights_128_rows():
    values = np.full((256, 256), 2.0**-9, dtype=np.float32)
    values[0, 0] = 448.0
    rows = block_round(values, "blockfp8_e4m3", axis=-1)
    tiles = block_round(values, "blockfp8_tile_e4m3", axis=-1)
    # Beside 448 the smallest step is 2^-9: the number is kept; a quarter of it is not.
    assert np.array_equal(rows, values)
    assert np.array_equal(tiles, values)
    quarter = np.where(values == 448, values, values / 4)
    lost = block_round(quarter, "blockfp8_e4m3", axis=-1) == 0
    assert lost.sum() == 127
    assert lost[0, 1:128].all()
    lost = block_round(quarter, "blockfp8_tile_e4m3", axis=-1) == 0
    assert lost.sum() == 128 * 128 - 1
    assert lost[:128, :128].sum() == 128 * 128 - 1


def test_a_weight_in_tiles_is_the_same_whichever_way_it_is_read():
    weight = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    weight[:100] *= 2.0**-12
    one = block_round(weight, "blockfp8_tile_e4m3", axis=-1)
    assert np.array_equal(one, block_round(weight, "blockfp8_tile_e4m3", axis=-2))
    assert np.array_equal(one.T, block_round(weight.T, "blockfp8_tile_e4m3", axis=-1))
    other = block_round(weight, "blockfp8_e4m3", axis=-1)
    assert not np.array_equal(other.T, block_round(weight.T, "blockfp8_e4m3", axis=-1))
    # Three bits behind the point: at most half a step, 1/16 of a number that is not tiny.
    assert (np.abs(one - weight) <= np.abs(weight) / 16 + 2.0**-10).all()


def test_blocks_of_fp8_are_counted_with_their_scales():
    values = np.ones((256, 384), dtype=np.float32)
    assert quantise(values, "blockfp8_e4m3").size_bytes == 256 * (384 + 3 * 4)
    assert quantise(values, "blockfp8_tile_e4m3").size_bytes == 256 * 384 + 2 * 3 * 4
    assert FORMATS["blockfp8_e4m3"].bytes_per_element == 1 + 4 / 128
    assert FORMATS["blockfp8_tile_e4m3"].bytes_per_element == 1 + 4 / 128**2


def test_blockwise_fp8_knows_zeros_and_what_is_not_finite():
    values = np.zeros(256, dtype=np.float32)
    values[128] = np.inf
    made = block_round(values, "blockfp8_e4m3")
    assert (made[:128] == 0).all()
    assert np.isnan(made[128:]).all()
    with pytest.raises(InputError, match="is not for"):
        quantise(values, "blockfp8_e4m3", rule="ocp")
    with pytest.raises(InputError, match="is not for"):
        quantise(values, "mxfp8_e4m3", rule="blockwise")

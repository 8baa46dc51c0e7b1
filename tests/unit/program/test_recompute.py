"""Recompute of modules and of some layers: bytes and FLOP by hand, between none and full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.recompute import MODULES, PLAIN, modules_of, recompute_named
from trnbench.program.slots import is_whole
from trnbench.program.step import training_step

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))
LLAMA = load_model(CATALOG, "llama3.1-8b")
DEEPSEEK = load_model(CATALOG, "deepseek-v3")
KEPT = ("until_backward", "until_weight")


def step(model=LLAMA, **knobs):
    given = {"tp": 4, "sequence_parallel": True, "global_batch": 8, "sequence": 4096}
    return training_step(model, Layout(**{**given, "precision": "bf16-master", **knobs}))


def kept_bytes(block):
    return sum(float(r.bytes) for r in block.residents if r.lifetime in KEPT)


def saved(mode, model=LLAMA, kind="dense", **knobs):
    blocks = [step(model, recompute=m, **knobs).blocks[kind] for m in ("none", mode)]
    return kept_bytes(blocks[0]) - kept_bytes(blocks[1]), float(blocks[1].flop("recompute"))


def test_norms_drop_two_widths_a_token_of_the_stream():
    # Two norms of 4,096 numbers of 2 bytes, for a quarter of 4,096 tokens.
    assert saved("norms") == (2 * 4096 * 2 * 1024, 0)


def test_activations_drop_what_the_gate_puts_out():
    # A quarter of 14,336 columns, 2 bytes each, for 4,096 tokens.
    assert saved("activations") == (14336 // 4 * 2 * 4096, 0)


def test_activations_of_experts_are_those_of_the_tokens_they_take():
    # 8 of 256 experts: 32 ranks hold 8 experts each, and take as many tokens as they send, 8 times.
    mode, knobs = "activations", {"tp": 1, "ep": 32, "dp": 32, "global_batch": 32}
    size, flop = saved(mode, DEEPSEEK, "moe_exchanged", **{**knobs, "sequence_parallel": False})
    assert (size, flop) == (4096 * (8 * 2048 + 2048) * 2, 0)


def test_up_projection_keeps_latents_alone_and_projects_again():
    size, flop = saved("up-projection", DEEPSEEK, "dense", tp=8)
    heads, tokens = 128 // 8, 4096
    # Queries, keys with their rotated part, and values; for these a rank's eighth of the rotated
    # parts, which all heads share, is kept beside the latents.
    assert size == heads * tokens * (192 + 192 + 128) * 2 - tokens // 8 * 64 * 2
    assert flop == 2 * tokens * heads * (1536 * 192 + 512 * (128 + 128))


def test_a_quantised_copy_is_dropped_with_what_it_was_cast_from():
    wide = step(precision="fp8").blocks["dense"]
    narrow = step(precision="fp8", recompute="activations").blocks["dense"]
    assert kept_bytes(wide) - kept_bytes(narrow) >= 14336 // 4 * 4096
    again = [op.name for op in narrow.phase("recompute")]
    assert [name.partition(".active")[2] for name in again] == ["", ".fp8_e4m3"]


def test_some_layers_lie_between_none_and_full():
    found = {m: step(pp=4, recompute=m) for m in ("none", "full:2", "full")}
    # 8 layers a stage: a quarter of what full runs again.
    more = {m: float(p.hardware_flop - found["none"].hardware_flop) for m, p in found.items()}
    assert more["full"] > 0
    assert more["full:2"] == pytest.approx(more["full"] / 4)
    assert [float(n) for n in found["full:2"].stages[1].blocks.values()] == [6, 2]
    assert float(found["full:2"].model_flop) == float(found["none"].model_flop)


def test_modules_are_no_further_pass_through_a_layer():
    for mode, whole in (("norms", False), ("norms,activations", False), ("full", True)):
        assert is_whole(step(recompute=mode).blocks["dense"], "recompute") == whole


def test_layers_are_counted_in_each_chunk():
    found = step(pp=4, vpp=2, schedule="interleaved", recompute="full:3")
    assert [float(n) for n in found.stages[1].blocks.values()] == [2, 6]
    assert not step(pp=4, vpp=2, schedule="interleaved", recompute="full:5").legal


@pytest.mark.parametrize(
    ("mode", "model", "words"),
    [
        ("full:9", LLAMA, "at most 8 layers"),
        ("up-projection", LLAMA, "no latent attention"),
        ("norms", load_model(CATALOG, "olmo-3-7b"), "the model has no norm before"),
    ],
)
def test_what_a_model_does_not_have_is_refused(mode, model, words):
    (said,) = step(model, pp=4, recompute=mode).refusals()
    assert words in said


@pytest.mark.parametrize("text", ["norm", "full:0", "full:x", "norms,norms", "norms,full", ""])
def test_texts_that_mean_nothing_are_refused(text):
    with pytest.raises(ValueError, match=r"not one of|expects|twice"):
        Layout(global_batch=1, sequence=8, precision="bf16", recompute=text)


def test_a_word_that_is_nearly_right_is_named():
    with pytest.raises(ValueError, match="did you mean 'norms'"):
        recompute_named("norm")


@given(st.sets(st.sampled_from(MODULES), min_size=1), st.randoms(use_true_random=False))
def test_modules_in_any_order_are_one_mode(modules, random):
    shuffled = random.sample(sorted(modules), len(modules))
    mode = recompute_named(",".join(shuffled))
    assert recompute_named(mode) == mode
    assert set(modules_of(mode)) == modules
    assert (mode in PLAIN) == (modules == {"attention-core"})


@given(st.sets(st.sampled_from(["norms", "activations", "attention-core"]), min_size=1))
def test_more_modules_keep_less_and_full_keeps_least(modules):
    mode = recompute_named(",".join(modules))
    kept = [
        kept_bytes(step(attention="naive", recompute=m).blocks["dense"])
        for m in ("none", mode, "full")
    ]
    assert kept[0] > kept[1] > kept[2]


def test_a_search_in_one_mode_prices_it_like_a_step_of_its_own():
    grid = step(recompute="full:2", tp=np.array([2, 4]), pp=4)
    for i in (0, 1):
        assert float(grid.hardware_flop[i]) == pytest.approx(float(grid.at((i,)).hardware_flop))

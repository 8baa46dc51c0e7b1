"""`trnbench numerics`: recipes side by side, sums that stall, malformed input."""

from __future__ import annotations

import pytest

SHORT = ("numerics", "--steps", 4, "--seeds", 2, "--global-batch", 1, "--sequence", 8)


@pytest.mark.slow
def test_each_recipe_has_a_row_held_against_fp32(run):
    done = run(*SHORT, "--precision", "bf16,bf16-sr", "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    assert [row["precision"] for row in rows] == ["fp32", "bf16", "bf16-sr"]
    assert rows[0]["gap"] == rows[0]["low_gap"] == 0
    assert rows[0]["learned"] == 1
    for row in rows:
        assert len(row["losses"]) == 4
        assert row["low_gap"] <= row["gap"] <= row["high_gap"]
        assert row["gap"] == pytest.approx(row["final_loss"] - rows[0]["final_loss"])
    # fp32: weight, gradient, mean and square in 4 bytes each; bf16: in 2.
    assert [row["state_bytes"] for row in rows] == [16, 8, 8]
    sums = done.json["summary"]["sums"]
    assert {one["format"]: (one["exact"], one["nearest"]) for one in sums} == {
        "fp16": (2048, 1024),
        "bf16": (768, 256),
    }
    products = done.json["summary"]["products"]
    assert [one["format"] for one in products] == [
        *("fp32", "tf32", "bf16", "fp8_e4m3", "mxfp8_e4m3", "bf16"),
    ]
    assert products[-1]["pattern"] == "4:16"
    assert all(0 < one["near_one"] <= one["small"] <= 1 for one in products)


def test_a_model_too_large_for_this_machine_is_refused_before_it_fills_it(run):
    done = run("numerics", "gpt3-175b", "--sequence", 8, "--global-batch", 1)
    assert done.code == 3
    assert "of memory" in done.err


def test_people_see_table_curve_and_sums(run):
    done = run(*SHORT, "--precision", "bf16", "--learning-rate", "0.001")
    assert done.code == 0, done.err
    assert "2 seeds, " in done.out
    for words in (
        "1,024 + 2,048 x 0.5",
        "mxfp8_e4m3",
        "4:16 sparse",
        "gap to fp32",
        "learning rate 0.001",
        "to nearest",
        "step",
    ):
        assert words in done.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--precision", "bf17"), "bf17"),
        (("--learning-rate", "0"), "--learning-rate must be above 0"),
        (("bert-large", "--sequence", 16), "fills gaps"),
    ],
)
def test_malformed_input_is_one_line(run, options, words):
    done = run("numerics", *options)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err

"""`trnbench train --engine functional`: rows, resuming, answers of no, malformed input."""

from __future__ import annotations

import pytest

TINY = (
    *("train", "tiny-gpt", "--on", "trn1.32xlarge", "--tp", 8, "--global-batch", 2),
    *("--sequence", 16, "--engine", "functional"),
)


def test_a_run_gives_a_row_a_step_and_its_accounts(run):
    done = run(*TINY, "--steps", 3, "--precision", "bf16-sr", "--json")
    assert done.code == 0, done.err
    rows, summary = done.json["rows"], done.json["summary"]
    keys = ["step", "loss", "tokens", "modelled_time_s", "modelled_cost_usd"]
    assert [list(row) for row in rows] == [keys] * 3
    assert rows[2]["tokens"] == 3 * 32
    assert summary["agrees"] is True
    assert summary["final_loss"] == rows[2]["loss"]
    assert {line["axis"] for line in summary["traffic"]} == {"tp", "world"}


def test_people_see_losses_and_accounts(run):
    done = run(*TINY, "--steps", 2)
    assert done.code == 0, done.err
    assert "tiny-gpt with real numbers" in done.out
    assert "DIFFERS" not in done.out


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(run, tmp_path):
    whole = run(*TINY, "--steps", 3, "--json").json["rows"]
    first = run(*TINY, "--steps", 2, "--resume", tmp_path, "--json")
    assert first.json["rows"] == whole[:2]
    second = run(*TINY, "--steps", 3, "--resume", tmp_path, "--json")
    assert second.json["rows"] == whole
    assert second.json["summary"]["resumed_steps"] == 2
    other = run(*TINY, "--steps", 3, "--seed", 5, "--resume", tmp_path)
    assert other.code == 2
    assert "another run: seed 0 there, 5 here" in other.err


def test_a_damaged_checkpoint_is_one_line(run, tmp_path):
    run(*TINY, "--steps", 1, "--resume", tmp_path, "--json")
    (tmp_path / "step-00000001.npz").write_bytes(b"PK")
    done = run(*TINY, "--steps", 2, "--resume", tmp_path)
    assert done.code == 2
    assert "not a whole checkpoint" in done.err
    assert "Traceback" not in done.err


def test_a_layout_that_cannot_be_is_an_answer_of_no(run):
    done = run(*TINY[:4], "--tp", 3, "--engine", "functional", "--json")
    assert done.code == 1
    assert done.json["rows"] == []
    assert any("does not divide" in reason for reason in done.json["summary"]["reasons"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plot",), "draws its losses anyway"),
        (("--trace", "x.json"), "--trace acts on the played schedule"),
        (("--straggler", "0=2"), "--straggler acts on the played schedule"),
        (("--seed", -1), "must not be negative"),
    ],
)
def test_what_acts_on_something_else_is_refused(run, options, words):
    done = run(*TINY, *options)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize("option", [("--steps", 3), ("--resume", "runs")])
def test_options_of_a_run_need_its_engine(run, option):
    done = run("train", "tiny-gpt", "--on", "trn1.32xlarge", *option)
    assert done.code == 2
    assert f"{option[0]} belongs to a run with real numbers" in done.err

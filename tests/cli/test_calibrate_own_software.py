"""Rows of software that no stack is known for: calibrated, they predict the rest."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import tomli

from tests.sampling import sampled

SWEEP = Path(__file__).parent / "rows" / "sweep.csv"
"""A seeded sample of a public sweep: 12 rows to fit, 8 kept aside."""


def sweep(tmp_path, change=lambda row: row, rows=slice(None)):
    with SWEEP.open() as file:
        known = list(csv.DictReader(file))
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, known[0].keys())
        writer.writeheader()
        writer.writerows(change(dict(row)) for row in known[rows])
    return path


def errors(answer):
    rows = [row for row in answer["rows"] if not row["fitted"]]
    return [abs(row["error"]) for row in rows]


@pytest.mark.slow
def test_a_dozen_rows_predict_those_kept_aside(run, tmp_path):
    before = run("validate", "--evidence", SWEEP, "--json").json
    assert {row["calibration"] for row in before["rows"]} == {"training-nanotron-hopper"}
    assert sum(errors(before)) / len(errors(before)) < 0.32
    target = tmp_path / "calibration" / "mine.toml"
    target.parent.mkdir()
    done = run("calibrate", SWEEP, "--stack", "ours", "-o", target)
    assert done.code == 0
    assert f"training-ours written to {target}" in done.err
    assert list(target.parent.iterdir()) == [target]
    assert run("spec", "validate", target).code == 0
    after = run("validate", "--evidence", SWEEP, "--spec-dir", tmp_path, "--json").json
    assert {row["calibration"] for row in after["rows"]} == {"mine"}
    assert sum(errors(after)) / len(errors(after)) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(["ours", "training-ours"], ["ours"]))
def test_a_stack_without_o_goes_to_the_users_data_and_serves_by_both_names(run, tmp_path, name):
    def renamed(row):
        return {**row, "framework": "Home Grown v2.1"}

    done = run("calibrate", sweep(tmp_path, renamed), "--stack", name, "--json")
    assert done.code == 0
    written = Path(done.json["summary"]["written"])
    assert written.name == "training-ours.toml"
    assert done.json["summary"]["begun_as"] == "training-eager-hopper"
    other = sweep(tmp_path, lambda row: {**row, "framework": "home grown 3"})
    found = run("validate", "--evidence", other, "--json").json
    assert {row["calibration"] for row in found["rows"]} == {"training-ours"}
    where = ("train", "llama3.1-8b", "--on", "dgx-h100:2", "--tp", "8", "--global-batch", "64")
    for asked in ("ours", "training-ours"):
        trained = run(*where, "--sequence", "4096", "--stack", asked, "--json")
        assert trained.code == 0
    # A known stack keeps its name, and may begin anew.
    anew = ("calibrate", other, "--stack", name, "--from", "compiled", "--json")
    kept = written.read_bytes()
    refused = run(*anew)
    assert (refused.code, written.read_bytes()) == (2, kept)
    assert "is there already; nothing is overwritten\n  hint: --force" in refused.err
    again = run(*anew, "--force")
    assert again.json["summary"]["begun_as"] == "training-compiled-hopper"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step_time_s": "0.001"}, "above the chips' peak"),
        ({"step_time_s": "500000"}, "in ms it would be 500 s"),
        ({"step_time_s": "-3"}, "step_time_s"),
    ],
)
def test_impossible_rows_are_left_out_with_the_arithmetic(run, tmp_path, change, said):
    def first(row):
        return {**row, **change} if row["id"] == wrong else row

    with SWEEP.open() as file:
        wrong = next(csv.DictReader(file))["id"]
    done = run("calibrate", sweep(tmp_path, first), "--stack", "ours", "--json")
    assert done.code == 0
    (left_out,) = done.json["summary"]["unused"]
    assert left_out["id"] == wrong
    assert said in left_out["reason"]
    none = run("calibrate", sweep(tmp_path, lambda row: {**row, **change}), "--stack", "ours")
    assert none.code == 2
    assert said in none.err


@pytest.mark.slow
def test_a_step_faster_than_its_network_is_left_out(run, tmp_path):
    def small(row):
        ranks = {"tp": 1, "pp": 1, "dp": 128, "nodes": 16, "ranks": 128}
        # 8B parameters in 16 bits leave a node twice at 400 GB/s: 0.08 s; 128 sequences of 64
        # tokens take next to nothing.
        return {**row, **ranks, "model": "Llama-like 8B", "seq": 64, "gbs": 128, "mbs": 1} | {
            "step_time_s": "0.03"
        }

    done = run("calibrate", sweep(tmp_path, small, slice(0, 1)), "--stack", "ours")
    assert done.code == 2
    assert "below the network's bound" in done.err


@pytest.mark.slow
def test_one_row_tells_the_overall_factor_alone(run, tmp_path):
    done = run("calibrate", sweep(tmp_path, rows=slice(0, 1)), "--stack", "ours")
    assert done.code == 0
    assert "determines only an overall factor" in done.out
    again = run(
        "calibrate", sweep(tmp_path, rows=slice(0, 1)), "--stack", "ours", "--force", "--json"
    )
    assert [row["number"] for row in again.json["rows"] if row["moved"]] == ["factor"]


def test_two_frameworks_are_named(run, tmp_path):
    names = iter(["a-ware 1.0", "b-ware"] * 10)
    rows = sweep(tmp_path, lambda row: {**row, "framework": next(names)})
    done = run("calibrate", rows, "--stack", "ours")
    assert done.code == 2
    assert "'a-ware', 'b-ware'" in done.err


@pytest.mark.slow
def test_a_hyphen_prints_the_stack_and_writes_none(run, tmp_path):
    done = run("calibrate", sweep(tmp_path, dict), "--stack", "ours", "-o", "-")
    assert done.code == 0
    assert tomli.loads(done.out)["name"] == "training-ours"
    assert run("spec", "show", "training-ours").code == 2


@pytest.mark.parametrize("name", ["a/b", "../up", "", "-x"])
def test_a_stacks_name_is_that_of_a_file(run, tmp_path, name):
    refused = run("calibrate", sweep(tmp_path, dict), f"--stack={name}")
    assert refused.code == 2
    assert "is not a file name" in refused.err


def test_rows_of_which_none_can_be_read_say_why(run, tmp_path):
    rows = sweep(tmp_path, lambda row: {**row, "step_time_s": "-1"})
    refused = run("calibrate", rows, "--stack", "ours")
    assert refused.code == 2
    assert "is not a positive number" in refused.err


@pytest.mark.slow
def test_a_fit_that_is_made_again_begins_where_the_first_began(run, tmp_path):
    """No row counts twice: twice the same rows are one fit."""
    rows = sweep(tmp_path, rows=slice(0, 4))
    first = run("calibrate", rows, "--stack", "ours", "--json").json
    again = run("calibrate", rows, "--stack", "ours", "--force", "--json").json
    assert first["summary"]["begun_again_as"] is None
    assert again["summary"]["begun_again_as"] == "training-nanotron-hopper"
    assert [row["value"] for row in again["rows"]] == [row["value"] for row in first["rows"]]
    said = run("calibrate", rows, "--stack", "ours", "--force").out
    assert "so that no row counts twice" in " ".join(said.split())
    further = run("calibrate", rows, "--stack", "ours", "--from", "ours", "--force", "--json").json
    assert [row["value"] for row in further["rows"]] != [row["value"] for row in first["rows"]]


@pytest.mark.slow
def test_several_stacks_of_ones_own_that_serve_unasked_are_named(run, tmp_path):
    rows = sweep(tmp_path, lambda row: {**row, "framework": ""}, slice(0, 1))
    for name in ("one", "other"):
        assert run("calibrate", rows, "--stack", name).code == 0
    where = ("train", "llama3.1-8b", "--on", "dgx-h100", "--tp", "8", "--global-batch", "64")
    shown = " ".join(run(*where).out.split())
    serving = "2 of your own stacks serve dgx-h100: one, other; one, the first by name, is used"
    shipped = "stack nemo-hopper" in shown  # which is the default of the instance by name
    assert shipped or serving in shown


@pytest.mark.parametrize(
    ("framework", "names", "fitted"),
    [("torchtitan", "", "training-torchtitan-hopper"), ("nxdt", "", None)],
)
def test_a_framework_is_fitted_as_the_stack_it_stands_for(run, tmp_path, framework, names, fitted):
    rows = sweep(tmp_path, lambda row: {**row, "framework": names}, slice(4))
    done = run("calibrate", rows, "--stack", framework, "-o", "-")
    if fitted is None:
        assert (done.code, "nxdt does not run on" in done.err) == (2, True)
    else:
        assert (done.code, f'name = "{fitted}"' in done.out) == (0, True)

"""`trnbench validate`: rows, statistics and exit codes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

TINY = Path(__file__).parents[1] / "golden" / "validate_kernels.csv"
KEYS = (
    *("id", "model", "system", "nodes", "size_bytes", "measured_s", "predicted_s", "low_s"),
    *("high_s", "error", "fitted", "reason"),
)


def test_every_row_of_a_file_is_a_row_of_the_answer(run):
    done = run("validate", "--evidence", TINY, "--json")
    assert done.code == 0
    answer = done.json
    assert answer["schema"] == "trnbench.validate/1"
    rows = {row["id"]: row for row in answer["rows"]}
    assert list(rows) == [
        *("naive", "blocked", "small", "convolution", "words", "empty", "elsewhere"),
    ]
    assert all(set(KEYS) <= set(row) for row in rows.values())
    for name in ("naive", "blocked", "small"):
        row = rows[name]
        assert row["reason"] is None
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    for name in ("convolution", "words", "empty", "elsewhere"):
        assert rows[name]["predicted_s"] is None
        assert rows[name]["error"] is None
    assert rows["words"]["reason"] == "latency_ms: 'fast' is not a number"
    assert rows["empty"]["reason"] == "latency_ms: not given"
    assert "unknown chip 'abacus'" in rows["elsewhere"]["reason"]


def test_the_summary_has_the_statistics_of_its_rows(run):
    answer = run("validate", "--evidence", TINY, "--json").json
    errors = [abs(row["error"]) for row in answer["rows"] if row["error"] is not None]
    found = answer["summary"]["sets"]["kernels"]
    assert (found["rows"], found["predicted"]) == (7, 3)
    assert found["errors"]["all"]["mape"] == pytest.approx(sum(errors) / 3)
    assert found["errors"]["all"]["largest"] == pytest.approx(max(errors))
    assert found["files"] == ["validate_kernels.csv"]


def test_an_error_above_the_limit_is_a_no(run):
    answer = run("validate", "--evidence", TINY, "--json").json
    mape = answer["summary"]["sets"]["kernels"]["errors"]["all"]["mape"]
    assert run("validate", "--evidence", TINY, "--fail-above", f"{100 * mape + 1}%").code == 0
    assert run("validate", "--evidence", TINY, "--fail-above", f"{100 * mape - 1}%").code == 1


@pytest.mark.parametrize("limit", ["much", "0%", "-5%"])
def test_a_limit_that_is_none_is_refused(run, limit):
    done = run("validate", "--evidence", TINY, f"--fail-above={limit}")
    assert done.code == 2
    assert "--fail-above" in done.err


@pytest.mark.slow
def test_training_rows_have_intervals_and_both_kinds_of_rows_are_counted_apart(run):
    done = run("validate", "--set", "trainium", "--json")
    assert done.code == 0
    answer = done.json
    assert len(answer["rows"]) == 198 + 10 + 20 + 3
    known = [row for row in answer["rows"] if row["predicted_s"] is not None]
    assert all(row["low_s"] <= row["predicted_s"] <= row["high_s"] for row in known)
    assert all(row["reason"] for row in answer["rows"] if row["predicted_s"] is None)
    weighed = [row for row in known if row["memory_measured_bytes"]]
    assert {row["memory_of"] for row in weighed} == {"chip"}
    found = answer["summary"]["sets"]["trainium"]
    assert {"all", "fitted", "marked fit", "marked more"} <= set(found["errors"])
    assert found["naive"]["all"]["mape"] > found["errors"]["all"]["mape"]
    assert found["ranking"]["pairs"] > 0
    assert {"decoder", "encoder", "vision"} == set(found["families"])


@pytest.mark.slow
def test_what_is_assumed_is_said(run):
    out = run("validate", "--set", "trainium").out
    assert "\nAssumed\n" in out
    assert "Not predicted" in out


def test_a_file_of_no_known_set_is_malformed(run, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n")
    done = run("validate", "--evidence", path)
    assert done.code == 2
    assert "columns not recognised" in done.err
    assert run("validate", "--evidence", tmp_path / "none.csv").code == 2


def test_a_file_with_nothing_to_predict_is_a_no(run, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("hardware,kernel,shape,dtype,latency_ms\ntrn1,conv,1x1,bf16,1\n")
    done = run("validate", "--evidence", path, "--json")
    assert done.code == 1
    assert done.json["rows"][0]["reason"]
    assert "no row could be predicted" in done.err


def test_sets_and_options_that_do_not_go_together(run):
    assert run("validate", "--set", "planets").code == 2
    assert run("validate", "--evidence", TINY, "--set", "gpu").code == 2
    assert run("validate", "--evidence", TINY, "--plot", "--json").code == 2


def test_fitted_collectives_have_no_fit_of_a_training_stack(run):
    answer = run("validate", "--set", "collectives", "--json").json
    assert any(row["fitted"] for row in answer["rows"])


def test_the_scatter_plot_is_drawn(run):
    out = run("validate", "--evidence", TINY, "--plot").out
    assert "no error" in out
    assert "measured" in out


def test_rows_are_the_same_every_time(run):
    first = run("validate", "--evidence", TINY, "--format", "csv").out
    assert first == run("validate", "--evidence", TINY, "--format", "csv").out
    assert len(first.splitlines()) == 8


STEPS = "tp,pp,mbs,gbs,seq,framework,step_time_s,memory_gb\n8,1,1,64,4096,{},{},{}\n"


def test_a_template_is_a_file_that_can_be_filled(run, tmp_path):
    done = run("validate", "--template", "--quiet")
    assert done.code == 0
    columns = done.out.strip().split(",")
    assert {"id", "instance", "model", "tp", "mbs", "gbs", "seq", "step_time_s"} <= set(columns)
    cells = {"instance": "trn1.32xlarge", "model": "llama3.1-8b", "nodes": "1", "tp": "8"}
    cells |= {"pp": "1", "mbs": "1", "gbs": "64", "seq": "4096", "step_time_s": "11.0"}
    path = tmp_path / "my.csv"
    path.write_text(done.out + ",".join(cells.get(column, "") for column in columns) + "\n")
    (row,) = run("validate", "--evidence", path, "--json").json["rows"]
    assert row["predicted_s"] is not None
    assert "mbs: " in run("validate", "--template").err
    assert run("validate", "--template", "--json").code == 2


@pytest.mark.slow
def test_columns_that_a_file_lacks_are_given_as_options(run, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(STEPS.format("home-made", "11.0", ""))
    where = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge:2")
    (row,) = run("validate", "--evidence", path, *where, "--json").json["rows"]
    assert (row["model"], row["instance"], row["nodes"]) == ("llama3.1-8b", "trn1.32xlarge", 2)
    assert any(what.startswith("stack") for what in row["assumed"])
    stack = ("--stack", "nxd-trn1")
    (other,) = run("validate", "--evidence", path, *where, *stack, "--json").json["rows"]
    assert not any(what.startswith("stack") for what in other["assumed"])
    lacking = run("validate", "--evidence", path)
    assert lacking.code == 2
    assert "needs: model, instance" in lacking.err
    assert run("validate", "--model", "llama3.1-8b").code == 2
    nowhere = run("validate", "--evidence", path, "--model", "llama3.1-8b", "--on", "trn9")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "unknown instance 'trn9'" in nowhere.err


def test_memory_and_fit_are_scored(run, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(STEPS.format("NxD", "11.0", "12.5"))
    where = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge")
    answer = run("validate", "--evidence", path, *where, "--json").json
    (row,) = answer["rows"]
    assert row["memory_measured_bytes"] == 12.5 * 2**30
    assert row["memory_low_bytes"] <= row["memory_predicted_bytes"] <= row["memory_high_bytes"]
    assert (row["memory_of"], row["outcome"]) == ("rank", "measured")
    assert 0 <= row["fit_probability"] <= 1
    found = answer["summary"]["sets"]["trainium"]
    error = row["memory_predicted_bytes"] / row["memory_measured_bytes"] - 1
    assert found["memory"]["all"]["bias"] == pytest.approx(error)
    assert found["fit"]["all"]["ran"] == 1
    text = run("validate", "--evidence", path, *where).out
    assert "Errors of memory" in text


def test_a_broken_data_file_is_said_once_and_not_for_every_row(run, tmp_path):
    folder = tmp_path / "specs" / "calibration"
    folder.mkdir(parents=True)
    (folder / "training-mine.toml").write_text('name = "other"\n')
    path = tmp_path / "steps.csv"
    path.write_text(STEPS.format("NxD", "11.0", "12.5"))
    where = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge")
    found = run("validate", "--evidence", path, *where, "--spec-dir", tmp_path / "specs")
    assert (found.code, found.out) == (2, "")
    assert "training-mine.toml" in found.err


@pytest.mark.slow
def test_columns_that_mean_nothing_are_named(run, tmp_path):
    file = tmp_path / "mine.csv"
    columns = "model,instance,tp,pp,mbs,gbs,seq,step_time_s,colour,steptime"
    file.write_text(f"{columns}\nllama3.1-8b,p5.48xlarge,8,1,1,64,4096,11,red,3\n")
    done = run("validate", "--evidence", file)
    assert done.code == 0
    assert "not read: 'colour', 'steptime'" in done.err
    older = TINY.parents[2] / "workloads" / "published" / "gpu_steps.csv"
    with older.open() as lines:
        file.write_text("".join(itertools.islice(lines, 10)))
    assert "not read" not in run("validate", "--evidence", file).err


@pytest.mark.slow
def test_kernels_are_played_and_nothing_else(run):
    refused = run("validate", "--set", "gpu", "--engine", "emulate")
    assert refused.code == 2
    assert "plays kernels" in refused.err
    played = run("validate", "--set", "attention", "--engine", "emulate").out
    assert "of peak, measured (%)" in played
    assert "library kernel" in played
    assert "a bound that a test asserts and no time" in played
    assert "played as" not in run("validate", "--set", "attention").out

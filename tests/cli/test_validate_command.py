"""`trnbench validate`: rows, statistics and exit codes."""

from __future__ import annotations

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


def test_training_rows_have_intervals_and_both_kinds_of_rows_are_counted_apart(run):
    done = run("validate", "--set", "trainium", "--json")
    assert done.code == 0
    answer = done.json
    assert len(answer["rows"]) == 198
    known = [row for row in answer["rows"] if row["predicted_s"] is not None]
    assert all(row["low_s"] <= row["predicted_s"] <= row["high_s"] for row in known)
    assert all(row["reason"] for row in answer["rows"] if row["predicted_s"] is None)
    found = answer["summary"]["sets"]["trainium"]
    assert {"all", "unseen", "marked fit", "marked more"} <= set(found["errors"])
    assert found["naive"]["all"]["mape"] > found["errors"]["all"]["mape"]
    assert found["ranking"]["pairs"] > 0
    assert {"decoder", "encoder", "vision"} == set(found["families"])


def test_what_is_assumed_is_said(run):
    out = run("validate", "--set", "trainium").out
    assert "Assumed where a row does not say" in out
    assert "Not predicted" in out


def test_a_file_of_no_known_set_is_malformed(run, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n")
    done = run("validate", "--evidence", path)
    assert done.code == 2
    assert "of no known set" in done.err
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


def test_the_scatter_plot_is_drawn(run):
    out = run("validate", "--evidence", TINY, "--plot").out
    assert "no error" in out
    assert "measured" in out


def test_rows_are_the_same_every_time(run):
    first = run("validate", "--evidence", TINY, "--format", "csv").out
    assert first == run("validate", "--evidence", TINY, "--format", "csv").out
    assert len(first.splitlines()) == 8

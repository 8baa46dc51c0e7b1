"""Answers are kept without changing anything, and found, shown, handed out and forgotten."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing

import pytest

MATRIX = ("matrix", "512x512x512", "--on", "trainium1")
COMPARE = (
    *("compare", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,trn2.48xlarge"),
    *("--nodes", "4", "--tp", "8", "--pp", "1", "--price", "trn2.48xlarge=30", "--discount", "18%"),
    *("--price-date", "2026-11-21"),
)


@pytest.fixture
def kept(run, monkeypatch):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    return run


def test_keeping_changes_nothing_that_is_printed(run, kept, monkeypatch):
    kept_outcome = kept(*MATRIX, "--json")
    monkeypatch.setenv("TRNBENCH_KEEP", "0")
    assert run(*MATRIX, "--json") == kept_outcome
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    assert run(*MATRIX, "--json", "--no-keep") == kept_outcome
    assert len(run("runs", "list", "--json").json["rows"]) == 1


def test_what_cannot_be_kept_is_one_line_and_the_same_exit_code(kept, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRNBENCH_RUNS", str(tmp_path / "file" / "runs.db"))
    outcome = kept(*MATRIX)
    assert outcome.code == 0
    assert outcome.err.count("\n") == 1
    assert "this answer is not kept" in outcome.err


def test_a_refused_question_is_not_kept_and_an_answer_of_no_is(kept):
    assert kept("matrix", "nonsense", "--on", "trainium1").code == 2
    assert kept("train", "llama2-70b", "--on", "trn1.2xlarge", "--global-batch", "64").code == 1
    (row,) = kept("runs", "list", "--json").json["rows"]
    assert row["verb"] == "train"
    assert row["headline"].startswith("No: ")


@pytest.mark.slow
def test_runs_are_listed_shown_exported_and_removed(kept, tmp_path):
    assert kept(*MATRIX, "--tag", "first").code == 0
    given = kept(*COMPARE, "--json").json
    rows = kept("runs", "list", "--json").json["rows"]
    assert [row["verb"] for row in rows] == ["compare", "matrix"]
    assert rows[0]["model"] == ["llama2-7b"]
    assert rows[0]["instances"] == ["trn1.32xlarge", "trn2.48xlarge"]
    assert rows[0]["headline"] == given["summary"]["verdict"]
    assert kept("runs", "list", "--instance", "trn1.32xlarge").out.count("compare") == 1
    assert len(kept("runs", "list", "--until", "9999-12-31", "--json").json["rows"]) == 2
    assert "matrix" not in kept("runs", "list", "--verb", "compare").out
    assert "compare" not in kept("runs", "list", "--tag", "first").out
    shown = kept("runs", "show", rows[0]["id"][:6], "--json").json
    assert shown["rows"] == given["rows"]
    assert shown["inputs"] == given["inputs"]
    assert "trnbench matrix 512x512x512" in kept("runs", "show", "first").out
    outcome = kept("runs", "export", "first", "last", "-o", tmp_path / "out.json")
    assert "prices or discounts of your own are inside" in outcome.err
    exported = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert exported[1]["answer"]["rows"] == given["rows"]
    assert exported[1]["run"]["options"]["price_date"] == "2026-11-21"
    assert kept("runs", "remove", "first", "unknown").code == 2
    assert kept("runs", "remove", "first", rows[0]["id"]).code == 0
    assert kept("runs", "list").out == "no runs\n"


def test_redacted_runs_tell_no_price(kept):
    kept(*COMPARE, "-q")
    (run,) = json.loads(kept("runs", "export", "last", "--redact-prices").out)["runs"]
    text = json.dumps(run)
    assert "0.18" not in text
    assert "18%" not in text
    assert "=30" not in text
    for row in run["answer"]["rows"]:
        money = {key: row[key] for key in row if "usd" in key or "cost" in key}
        assert money
        assert not any(money.values())
        assert row["days"]
    assert "USD redacted" in run["run"]["headline"]
    assert "redacted % below" in run["run"]["headline"]


def file_of_runs(monkeypatch, tmp_path):
    path = tmp_path / "runs.db"
    monkeypatch.setenv("TRNBENCH_RUNS", str(path))
    return path


def test_a_damaged_answer_is_named_and_left_to_be_removed(kept, monkeypatch, tmp_path):
    path = file_of_runs(monkeypatch, tmp_path)
    for tag in ("one", "two"):
        kept(*MATRIX, "-q", "--tag", tag)
    assert kept("runs", "check").out.endswith("sound: 2 runs\n")
    name = kept("runs", "list", "--tag", "one", "--json").json["rows"][0]["id"]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE answer SET content = x'00' WHERE run = ?", (name,))
    for line in (("show", "one"), ("diff", "one", "two"), ("export", "one")):
        outcome = kept("runs", *line)
        assert outcome.code == 3
        assert outcome.err.startswith(f"trnbench: error: run {name} is damaged: ")
    outcome = kept("runs", "check", "--json")
    assert outcome.code == 1
    assert [row["name"] for row in outcome.json["rows"]] == [name]
    outcome = kept("runs", "recover", "-q")
    assert outcome.code == 1
    assert "was damaged and is now" in outcome.err
    assert kept("runs", "check").code == 0
    assert [row["tag"] for row in kept("runs", "list", "--json").json["rows"]] == ["two"]
    (aside,) = tmp_path.glob("*.damaged-*[0-9]")
    assert kept("runs", "recover", aside, "--json").json["summary"]["known"] == 1
    assert aside.exists()


def test_what_is_no_file_of_runs_is_refused_and_left_alone(kept, monkeypatch, tmp_path):
    path = file_of_runs(monkeypatch, tmp_path)
    path.write_text("notes")
    outcome = kept(*MATRIX)
    assert outcome.code == 0
    assert "not kept: " in outcome.err
    assert "TRNBENCH_RUNS names the file" in outcome.err
    for verb in ("list", "check"):
        assert kept("runs", verb).code == 3
    assert kept("runs", "recover").code == 3
    assert path.read_text() == "notes"
    assert [one.name for one in tmp_path.iterdir() if "damaged" in one.name] == []


def test_no_name_and_no_clock_changes_the_exit_code(kept, monkeypatch, tmp_path):
    file_of_runs(monkeypatch, tmp_path)
    name = os.fsdecode(b"m\xe4rz")
    assert kept(*MATRIX, "-q", "--tag", name, "-o", tmp_path / f"{name}.json").code == 0
    assert kept("runs", "show", name).code == 0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 4e11)
    outcome = kept(*MATRIX, "-q")
    assert outcome.code == 0
    assert outcome.err.startswith("trnbench: this answer is not kept: ")
    assert kept("runs", "show", "last").code == 0
    assert "100 are the most" in kept(*MATRIX, "--tag", "x" * 101).err


def test_bad_questions_about_runs_are_one_line(kept):
    assert kept("runs", "show", "nothing").err.startswith("trnbench: error: unknown run 'nothing'")
    assert kept("runs", "list", "--verb", "spec").code == 2
    assert kept("runs", "export", "last").err.startswith("trnbench: error: no run is kept yet")

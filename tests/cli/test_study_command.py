"""Studies: every combination once, kept when done, resumed, and the same on any workers."""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar

import pytest

from tests.sampling import sampled
from trnbench.cli.main import ask
from trnbench.errors import InputError
from trnbench.facts.workload.study import cells_of, read_study

STUDY = """
name = "small"
title = "Products on two chips"
verb = "matrix"
[fixed]
dtype = "bf16"
[axes]
on = ["trainium1", "trainium2", "no-chip"]
shapes = ["512x512x512", "1024x1024x1024", "2048x512x512"]
[[exclude]]
on = "trainium2"
shapes = ["2048x512x512"]
"""

SHIPPED = ("bench", "layouts-7b", "prices-70b", "recipes")


@pytest.fixture
def kept(run, monkeypatch, tmp_path):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    (tmp_path / "small.toml").write_text(STUDY)
    return run


def written(tmp_path, text):
    path = tmp_path / "small.toml"
    path.write_text(text)
    return path


def test_cells_are_every_combination_that_is_not_excluded(tmp_path):
    study = read_study(written(tmp_path, STUDY))
    cells = list(cells_of(study))
    assert study.size == 9
    assert [cell.position for cell in cells] == list(range(8))
    assert cells[0].options == {"dtype": "bf16", "on": "trainium1", "shapes": "512x512x512"}
    assert ("trainium2", "2048x512x512") not in {tuple(cell.axes.values()) for cell in cells}


def test_limits_hold_numbers_and_linked_options_make_one_axis(tmp_path):
    text = """
name = "small"
title = "x"
verb = "train"
[axes]
tp = [4, 8, 16, 32]
place = [{ on = "trn1.32xlarge:4" }, { on = "trn2.48xlarge:1", stack = "nxd-trn2" }]
[[exclude]]
tp = { above = 4, below = 32 }
"""
    cells = list(cells_of(read_study(written(tmp_path, text))))
    assert [cell.options.get("tp") for cell in cells] == ["4", "4", "32", "32"]
    assert cells[1].options == {"tp": "4", "on": "trn2.48xlarge:1", "stack": "nxd-trn2"}
    assert cells[1].axes == {"tp": "4", "place": "trn2.48xlarge:1 nxd-trn2"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('verb = "matrix"', 'verb = "spec"', "`verb` is one of matrix"),
        ('on = "trainium2"', 'of = "trainium2"', "names 'of', which is not an axis"),
        ('on = ["trainium1", "trainium2", "no-chip"]', "on = []", "is a list of values"),
        ('name = "small"', 'name = "other"', "is not the file's name"),
        ("title", "titel", "titel"),
    ],
)
def test_a_bad_file_is_one_clear_line(run, tmp_path, old, new, told):
    path = written(tmp_path, STUDY.replace(old, new))
    outcome = run("study", "show", path)
    assert outcome.code == 2
    assert told in outcome.err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('dtype = "bf16"', 'dtyp = "bf16"', "fixed.dtyp: matrix has no option 'dtyp' that a study"),
        ('dtype = "bf16"', 'dtyp = "bf16"', "did you mean 'dtype'?"),
        ("shapes =", "shape =", "axes.shape: matrix has no option 'shape'"),
        ('"no-chip"]', '{ on = "trainium1", kernal = "naive" }]', "axes.on[2].kernal: matrix has"),
        ('dtype = "bf16"', 'plot = "yes"', "fixed.plot: matrix has no option 'plot'"),
        ('"no-chip"]', '{ verb = "collective", suite = "trn1" }]', "collective has no option"),
    ],
)
def test_an_option_that_a_verb_does_not_have_is_refused_before_the_first_cell(
    kept, tmp_path, old, new, told
):
    path = written(tmp_path, STUDY.replace(old, new))
    for command in ("run", "show"):
        outcome = kept("study", command, path)
        assert outcome.code == 2
        assert told in outcome.err
        assert outcome.out == ""
    assert kept("runs", "list", "--json").json["rows"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'dtype = "bf16"',
            'dtype = "bf17"',
            "fixed.dtype: unknown number format 'bf17'; did you mean",
        ),
        ('["trainium1", "trainium2"]', '["no-chip"]', "axes.on: unknown chip 'no-chip'"),
        ('dtype = "bf16"', 'cores = "many"', "fixed.cores: "),
        ('dtype = "bf16"', 'suite = "square"', "; no cell of it can be asked"),
    ],
)
def test_a_value_that_is_wrong_in_every_cell_is_refused_at_once(kept, tmp_path, old, new, told):
    sound = STUDY.replace(', "no-chip"', "")
    path = written(tmp_path, sound.replace(old, new))
    outcome = kept("study", "run", path, "--workers", "1")
    assert outcome.code == 2
    assert told in outcome.err
    assert str(path) in outcome.err
    assert outcome.out == ""
    assert kept("runs", "list", "--json").json["rows"] == []
    assert "cells, 0 known" in kept("study", "run", path, "--workers", "1").err


ALONE = STUDY.replace(', "trainium2", "no-chip"', "").split("[[exclude]]")[0]


@pytest.mark.parametrize("way", ["option", "variable", "file"])
def test_a_study_of_which_nothing_is_kept_is_answered_all_the_same(
    kept, tmp_path, monkeypatch, way
):
    path = written(tmp_path, ALONE)
    if way == "variable":
        monkeypatch.setenv("TRNBENCH_KEEP", "0")
    elif way == "file":
        monkeypatch.delenv("TRNBENCH_KEEP")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "trnbench.toml").write_text("keep = false\n")
        monkeypatch.setattr(
            "trnbench.verbs.asking.configuration.CURRENT", ContextVar("none", default=None)
        )
    options = ("--no-keep",) if way == "option" else ()
    outcome = kept("study", "run", path, "--workers", "1", "--json", *options)
    assert outcome.code == 0, outcome.err
    assert len(outcome.json["rows"]) == 3
    assert not list(tmp_path.rglob("runs.db"))
    assert "3 cells, 0 known" in kept("study", "run", path, "--workers", "1", *options).err


def test_a_study_whose_cells_cannot_be_kept_says_so_and_is_answered(kept, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRNBENCH_RUNS", str(tmp_path / "file" / "runs.db"))
    outcome = kept("study", "run", written(tmp_path, ALONE), "--workers", "1", "--json")
    assert outcome.code == 0
    assert len(outcome.json["rows"]) == 3
    assert "trnbench: cells are not kept: " in outcome.err
    assert "trnbench: this answer is not kept: " in outcome.err


def test_a_figure_to_keep_that_no_answer_has_is_said(kept, tmp_path):
    text = STUDY.replace('verb = "matrix"', 'verb = "matrix"\nkeep = ["time_s", "utilisation"]')
    path = written(tmp_path, text.replace(', "trainium2", "no-chip"', "").split("[[exclude]]")[0])
    outcome = kept("study", "run", path, "--workers", "1")
    assert outcome.code == 0, outcome.err
    assert "no answer has a figure 'utilisation'; did you mean 'utilization'?" in outcome.out
    assert "'time_s'" not in outcome.out


@pytest.mark.slow
def test_a_study_is_asked_once_kept_and_looked_at(kept, tmp_path):
    path = tmp_path / "small.toml"
    first = kept("study", "run", path, "--workers", "1", "--json", "--tag", "mine")
    assert first.code == 1
    summary = first.json["summary"]
    assert (summary["done"], summary["open"], len(summary["failed"])) == (5, 0, 3)
    assert "unknown chip 'no-chip'" in summary["failed"][0]["reason"]
    assert "8 cells, 0 known; on 1 worker" in first.err
    times = {(row["on"], row["shapes"]): row.get("time_s") for row in first.json["rows"]}
    alone = kept("matrix", "512x512x512", "--on", "trainium2", "--json").json["rows"][0]
    assert times["trainium2", "512x512x512"] == alone["time_s"]
    again = kept("study", "run", path, "--json")
    assert "8 cells, 8 known" in again.err
    assert again.out == first.out
    assert len(kept("runs", "list", "--verb", "study", "--json").json["rows"]) == 1
    pivot = kept("study", "show", path, "--rows", "shapes", "--columns", "on", "--figure", "time_s")
    assert pivot.out.count("512x512x512 ") == 1
    assert "failed: on no-chip" in pivot.out
    best = kept("study", "show", path, "--best", "time_s", "--by", "on", "--json").json["rows"]
    assert {row["on"]: row["shapes"] for row in best} == {
        "trainium1": "512x512x512",
        "trainium2": "512x512x512",
    }
    assert kept("study", "show", path, "--best", "nonsense").code == 2
    assert kept("study", "show", path, "--rows", "on").code == 2


def test_rows_go_to_parquet_as_they_are(kept, tmp_path, monkeypatch):
    path, out = written(tmp_path, ALONE), tmp_path / "x.parquet"
    rows = kept("study", "run", path, "--workers", "1", "--json").json["rows"]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        refused = kept("study", "show", path, "-o", out)
    assert refused.code == 3
    assert "needs pyarrow" in refused.err
    assert not out.exists()
    from pyarrow import parquet

    assert kept("study", "show", path, "-o", out).code == 0
    assert parquet.read_table(out).to_pylist() == rows


@pytest.mark.slow
def test_a_planted_calibration_shows_between_two_studies(kept, tmp_path):
    from trnbench.facts.catalog.search import built_in_folder

    text = (built_in_folder() / "specs/chips/trainium1.toml").read_text()
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips/trainium1.toml").write_text(text.replace('"2.8 GHz"', '"1.4 GHz"'))
    small = STUDY.replace(', "trainium2", "no-chip"', "").split("[[exclude]]")[0]
    path = written(tmp_path, small)
    assert kept("study", "run", path, "--workers", "1", "--tag", "before", "-q").code == 0
    planted = ("--spec-dir", tmp_path)
    assert kept("study", "run", path, "--workers", "1", "--tag", "after", "-q", *planted).code == 0
    diff = kept("runs", "diff", "before", "after", "--json").json
    moved = {row["row"] for row in diff["rows"] if row["figure"] == "time_s"}
    assert len(moved) == 3
    assert {tuple(row["by"]) for row in diff["rows"]} == {("specs",)}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(SHIPPED, ("bench",)))
def test_shipped_studies_run_without_a_fault(kept, name):
    outcome = kept("study", "run", name, "--workers", "2", "--json", "-q")
    assert outcome.code == 0
    assert outcome.json["summary"]["open"] == 0
    assert outcome.json["rows"]


def test_shipped_studies_are_all_tested(run):
    rows = run("workload", "list", "--json").json["rows"]
    names = [row["name"] for row in rows if row["section"] == "studies"]
    assert names == [*SHIPPED]


def test_a_question_asked_as_data_is_that_of_the_command_line(run):
    report, code = ask("matrix", {"shapes": ["512x512x512"], "on": "trainium1"})
    assert code == 0
    assert report is not None
    told = run("matrix", "512x512x512", "--on", "trainium1", "--json").json["rows"]
    assert json.loads(json.dumps(list(report.rows))) == told
    with pytest.raises(InputError, match="has no option 'no'"):
        ask("matrix", {"no": "1"})

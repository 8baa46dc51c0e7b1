"""What moved between two answers is told by part, and a regression is an answer of no."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import built_in_folder

COMPARE = (
    *("compare", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,p5.48xlarge"),
    *("--nodes", "4", "--tp", "8", "--pp", "1", "--price-date", "2026-11-21", "-q"),
)


@pytest.fixture
def kept(run, monkeypatch):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    return run


@pytest.fixture
def planted(tmp_path):
    """Return a folder of data files in which one text of a shipped file is another."""

    def plant(section: str, name: str, old: str, new: str):
        text = (built_in_folder() / "specs" / section / f"{name}.toml").read_text()
        assert text.count(old) >= 1
        (tmp_path / section).mkdir()
        (tmp_path / section / f"{name}.toml").write_text(text.replace(old, new))
        return tmp_path

    return plant


def cells(diff, figure):
    return {row["row"]: row for row in diff["rows"] if row["figure"] == figure}


@pytest.mark.slow
def test_a_planted_price_is_told_as_prices(kept, planted):
    folder = planted("prices", "p5.48xlarge", "55.04 USD/h", "110.08 USD/h")
    asked = (*COMPARE, "--purchase", "on-demand")
    kept(*asked, "--tag", "before")
    kept(*asked, "--tag", "after", "--spec-dir", folder)
    diff = kept("runs", "diff", "before", "after", "--json").json
    (row,) = cells(diff, "cost_usd").values()
    assert row["row"] == "p5.48xlarge"
    assert row["by"] == ["prices"]
    assert row["change"] == pytest.approx(1.0, rel=1e-6)
    assert row["from_prices"] == pytest.approx(row["after"] - row["before"])
    assert diff["summary"]["files"] == {"prices": ["p5.48xlarge"]}
    assert not cells(diff, "days")
    assert "(prices +100 %)" in kept("runs", "diff", "before", "after").out


@pytest.mark.slow
def test_a_planted_calibration_and_another_question_are_told_apart(kept, planted):
    train = ("train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8", "-q")
    text = (built_in_folder() / "specs/calibration/chip-trainium1.toml").read_text()
    line = next(one for one in text.splitlines() if one.startswith("value = 0."))
    folder = planted("calibration", "chip-trainium1", line, f"{line[:-1]}1")
    kept(*train, "--tag", "before")
    kept(*train, "--global-batch", "2048", "--tag", "after", "--spec-dir", folder)
    diff = kept("runs", "diff", "before", "after", "--json").json
    (row,) = cells(diff, "step_time_s").values()
    assert row["by"] == ["calibration", "question"]
    parts = row["from_calibration"] + row["from_question"]
    assert parts == pytest.approx(row["after"] - row["before"])
    assert row["from_question"] > abs(row["from_calibration"]) > 0
    assert diff["summary"]["options"] == [
        {"option": "global_batch", "before": None, "after": "2048"}
    ]


def test_what_an_older_program_answered_otherwise_is_told_as_code(kept, monkeypatch):
    from trnbench.verbs.runs import keeping

    real = keeping.kept_answer

    def older(report):
        from trnbench.facts.records import replace

        rows = [dict(row, step_time_s=row["step_time_s"] * 2) for row in report.rows]
        return real(replace(report, rows=tuple(rows)))

    train = ("train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8", "-q")
    monkeypatch.setattr(keeping, "kept_answer", older)
    kept(*train, "--tag", "before")
    monkeypatch.setattr(keeping, "kept_answer", real)
    kept(*train, "--tag", "after")
    diff = kept("runs", "diff", "before", "after", "--json").json
    (row,) = cells(diff, "step_time_s").values()
    assert row["by"] == ["code"]
    assert row["from_code"] == pytest.approx(-row["after"])


@pytest.mark.slow
def test_files_that_were_read_are_asked_again_as_they_were(kept, tmp_path):
    rows = tmp_path / "rows.csv"
    header = "id,instance,nodes,ranks,model,seq,tp,pp,gbs,mbs,framework,step_time_s,outcome"
    rows.write_text(
        f"{header}\na,trn1.32xlarge,4,128,llama2-7b,4096,8,1,1024,1,nxd-trn1,38,measured\n"
    )
    kept("validate", "--evidence", rows, "--tag", "before", "-q")
    rows.write_text(
        f"{header}\na,trn1.32xlarge,4,128,llama2-7b,4096,8,1,1024,1,nxd-trn1,76,measured\n"
    )
    kept("validate", "--evidence", rows, "--tag", "after", "-q")
    rows.unlink()
    diff = kept("runs", "diff", "before", "after", "--json").json
    (row,) = cells(diff, "measured_s").values()
    assert (row["before"], row["after"], row["by"]) == (38, 76, ["question"])


@pytest.mark.slow
def test_a_comparison_that_got_dearer_fails_and_one_within_the_limit_does_not(kept, tmp_path):
    base = tmp_path / "base.json"
    kept(*COMPARE, "--json", "-o", base)
    dearer = (*COMPARE, "--price", "p5.48xlarge=60", "--against", base)
    outcome = kept(*dearer, "--fail-over", "5%", "--format", "markdown")
    assert outcome.code == 1
    assert outcome.out.startswith(("**Clear winner: ", "**No clear winner: "))
    assert "worse than allowed" in outcome.out
    assert "fails --fail-over 5%" in outcome.out
    assert kept(*dearer).code == 0
    same = kept(*COMPARE, "--against", base, "--fail-over", "0.1%", "--json")
    assert same.code == 0
    assert same.json["summary"]["against"]["regressed"] is False
    gone = kept(*COMPARE[:5], "trn1.32xlarge", *COMPARE[6:], "--against", base, "--fail-over", "5%")
    assert gone.code == 1
    assert "p5.48xlarge: no longer feasible" in gone.out


def test_errors_are_held_in_points(kept, planted):
    kernels = ("validate", "--set", "kernels", "-q")
    kept(*kernels, "--tag", "before")
    assert kept(*kernels, "--against", "before", "--fail-over", "0.1%").code == 0
    folder = planted("chips", "trainium1", '"2.8 GHz"', '"1.4 GHz"')
    worse = kept(*kernels, "--against", "before", "--fail-over", "1%", "--spec-dir", folder)
    assert worse.code == 1
    assert "points): worse than allowed" in worse.out


@pytest.mark.slow
def test_what_cannot_be_compared_is_one_line(kept, tmp_path):
    kept(*COMPARE, "--tag", "one")
    kept("matrix", "512x512x512", "--on", "trainium1", "-q", "--tag", "two")
    assert "give two of one verb" in kept("runs", "diff", "one", "two").err
    assert "--fail-over needs --against" in kept(*COMPARE, "--fail-over", "5%").err
    (tmp_path / "x.json").write_text("{}")
    assert "neither the JSON of an answer" in kept(*COMPARE, "--against", tmp_path / "x.json").err
    kept("runs", "export", "one", "-o", tmp_path / "one.json")
    assert "the same answer" in kept("runs", "diff", "one", tmp_path / "one.json").out


@pytest.mark.slow
def test_a_study_is_asked_again_cell_by_cell(kept, planted, tmp_path):
    study = (
        'name = "s"\ntitle = "t"\nverb = "train"\n[fixed]\nmodel = "llama2-7b"\n'
        'on = "trn1.32xlarge:4"\ntp = 8\n[axes]\nglobal_batch = [1024, 2048]\n'
    )
    (tmp_path / "s.toml").write_text(study)
    line = next(
        one
        for one in (built_in_folder() / "specs/calibration/chip-trainium1.toml")
        .read_text()
        .splitlines()
        if one.startswith("value = 0.")
    )
    folder = planted("calibration", "chip-trainium1", line, f"{line[:-1]}1")
    run = ("study", "run", tmp_path / "s.toml", "--workers", "1", "-q")
    assert kept(*run, "--tag", "before").code == 0
    (tmp_path / "s.toml").write_text(study.replace("tp = 8", "tp = 16"))
    assert kept(*run, "--tag", "after", "--spec-dir", folder).code == 0
    diff = kept("runs", "diff", "before", "after", "--json").json
    assert diff["summary"]["unexplained"] is None
    rows = cells(diff, "step_time_s")
    assert set(rows) == {"global_batch 1024", "global_batch 2048"}
    for row in rows.values():
        assert row["by"] == ["calibration", "question"]
        parts = row["from_calibration"] + row["from_question"]
        assert parts == pytest.approx(row["after"] - row["before"])
    assert "is not known" not in kept("runs", "diff", "before", "before").out

"""`trnbench calibrate`: own measurements and logs into a calibration that predictions then use."""

from __future__ import annotations

import csv
import shutil

import pytest

from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import built_in_folder, open_catalog

PUBLISHED = built_in_folder() / "workloads" / "published" / "trainium_steps.csv"
LOG = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge", "--tp", "8", "--global-batch", "64")
LAYOUT = ("--micro-batch", "1", "--zero", "1", "--sequence-parallel", "--recompute", "selective")
COLUMNS = (
    *("id", "model", "seq_len", "instance", "nodes", "TP", "PP", "microbatch", "global_batch"),
    *("zero", "sequence_parallel", "activation_recompute", "dtype_mode", "step_time_s"),
)


def own_rows(tmp_path, *rows, name="own.csv"):
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return path


def cells(name, model, tp, step_s, *, nodes=1, batch=64, instance="trn1.32xlarge"):
    modes = ("1", "yes", "selective", "bf16-master")
    return (name, model, 4096, instance, nodes, tp, 1, 1, batch, *modes, step_s)


THREE = (
    cells("a", "llama3.1-8b", 8, 11.0),
    cells("b", "llama3.1-8b", 32, 15.0),
    cells("c", "llama2-7b", 8, 10.5),
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.log"
    steps = "".join(f"step {i} | step time: {11 + 0.02 * (i % 3)} s\n" for i in range(1, 11))
    path.write_text("compiling\n" + steps)
    return path


def step_s(run, *options):
    where = ("train", "llama3.1-8b", "--on", "trn1.32xlarge", "--tp", "8", "--pp", "1")
    done = run(*where, "--global-batch", "64", "--sequence", "4096", *LAYOUT, *options, "--json")
    return done.json["rows"][0]


@pytest.mark.slow
def test_three_rows_make_a_calibration_that_predictions_use(run, tmp_path):
    (tmp_path / "calibration").mkdir()
    target = tmp_path / "calibration" / "training-nxd-trn1.toml"
    done = run("calibrate", own_rows(tmp_path, *THREE), "--stack", "nxd-trn1", "-o", target)
    assert done.code == 0
    assert "training-nxd-trn1 fitted to 3 measured steps" in done.out
    assert run("spec", "validate", target).code == 0
    stack = load_training_stack(open_catalog([tmp_path]), "nxd-trn1")
    assert stack.fitted_rows == ("a", "b", "c")
    assert stack.basis_on("trn1.32xlarge") == "measured"
    assert stack.fit is not None
    assert stack.fit.rows == 3
    before, after = step_s(run), step_s(run, "--spec-dir", tmp_path)
    assert abs(after["step_time_s"] / 11.0 - 1) < abs(before["step_time_s"] / 11.0 - 1)
    assert after["low_step_time_s"] < 11.0 < after["high_step_time_s"]


MEMORY = """
[memory]
whole = { value = 1.0, source = "study", kind = "assumed", low = 0.8, high = 1.25 }
runtime = { value = "0.3 GiB", source = "study", kind = "assumed", low = "0.1 GiB", high = "3 GiB" }
"""


@pytest.mark.slow
def test_rows_that_tell_their_memory_set_its_numbers(run, tmp_path):
    (tmp_path / "before" / "calibration").mkdir(parents=True)
    (tmp_path / "after" / "calibration").mkdir(parents=True)
    name = "training-nxd-trn1.toml"
    shipped = (built_in_folder() / "specs" / "calibration" / name).read_text()
    (tmp_path / "before" / "calibration" / name).write_text(shipped + MEMORY)
    # They all hold 1.5 GiB more than the model says.
    asked = ("--on", "trn1.32xlarge", "--pp", "1", "--global-batch", "64", "--sequence", "4096")
    modes = ("--micro-batch", "1", "--zero", "1", "--recompute", "full", "--no-sequence-parallel")

    def held(model, tp, specs):
        where = ("--spec-dir", tmp_path / specs, "--json")
        return run("train", model, *asked, *modes, "--tp", tp, *where).json["rows"][0][
            "memory_bytes"
        ]

    path = tmp_path / "own.csv"
    lines = [
        "id,model,seq,instance,nodes,tp,pp,mbs,gbs,zero,recompute,sequence_parallel,"
        "precision,step_time_s,memory_gb"
    ]
    for name_of, model, _, _, _, tp, *_, seconds in THREE:
        size = held(model, tp, "before") / 2**30 + 1.5
        lines.append(
            f"{name_of},{model},4096,trn1.32xlarge,1,{tp},1,1,64,1,full,0,bf16-master,{seconds},{size}"
        )
    path.write_text("\n".join(lines) + "\n")
    target = tmp_path / "after" / "calibration" / name
    done = run(
        "calibrate", path, "--stack", "nxd-trn1", "-o", target, "--spec-dir", tmp_path / "before"
    )
    assert done.code == 0, done.err
    assert "memory of training-nxd-trn1: 3 rows" in done.out
    assert run("spec", "validate", target).code == 0
    stack = load_training_stack(open_catalog([tmp_path / "after"]), "nxd-trn1")
    assert stack.memory.runtime_bytes > 0.6 * 2**30
    before, after = (held("llama3.1-8b", 8, specs) for specs in ("before", "after"))
    assert abs(after - before - 1.5 * 2**30) < 0.3 * 1.5 * 2**30


def test_a_log_of_ten_steps_is_enough(run, log, tmp_path):
    where = tmp_path / "mine.toml"
    done = run(
        "calibrate",
        log,
        "--stack",
        "nxd-trn1",
        *LOG,
        "--sequence",
        "4096",
        *LAYOUT,
        "-o",
        where,
        "--json",
    )
    assert done.code == 0
    answer = done.json
    assert answer["schema"] == "trnbench.calibrate/1"
    (fitted,) = answer["summary"]["fitted"]
    # Two of ten steps are warm-up; 11.02 is the median of the rest.
    assert fitted["measured_s"] == pytest.approx(11.02)
    assert abs(fitted["error"]) < abs(fitted["prior"])
    assert answer["inputs"]["given"]["model"] == "llama3.1-8b"
    assert 'name = "mine"' in where.read_text()


def test_every_number_has_its_prior_and_its_data_share(run, tmp_path):
    answer = run("calibrate", own_rows(tmp_path, *THREE), "--stack", "nxd-trn1", "--json").json
    rows = {row["number"]: row for row in answer["rows"]}
    assert {"factor", "communication", "overlaps.tensor", "step"} <= set(rows)
    for row in rows.values():
        assert row["prior_low"] <= row["prior"] <= row["prior_high"]
        assert row["low"] <= row["value"] <= row["high"]
        assert 0 <= row["data_share"] <= 1
        assert row["evidence"] == ("derived" if row["data_share"] > 0.0975 else "prior")
    # Nothing ran with experts.
    assert rows["overlaps.expert"]["value"] == rows["overlaps.expert"]["prior"]


@pytest.mark.slow
def test_the_same_rows_make_the_same_bytes(run, tmp_path):
    rows = own_rows(tmp_path, *THREE)
    written = []
    for name in ("one", "two"):
        target = tmp_path / name / "training-nxd-trn1.toml"
        target.parent.mkdir()
        done = run("calibrate", rows, "--stack", "nxd-trn1", "-o", target, "--date", "2026-01-02")
        assert done.code == 0
        written.append(target.read_bytes())
    assert written[0] == written[1]
    assert b"date = 2026-01-02" in written[0]


def test_rows_that_cannot_be_used_are_listed(run, tmp_path):
    rows = own_rows(
        tmp_path,
        *THREE,
        cells("elsewhere", "llama3.1-8b", 8, 3.0, instance="abacus"),
        cells("words", "llama3.1-8b", 8, "fast"),
        cells("odd", "llama3.1-8b", 7, 3.0),
        cells("who", "nobody-9b", 8, 3.0),
    )
    done = run("calibrate", rows, "--stack", "nxd-trn1", "--json")
    assert done.code == 0
    unused = {row["id"]: row["reason"] for row in done.json["summary"]["unused"]}
    assert set(unused) == {"elsewhere", "words", "odd", "who"}
    assert "unknown instance" in unused["elsewhere"]
    assert unused["words"] == "step_time_s: 'fast' is not a number"


@pytest.mark.slow
def test_only_rows_marked_fit_are_fitted(run):
    answer = run("calibrate", PUBLISHED, "--json").json
    with PUBLISHED.open() as file:
        marked = {row["id"] for row in csv.DictReader(file) if row["use"] == "fit"}
    assert {row["id"] for row in answer["summary"]["fitted"]} == marked


def test_rows_of_two_frameworks_are_no_one_stack(run):
    done = run("calibrate", PUBLISHED, "--stack", "nxd-trn1")
    assert done.code == 2
    assert "frameworks: " in done.err
    assert "neuronx-nemo-megatron" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--stack", "mine", "--from", "nobody"), "unknown training stack"),
        (("--stack", "mine", "--from", "eager"), "nothing is assumed of such software"),
        (("--from", "eager"), "name it with --stack"),
        (("-o", "x.toml"), "name it with --stack"),
        (("--stack", "nxd-trn1", "-o", "x.json"), "must end in .toml"),
        (("--into", "nowhere"), "is not a folder"),
        (("--stack", "nxd-trn1", "--into", "."), "--into writes all stacks"),
        (("--stack", "nxd-trn1", "--model", "llama3.1-8b"), "leave out the option"),
        (("--date", "yesterday"), "--date"),
        ((*LOG, "--sequence", "4096"), "leave out the option"),
    ],
)
def test_contradictions_are_refused(run, tmp_path, monkeypatch, arguments, said):
    rows = own_rows(tmp_path, *THREE)
    monkeypatch.chdir(tmp_path)
    done = run("calibrate", rows, *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_log_does_not_name_its_software(run, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("step time: 2 s\n")
    done = run("calibrate", log, *LOG, "--sequence", "4096")
    assert done.code == 2
    assert "give --stack" in done.err


def test_a_table_without_its_model_is_given_one(run, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("tp,pp,mbs,gbs,seq,step_time_s\n8,1,1,64,4096,11.0\n8,1,1,128,4096,21.0\n")
    given = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge:1", "--stack", "nxd-trn1")
    answer = run("calibrate", path, *given, "--json").json
    assert answer["inputs"]["given"]["nodes"] == 1
    # Two rows of the table, not one of a log.
    assert [row["id"] for row in answer["summary"]["fitted"]] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "columns not recognised"),
        (",".join(COLUMNS) + "\n", "and no row"),
        (",".join(COLUMNS) + "\n" + "x" + "," * 13 + "\n", "no row can be fitted: x: "),
        (
            "collective,instance,nodes,ranks,size_bytes,time_us\nallreduce,trn9,1,2,8,9\n",
            "no collective can be fitted: line 2: unknown system 'trn9'",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(run, tmp_path, text, said):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = run("calibrate", path, "--stack", "nxd-trn1")
    assert done.code == 2
    assert said in done.err


def test_a_log_without_its_layout_says_what_is_missing(run, log):
    done = run("calibrate", log, "--stack", "nxd-trn1")
    assert done.code == 2
    assert "a log of steps needs --model, --on, --global-batch and --sequence" in done.err


@pytest.mark.slow
def test_heirs_of_a_fitted_family_are_written_too(run, tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    priors = built_in_folder() / "specs" / "priors"
    done = run("calibrate", PUBLISHED, "--spec-dir", priors, "--into", folder, "--quiet")
    assert done.code == 0
    shutil.copytree(folder, tmp_path / "calibration")
    catalog = open_catalog([tmp_path])
    parent, heir = (load_training_stack(catalog, f"nxd-{name}") for name in ("trn1", "trn2"))
    assert (parent.basis, heir.basis) == ("measured", "transferred")
    assert heir.factor == parent.factor
    known, wider = (stack.provenance.evidence["factor"] for stack in (parent, heir))
    assert (wider.low or 0.0) < (known.low or 0.0)
    assert (wider.high or 0.0) > (known.high or 0.0)
    # Of stacks whose chips no row ran on nothing is told.
    assert not (folder / "training-nemo-hopper.toml").exists()
    assert not (folder / "training-torchtitan-trn2.toml").exists()


@pytest.mark.slow
def test_single_rows_that_a_file_keeps_are_fitted_if_named(run):
    kept = "ndoc-Llama2-7B-n16-tp8pp1-fp32opt-r2.18.0"
    done = run("calibrate", PUBLISHED, "--also", kept, "--json")
    fitted = {row["id"] for row in done.json["summary"]["fitted"]}
    assert kept in fitted
    assert "ndoc-Llama2-7B-n16-tp8pp1-fp32opt-r2.17.0" not in fitted
    wrong = run("calibrate", PUBLISHED, "--also", "ndoc-Llama2-7B-n16-tp8pp1-fp32opt-r2.18")
    assert wrong.code == 2
    assert "unknown measured row" in wrong.err

"""Files and arguments that would drive the terminal, run in a spreadsheet, or replace an input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import zipfile
from pathlib import Path

import pytest

from trnbench.facts.catalog.search import built_in_folder
from trnbench.show.formats import render
from trnbench.show.report import Report, columns
from trnbench.show.row import Cell
from trnbench.show.text_table import PLAIN, Style

ROOT = built_in_folder()
CALIBRATION = ROOT / "specs/calibration/training-nxd-trn1.toml"
STACK = ("--on", "trn1.32xlarge:2", "--tp", "8", "--pp", "1", "--stack", "nxd-trn1")
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;title\x07\x1b[31mred\u009b2J\u202e\r"


def model(folder: Path, **changes: str) -> Path:
    """Write a model file with other values under some keys; return its path."""
    text = (ROOT / "workloads/models/llama3.1-8b.toml").read_text()
    text = re.sub(r"(?m)^aliases.*\n", "", text)
    for key, value in {"name": '"mine"', **changes}.items():
        line = f"{key} = {value}".replace("\\", "\\\\")
        text = re.sub(rf"(?m)^{key} = .*$", line, text, count=1)
    path = folder / "models" / "mine.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", ["\\u001b]0;PWNED\\u0007", "\\u009b2J", "\\u202elrm"])
def test_control_characters_in_a_data_file_are_refused(run, tmp_path, text):
    path = model(tmp_path, title=f'"{text}"')
    done = run("workload", "validate", path)
    assert done.code == 2
    assert re.search(r"title: has the control character U\+(001B|009B|202E)", done.out)
    assert run("workload", "list", "--spec-dir", tmp_path).code in (0, 2)
    listed = run("workload", "show", "mine", "--spec-dir", tmp_path)
    assert listed.code == 2
    assert not RAW.search(listed.out + listed.err)


def test_control_characters_in_a_table_of_measurements_are_refused(run, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,model,instance,gbs,step_time_s\na\x1b[31mb,llama2-7b,trn1.32xlarge,64,1\n")
    done = run("validate", "--evidence", path)
    assert done.code == 2
    assert "line 2 has the control character U+001B" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("workload", "validate", EVIL),
        ("info", "-o", f"/no/{EVIL}"),
        ("spec", "show", EVIL),
        (EVIL,),
        ("train", "llama2-7b", "--on", EVIL),
        ("matrix", EVIL, "--on", "trainium1"),
    ],
)
def test_arguments_are_shown_and_not_obeyed(run, arguments):
    done = run(*arguments)
    assert done.code in (2, 3)
    assert not RAW.search(done.out + done.err)
    assert "\\x1b" in done.out + done.err


def test_the_name_of_a_file_is_shown_and_not_obeyed(run, tmp_path):
    path = model(tmp_path).rename(tmp_path / "models" / "a\x1b[31m\nb.toml")
    for arguments in (("list", "--spec-dir", tmp_path), ("validate", path)):
        for format_ in ("table", "csv", "json", "jsonl", "markdown"):
            done = run("workload", *arguments, "--format", format_)
            assert not RAW.search(done.out + done.err), format_


def report(instance: Cell) -> Report:
    return Report(verb="x", inputs={}, rows=({"instance": instance},), columns=columns("instance"))


@pytest.mark.parametrize("format_", ["table", "csv", "json", "jsonl", "markdown"])
@pytest.mark.parametrize("style", [PLAIN, Style(colour=True, terminal=True)])
def test_no_format_lets_a_cell_out(format_, style):
    text = render(report(EVIL + "\nnext"), format_, style).decode()
    assert not RAW.search(text.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", ""))
    if format_ == "json":
        assert json.loads(text)["rows"] == [{"instance": EVIL + "\nnext"}]


def test_a_spreadsheet_is_given_no_formula():
    cells = ("=1+1", "+cmd|x", "@SUM(A1)", "-2+3", "plain", "-", "-3.5", "+1.5 %")
    found = [
        next(csv.DictReader(io.StringIO(render(report(c), "csv", PLAIN).decode()))) for c in cells
    ]
    assert [row["instance"] for row in found] == [
        *("'=1+1", "'+cmd|x", "'@SUM(A1)", "'-2+3", "plain", "-", "-3.5", "+1.5 %"),
    ]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_null_or_empty(number):
    assert json.loads(render(report(number), "json", PLAIN))["rows"] == [{"instance": None}]
    assert render(report(number), "csv", PLAIN) == b'instance\n""\n'


def outputs_that_are_inputs(folder: Path) -> list[tuple[str | Path, ...]]:
    rows, config, own = folder / "rows.csv", folder / "config.json", model(folder)
    rows.write_text("model,instance,gbs,step_time_s\nllama2-7b,trn1.32xlarge,64,1\n")
    config.write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    os.link(rows, folder / "link.csv")
    (folder / "soft.toml").symlink_to(own)
    return [
        ("validate", "--evidence", rows, "--format", "csv", "-o", rows),
        ("validate", "--evidence", rows, "--format", "csv", "-o", folder / "link.csv"),
        ("workload", "import", config, "--name", "x", "-o", config),
        ("workload", "show", "mine", "--spec-dir", folder, "-o", own),
        ("workload", "show", "mine", "--spec-dir", folder, "-o", folder / "soft.toml"),
        ("workload", "validate", folder, "-o", own),
        ("calibrate", rows, "--stack", "mine", "-o", rows),
    ]


def test_no_output_replaces_an_input(run, tmp_path):
    lines = outputs_that_are_inputs(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for line in lines:
        done = run(*map(str, line))
        assert done.code == 2, line
        assert {path: path.read_bytes() for path in before} == before, line


def test_two_outputs_are_two_files(run, tmp_path):
    same = tmp_path / "same.json"
    for first, second in ((same, same), (same, tmp_path / "." / "same.json")):
        done = run(
            *("matrix", "512x512x512", "--on", "trainium1", "--engine", "emulate"),
            *("--trace", first, "-o", second),
        )
        assert done.code == 2
        assert "--trace and --output name one file" in done.err
        assert not same.exists()


def test_a_link_stays_one_and_its_target_is_replaced_whole(run, tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert run("info", "--json", "-o", link).code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "trnbench.info/1"


def changed(folder: Path, old: str, new: str) -> Path:
    """Write the calibration with another text in it; return the folder for --spec-dir."""
    text = CALIBRATION.read_text()
    found = re.sub(old, new, text, count=1)
    assert found != text
    path = folder / "calibration" / CALIBRATION.name
    path.parent.mkdir()
    path.write_text(found)
    return folder


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r"(\[factor\]\nvalue =) .*", r"\1 0", "`factor` must be above 0"),
        (r"(\[factor\]\nvalue =) .*", r"\1 1e-13", "factor: '1e-13' is out of range"),
        (r"(\[factor\]\nvalue =) .*", r"\1 " + "9" * 400, "factor: '9999"),
        (r'"20 ms"', '"1e300 s"', "step: '1e300 s' is out of range"),
        (r"(\[factor\]\n(?:.*\n){3}low =) .*", r"\1 5e-324", "factor: range: '5e-324'"),
    ],
)
def test_a_calibration_that_cannot_be_is_said_to_be_none(run, tmp_path, old, new, said):
    folder = changed(tmp_path, old, new)
    done = run("spec", "validate", folder / "calibration")
    assert (done.code, said in done.out) == (2, True), done.out
    used = run("train", "llama3.1-8b", *STACK, "--spec-dir", folder)
    assert (used.code, used.out) == (2, "")


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_a_step_faster_than_its_chips_is_a_fault_of_the_calibration(run, tmp_path, verb):
    folder = changed(tmp_path, r"(\[factor\]\nvalue =) .*\n(.*\n.*\nlow =) .*", r"\1 1e-5\n\2 1e-6")
    where = ["--tokens", "1T", "--on", "trn1.32xlarge", "--nodes", "2", *STACK[2:]]
    done = run(verb, "llama3.1-8b", *(STACK if verb == "train" else where), "--spec-dir", folder)
    assert done.code == 2
    assert "makes a step faster than its chips' peak: MFU" in done.err
    assert "training-nxd-trn1.toml" in done.err


def test_a_model_cut_down_to_its_dense_layers_trains(run, tmp_path):
    text = (ROOT / "workloads/models/deepseek-v3.toml").read_text()
    with_experts = re.sub(r"(?m)^layers = \d+", "layers = 3", text).replace(
        'name = "deepseek-v3"', 'name = "cut"'
    )
    path = tmp_path / "cut.toml"
    path.write_text(re.sub(r"(?m)^aliases.*\n", "", with_experts))
    done = run("workload", "validate", path)
    assert done.code == 2
    assert "leave none with experts: leave out [transformer.moe]" in done.out


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("start\nEpoch 1\rEpoch 2\rstep time: 1.25 s\nstep time: 1.24 s\n", 0),
        ("step time: 1e+30 s\n", 2),
        ("x" * 200_000 + "\nstep time: 1.25 s\nstep time: 1.24 s\n", 0),
        ('step_time_s\n"1.0\r1.0', 2),
    ],
    ids=["progress bars", "an age", "a long line", "half a table"],
)
def test_logs_as_they_come(run, tmp_path, text, code):
    path = tmp_path / "run.log"
    path.write_bytes(text.encode())
    done = run(
        *("calibrate", path, "--model", "llama3.1-8b", "--on", "trn1.32xlarge:2", "--tp", "8"),
        *("--global-batch", "64", "--sequence", "2048", "--stack", "mine"),
    )
    assert done.code == code, done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "llama3.1-8b", *STACK, "--engine", "emulate", "--straggler", "0=1e308"),
        ("numerics", "tiny-gpt", "--seeds", "1", "--steps", "1", "--learning-rate", "1e309"),
        ("numerics", "tiny-gpt", "--seeds", "1", "--steps", "1", "--global-batch", "3000000000"),
        ("compare", "dit-xl-2", "--on", "dgx-h100", "--tokens", "1e30", "--nodes", "4"),
        ("compare", "tiny-gpt", "--on", "trn1.2xlarge", "--tokens", "1B", "--sequence", "9" * 400),
        ("plan", "tiny-gpt", "--on", "trn1.2xlarge", "--tokens", "1B", "--deadline", "1e-300 s"),
    ],
)
def test_numbers_beyond_all_measure_are_refused(run, arguments):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") <= 2


@pytest.mark.parametrize("op", ["send-receive", "permute", "all-to-all"])
def test_a_check_of_data_is_a_sample_where_all_would_not_fit(run, op):
    done = run(
        *("collective", op, "--on", "trn1.32xlarge:16", "--check", "--json"),
        *("--min-size", "1GiB", "--max-size", "1GiB"),
    )
    assert done.code == 0
    assert done.json["rows"][0]["check"].startswith("ok (")


def test_a_table_of_no_known_set_is_refused_before_the_rest_of_it_is_read(run, tmp_path):
    path = tmp_path / "big.csv"
    path.write_text('time,place\n"never closed\n')
    done = run("validate", "--evidence", path)
    assert done.code == 2
    assert "columns not recognised" in done.err


def test_a_folder_with_a_name_that_no_system_takes_is_one_line(run, monkeypatch):
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", "/" + "x" * 5000)
    done = run("info")
    assert done.code == 2
    assert "TRNBENCH_SPEC_PATH" in done.err
    assert len(done.err) < 300


def test_a_checkpoint_that_claims_more_than_it_has_is_not_believed(run, tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "step-00000001.npz", "w") as archive:
        archive.writestr("note.npy", content)
    line = "train tiny-gpt --on trn1.2xlarge --engine functional --steps 1 --global-batch 2"
    done = run(*line.split(), "--sequence", "8", "--resume", tmp_path)
    assert done.code == 2
    assert "not a whole checkpoint" in done.err


@pytest.mark.parametrize(
    ("chip", "key", "said"),
    [
        ("h200", "contraction_step = { value", "contraction_step: must be a whole number from 1 "),
        ("h200", "count", "multiprocessors.count: must be a whole number from 1 "),
        ("h200", "relative_rate", "multiprocessors.tiles[0]: `relative_rate` must be above 0"),
        ("trainium2", "rows", "cores.tensor.rows: must be a whole number from 1 "),
        ("trainium2", "passes", "`passes` must be above 0"),
        ("trainium2", "reduce_rate", "cores.dma: `reduce_rate` must be above 0"),
    ],
)
def test_what_a_chip_is_divided_by_is_never_0(run, tmp_path, chip, key, said):
    text = (ROOT / f"specs/chips/{chip}.toml").read_text()
    path = tmp_path / "chips" / f"{chip}.toml"
    path.parent.mkdir()
    path.write_text(re.sub(rf"{re.escape(key)}(\s*=) [\d.]+", rf"{key}\1 0", text, count=1))
    done = run("spec", "validate", path)
    assert done.code == 2
    assert said in done.out


def test_a_level_of_no_chips_is_refused_and_not_divided_by(run, tmp_path):
    text = (ROOT / "specs/instances/p4d.24xlarge.toml").read_text()
    head, levels = text.split("[[fabric]]", 1)
    path = tmp_path / "instances" / "p4d.24xlarge.toml"
    path.parent.mkdir()
    path.write_text(f"{head}[[fabric]]{levels.replace('chips = 8', 'chips = 0', 1)}")
    for arguments in (("validate", path), ("show", path.stem, "--spec-dir", tmp_path)):
        found = run("spec", *arguments)
        assert found.code == 2
        assert "`chips` must be at least 1" in found.out + found.err


@pytest.mark.parametrize("verb", [("spec", "validate"), ("calibrate", "--stack", "nxd-trn1")])
def test_a_folder_of_more_files_than_are_meant_is_not_walked(run, tmp_path, monkeypatch, verb):
    monkeypatch.setattr("trnbench.facts.catalog.text_file._MOST_BELOW", 3)
    model(tmp_path)
    assert "good" in run("spec", "validate", tmp_path).out  # models/ and mine.toml: two
    for name in ("one", "two"):
        (tmp_path / name).touch()
    done = run(*verb, tmp_path)
    assert done.code == 2
    assert "has more than 3 files below it; name a smaller folder" in done.err


@pytest.mark.parametrize("nodes", ["0", "1", "-2", "9" * 30])
def test_a_cause_that_spreads_groups_over_no_nodes_is_refused(run, tmp_path, nodes):
    text = (ROOT / "specs/explain/steps.toml").read_text()
    path = tmp_path / "explain" / "steps.toml"
    path.parent.mkdir()
    path.write_text(text.replace("nodes = [2, 4, 8]", f"nodes = [2, 4, {nodes}]"))
    done = run("spec", "validate", path)
    assert done.code == 2
    assert "nodes" in done.out

"""`trnbench measure` as a user types it."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("measure")
NEEDS_JAX = pytest.mark.skipif(find_spec("jaxlib") is None, reason="JAX is not installed")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("matrx",), "did you mean 'matrix'"),
        (("collectives",), "did you mean 'collective'"),
        (("matrix", "--suite", "quik"), "did you mean 'quick'"),
        (("matrix", "--device", "tpu"), "known: auto, cpu, cuda, neuron"),
        (("matrix", "--budget", "5"), "--budget"),
        (("matrix", "--host-devices", "0"), "--host-devices must be from 1"),
        (("all", "--write-spec", "a/b"), "is not a file name"),
        (("all", "--write-spec", "h100"), "is the name of a chip already"),
        (("matrix", "--write-spec", "mine"), "needs rows of all kinds"),
        (("all", "--force"), "goes with --write-spec"),
        (("all", "--quick", "--suite", "full"), "contradicts --suite full"),
        (("matrix", "-o", "rows.txt"), "written to .csv or .json"),
        (("train", "--decoder", "layers"), "expected NAME=VALUE"),
        (("train", "--decoder", "layer=2"), "did you mean 'layers'"),
        (("train", "--decoder", "tp=2,tp=2"), "tp is given twice"),
        (("train", "--decoder", "heads=0"), "heads must be from 1"),
        (("train", "--decoder", "attention=flash"), "known: fused, naive"),
        (("matrix", "--decoder", "tp=2"), "measure all or train, not matrix"),
        (("matrix", "--framework", "torch"), "goes with measure steps"),
        (("matrix", "--script"), "goes with measure steps"),
        (("steps", "--host-devices", "2"), "measure steps uses one device"),
        (("steps", "--framework", "jax"), "known: torch, transformers"),
        (("all", "--write-spec", "mine", "--name", "other"), "contradicts --write-spec"),
    ],
)
def test_malformed_input_is_refused_before_anything_runs(run, arguments, said):
    done = run("measure", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


@pytest.mark.slow
@NEEDS_JAX
def test_rows_go_to_the_file_and_a_table_to_stdout(run, tmp_path):
    path = tmp_path / "rows.csv"
    done = run(
        *("measure", "matrix", "--device", "cpu", "--host-devices", 2, "--budget", "0.1s"),
        *("-o", path),
    )
    assert done.code == 1, "of what was asked for nothing is there"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["kernel"] for row in rows] == ["program", "kernel"]
    assert {row["instance"] for row in rows} == {"host-cpu"}
    assert "program" in done.out
    assert "the budget was spent" in done.out
    assert "2 rows written" in done.err
    assert "no row of kind matrix: not everything was measured" in done.out
    scored = run("validate", "--evidence", path)
    assert scored.code == 1
    assert "unknown instance 'host-cpu'" in scored.err


@pytest.fixture
def compiled_soon(monkeypatch):
    """Programs of JAX that compute the same, and are made in half of the time."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


@pytest.fixture
def session(monkeypatch):
    """Return what stands in for a session of real measurements: rows of a file, told as given."""
    from trnbench.evidence.measure.session import Session
    from trnbench.verbs.measure import run as verb

    cells = [
        {key: value for key, value in row.items() if value}
        for row in csv.DictReader(ROWS.read_text().splitlines())
    ]

    def told(*, slower=1.0, spread=None, stopped=None, given=cells, device=None):
        rows = [dict(row) for row in given]
        for row in rows:
            if "latency_ms" in row:
                row["latency_ms"] = str(float(row["latency_ms"]) * slower)
            row["spread"] = str(0.01 if spread is None else spread)
        seen = {key: rows[0].get(key, "") for key in ("device", "ranks", "backend")}
        found = Session(device=device or seen, rows=rows)
        found.stopped = stopped
        monkeypatch.setattr(verb, "run_session", lambda *_, **__: found)

    return told


@pytest.mark.slow
def test_measured_rows_are_kept_found_and_held_together(run, session, monkeypatch):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    session()
    assert run("measure", "--tag", "before", "-q").code == 0
    session(slower=2.0)
    assert run("measure", "--tag", "after", "-q").code == 0
    session()
    assert run("measure", "--no-keep", "-q").code == 0
    rows = run("runs", "list", "--verb", "measure", "--json").json["rows"]
    assert [row["tag"] for row in rows] == ["after", "before"]
    assert rows[0]["headline"].startswith("Verdict: 3 training steps predicted")
    moved = run("runs", "diff", "before", "after", "--json").json["rows"]
    by_row = {row["row"]: row["change"] for row in moved if row["figure"] == "time_s"}
    assert by_row["measured-matrix-matmul-fp32-M512K512N512"] == pytest.approx(1.0)
    assert not any("train" in row for row in by_row)


@pytest.mark.parametrize(("spread", "said"), [(0.101, True), (0.099, False)])
def test_a_machine_that_drifts_is_asked_to_measure_again(run, session, spread, said):
    session(spread=spread)
    out = " ".join(run("measure", "-q").out.split())
    assert ("rows scatter by more than 10%" in out) == said
    assert ("measure again on an idle machine" in out) == said


def test_ctrl_c_writes_and_keeps_what_was_measured(run, session, monkeypatch, tmp_path):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    session(stopped="interrupt")
    path = tmp_path / "rows.csv"
    done = run("measure", "-o", path)
    assert done.code == 130
    assert "interrupted: the rows so far are kept" in done.out
    assert len(path.read_text().splitlines()) > 5
    assert len(run("runs", "list", "--verb", "measure", "--json").json["rows"]) == 1


@pytest.mark.slow
@NEEDS_JAX
def test_a_device_that_is_not_there_is_refused_with_what_to_install(run):
    done = run("measure", "matrix", "--device", "cuda")
    assert done.code == 3
    assert "JAX finds no cuda device" in done.err
    assert "pip install 'trnbench[measure]' 'jax[cuda13]'" in done.err


@NEEDS_JAX
@pytest.mark.slow
def test_products_on_this_machine_are_right_and_have_a_rate(run, tmp_path, compiled_soon):
    path = tmp_path / "rows.json"
    done = run(
        *("measure", "matrix", "--device", "cpu", "--host-devices", 2, "--budget", "6s"),
        *("--json", "-o", path),
    )
    assert done.code == 0, done.err
    products = [row for row in done.json["rows"] if row["name"] == "matmul"]
    assert products
    assert all(row["bound_use"] <= 1 and row["flop_per_s"] > 1e8 for row in products)
    assert path.read_text().startswith("{")


ROWS = Path(__file__).parent / "rows" / "measured_host.csv"


def test_validate_scores_each_kind_on_the_machine_that_the_file_tells_of(run):
    done = run("validate", "--evidence", ROWS, "--json")
    assert done.code == 0, done.err
    rows = {row["id"]: row for row in done.json["rows"]}
    steps = [row for name, row in rows.items() if name.startswith("measured-train")]
    assert len(steps) == 3
    assert all(row["predicted_s"] and not row["fitted"] for row in steps)
    fitted = [row for row in rows.values() if row["fitted"]]
    assert {"measured-matrix-matmul-fp32-M512K512N512", "measured-all-reduce-2-65536"} <= {
        row["id"] for row in fitted
    }


@pytest.mark.slow
def test_explain_takes_the_steps_of_the_file(run):
    done = run("explain", ROWS, "--json")
    assert done.code == 0, done.err
    assert len(done.json["summary"]["steps"]) == 3


@NEEDS_JAX
@pytest.mark.slow
def test_a_decoder_of_given_shape_is_trained(run, tmp_path, compiled_soon):
    path = tmp_path / "rows.csv"
    sizes = "layers=1,hidden=128,heads=4,ffn=256,vocab=512,sequence=64,micro-batch=1,tp=2"
    done = run(
        *("measure", "train", "--device", "cpu", "--host-devices", 4, "--budget", "60s"),
        *("--decoder", sizes, "-o", path),
    )
    assert done.code == 0, done.err
    (step,) = [row for row in csv.DictReader(path.read_text().splitlines()) if row["step_time_s"]]
    assert (step["layers"], step["hidden"], step["tp"], step["dp"]) == ("1", "128", "2", "2")
    assert float(step["compiled_flop"]) == pytest.approx(float(step["flop"]), rel=0.1)
    assert "over the program's, which are of products" in " ".join(done.out.split())
    assert run("measure", "train", "--device", "cpu", "--decoder", "tp=3").code == 2


@pytest.mark.slow
def test_calibrate_fits_a_stack_to_the_steps_of_the_file(run, tmp_path):
    path = tmp_path / "training-mine.toml"
    done = run("calibrate", ROWS, "--stack", "mine", "-o", path)
    assert done.code == 0, done.err
    text = path.read_text()
    assert text.count("measured-train") >= 3
    assert "measured-matrix" not in text


def test_the_written_machine_is_compared_and_trained_on(run, tmp_path):
    from trnbench.facts.catalog.search import open_catalog
    from trnbench.verbs.measure.answer import MeasuredRow
    from trnbench.verbs.measure.run import evidence_of, write_machine

    cells = list(csv.DictReader(ROWS.read_text().splitlines()))
    rows = [MeasuredRow(cells={k: v for k, v in one.items() if v}) for one in cells]
    name = evidence_of(rows).rows[0].text("instance")
    written, inherited = write_machine(open_catalog(), rows)
    assert inherited == []
    assert all(str(path).startswith(str(tmp_path)) for path in written)
    checked = run("spec", "validate", *written)
    assert checked.code == 0, checked.out + checked.err
    done = run("train", "tiny-gpt", "--on", name, "--global-batch", 8, "--json")
    assert done.code == 0, done.err
    assert done.json["rows"][0]["step_time_s"] > 0
    asked = ("--tokens", "1M", "--on", f"{name},trn1.2xlarge", "--nodes", 1, "--json")
    compared = run("compare", "tiny-gpt", *asked)
    assert name in {row["instance"] for row in compared.json["rows"]}, compared.err
    taken = run("measure", "all", "--write-spec", name)
    assert taken.code == 2
    assert "--force replaces it" in taken.err


H100 = Path(__file__).parent / "rows" / "measured_h100.csv"


def cells_of(path):
    rows = csv.DictReader(path.read_text().splitlines())
    return [{key: value for key, value in row.items() if value} for row in rows]


def test_steps_of_an_h100_are_predicted_from_its_kernels(run, session):
    session(given=cells_of(H100))
    done = run("measure", "--device", "cuda")
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "Verdict: 3 training steps predicted from the other rows: median error 6%" in said
    assert "largest +11%, L4 B1 S2048 H4096" in said
    assert "no row of kind collective" not in said, "one device exchanges nothing"


def wrong_fp8(cells):
    return [row | ({"check": "9.2"} if row.get("dtype") == "fp8_e4m3fn" else {}) for row in cells]


def test_a_wrong_format_is_said_and_inherited_and_the_spec_is_written(run, session):
    session(given=[row | {"instance": "mine"} for row in wrong_fp8(cells_of(H100))])
    done = run("measure", "--write-spec", "mine", "--no-keep")
    assert done.code == 1, "its numbers are wrong"
    said = " ".join(done.err.split())
    assert "fp8_e4m3fn of mine: not measured, as h100's within a wide range" in said
    (path,) = [path for path in map(Path, written(done)) if path.name == "chip-mine.toml"]
    assert "not measured: that of h100" in path.read_text()
    trained = run("train", "tiny-gpt", "--on", "mine", "--global-batch", 8, "--json")
    assert trained.code == 0, trained.err


def test_no_spec_is_written_without_a_training_step(run, session):
    session(given=[row for row in cells_of(H100) if row["kind"] != "train"])
    done = run("measure", "--write-spec", "mine", "--no-keep")
    assert done.code == 1
    assert "nothing is written: no training step was measured whose losses fell" in done.err


@pytest.mark.parametrize("kept", [3, 9, 13, 17, 22, 30])
def test_a_session_cut_anywhere_leaves_a_file_that_is_read_and_a_spec_or_a_reason(
    run, session, tmp_path, kept
):
    session(given=cells_of(H100)[:kept], stopped="budget")
    path = tmp_path / "rows.csv"
    done = run("measure", "--write-spec", "mine", "-o", path, "--no-keep")
    assert done.code in (0, 1)
    assert len(cells_of(path)) == kept
    if "nothing is written" in done.err:
        assert kept < 23
    else:
        checked = run("spec", "validate", *written(done))
        assert checked.code == 0, checked.out


def written(done):
    """Files that a command said it wrote."""
    lines = done.err.splitlines()
    return [line.removeprefix("written: ") for line in lines if line.startswith("written: ")]


def test_steps_of_pytorch_are_predicted_by_the_calibrations_of_that_software(
    run, session, tmp_path
):
    cells = cells_of(Path(__file__).parent / "rows" / "steps_h100.csv")
    device = {"device": "NVIDIA H100 80GB HBM3", "backend": "cuda", "ranks": "1"}
    session(given=[{**row, **device} for row in cells], device=device)
    path = tmp_path / "rows.csv"
    done = run("measure", "steps", "-o", path)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "the machine is taken as p5.4xlarge: --name says another" in said
    assert "Verdict: 4 training steps predicted from the calibrations" in said
    script = path.with_suffix(".py").read_text()
    assert script == run("measure", "steps", "--script").out
    compile(script, "steps.py", "exec")
    assert "import trnbench" not in script
    assert {row["instance"] for row in cells_of(path)} == {"p5.4xlarge"}


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_install_line_is_given(run):
    done = run("measure", "steps")
    assert done.code == 3
    assert "torch is not installed" in done.err
    assert "pip install 'trnbench[torch]'" in done.err

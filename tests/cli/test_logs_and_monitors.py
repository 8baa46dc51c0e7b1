"""Files of other tools on the command line: what becomes of them, and what is refused whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "samples"
KNOBS = ("--tp", "8", "--global-batch", "64", "--sequence", "4096", "--recompute", "selective")
RAN = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge", "--micro-batch", "1", *KNOBS)
LOG = "".join(f"step {i} | step time: {99 if not i else 11.0 + i % 2} s\n" for i in range(9))


def test_validate_takes_what_nccl_tests_prints(run):
    done = run(
        "validate",
        "--evidence",
        SAMPLES / "nccl_allreduce_2xp5_mpi_tag.log",
        "--on",
        "p5.48xlarge:2",
        "--json",
    )
    assert done.code == 0
    assert [row["size_bytes"] for row in done.json["rows"]] == [
        2**i for i in (26, 27, 28, 29, 30, 31)
    ]
    assert {(row["set"], row["ranks"]) for row in done.json["rows"]} == {("gpu_collectives", 16)}
    # Published messages of this size on these machines are predicted within a fifth.
    assert abs(done.json["rows"][-1]["error"]) < 0.2
    assert "6 sizes of all-reduce over 16 ranks by nccl-tests" in done.err


def test_a_folder_of_logs_becomes_rows(run, tmp_path):
    (tmp_path / "runs" / "b").mkdir(parents=True)
    (tmp_path / "runs" / "a.log").write_text(LOG)
    (tmp_path / "runs" / "b" / "a.log").write_text(LOG.replace("11.0", "12.0"))
    (tmp_path / "runs" / "notes.txt").write_text("nothing of steps\n")
    done = run("validate", "--evidence", tmp_path / "runs", *RAN, "--json")
    assert done.code == 0
    assert [(row["id"], row["measured_s"]) for row in done.json["rows"]] == [
        ("a", 11.5),
        ("b/a", 12.0),
    ]
    assert "no steps in notes.txt" in done.err
    assert "1 of warm-up left out (longest 1.65 min)" in done.err
    assert run("calibrate", tmp_path / "runs", *RAN, "--stack", "mine", "-q", "--json").code == 0


@pytest.mark.slow
def test_explain_shows_what_the_devices_did(run, tmp_path):
    log = tmp_path / "run.log"
    log.write_text(LOG)
    monitor = tmp_path / "monitor.jsonl"
    shutil.copy(SAMPLES / "neuron_monitor.jsonl", monitor)
    done = run("explain", log, monitor, SAMPLES / "neuron_explorer_summary.json", *RAN, "--json")
    assert done.code == 0
    told, profile = done.json["summary"]["devices"]
    assert (told["tool"], told["busy_share"]) == ("neuron-monitor", 0.425)
    assert told["busy_s"] == pytest.approx(0.425 * 11.5)
    assert profile["run_s"] == 3.132
    assert {figure["figure"] for figure in done.json["summary"]["steps"]} == {"step", "memory"}
    shown = run("explain", log, monitor, *RAN).out
    assert "neuron-monitor (monitor.jsonl): busy 42.5 %" in " ".join(shown.split())


@pytest.mark.parametrize("verb", ["validate", "calibrate", "explain"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"step time: 1.5 s\n\0\0", "is a binary file"),
        (b'{"results": [{"size(B)": 12', "not valid JSON"),
        (b'{"log_history": [{"train/step', "not valid JSON"),
        (b"step 7 step_time 4.1s\nstep 7 step_time 8.3s\n", "its ranks disagree"),
        (b"step 1 step_time 9s\nstep 2 step_time nans\n", "first line 2"),
        (b"step 99999999999999999999 step_time 1e999s\n", "inf is neither a time"),
    ],
)
def test_bad_files_are_one_line_and_nothing_is_written(run, tmp_path, verb, text, said):
    path, into = tmp_path / "bad.log", tmp_path / "out.toml"
    path.write_bytes(text)
    given = {"validate": ("--evidence", path), "calibrate": (path, "--stack", "x", "-o", into)}
    done = run(verb, *given.get(verb, (path,)), *RAN)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert not into.exists()


def test_a_monitor_alone_tells_no_step(run):
    done = run("validate", "--evidence", SAMPLES / "neuron_monitor.jsonl", *RAN)
    assert done.code == 2
    assert "is of neuron-monitor and has no steps" in done.err
    done = run("explain", SAMPLES / "neuron_monitor.jsonl", *RAN)
    assert done.code == 2
    assert "no row can be explained" in done.err


def test_a_sweep_needs_a_cluster(run):
    done = run("validate", "--evidence", SAMPLES / "nccl_allreduce_2xp5_mpi_tag.log")
    assert done.code == 2
    assert "does not say where it was measured: give --on" in done.err

"""`trnbench verify` and `train --config`: a full circle of a plan, its files, its log."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from trnbench.verbs.train.run import train

ON = "p5.48xlarge:2"
KNOBS = (
    *("--tp", "2", "--pp", "1", "--cp", "1", "--micro-batch", "1", "--global-batch", "64"),
    *("--sequence", "8k", "--zero", "1", "--recompute", "none"),
)
RUN = ("llama3.1-8b", "--on", ON, *KNOBS)


@pytest.fixture
def launched(run, tmp_path):
    folder = tmp_path / "job"
    done = run("launch", *RUN, "--stack", "megatron", "--with", "slurm", "-o", folder, "--json")
    assert done.code == 0, done.err
    return folder, done.json["rows"][0]


def log_of(path, step_s):
    # The first step compiles.
    times = [3 * step_s, *[step_s] * 19]
    path.write_text("".join(f"step {i} | step time: {s:.4f} s\n" for i, s in enumerate(times)))
    return path


def test_a_run_at_the_predicted_speed_is_as_predicted(run, launched, tmp_path):
    folder, row = launched
    done = run("verify", folder, log_of(tmp_path / "run.log", row["step_time_s"]))
    assert done.code == 0
    assert "as predicted" in done.out


@pytest.mark.slow
def test_the_folder_of_a_job_says_what_calibrate_has_to_know_of_its_log(run, launched, tmp_path):
    folder, row = launched
    log = log_of(tmp_path / "run.log", 1.2 * row["step_time_s"])
    done = run("calibrate", folder, log, "-o", tmp_path / "mine.toml", "--json")
    assert done.code == 0, done.err
    (fitted,) = done.json["summary"]["fitted"]
    assert fitted["measured_s"] == pytest.approx(1.2 * row["step_time_s"], rel=1e-4)
    # The job was 20 % slower than predicted, by the layout in its folder.
    assert fitted["prior"] == pytest.approx(1 / 1.2 - 1, abs=1e-3)
    assert (tmp_path / "mine.toml").is_file()
    alone = run("calibrate", folder)
    assert alone.code == 2
    assert "give what its run has logged too" in alone.err


@pytest.mark.slow
def test_a_slow_run_says_by_how_much_and_explain_names_what_was_planted(run, launched, tmp_path):
    """The job is told to recompute nothing; its log is of full recompute."""
    folder, row = launched
    knobs: dict[str, Any] = {"tp": 2, "pp": 1, "cp": 1, "micro_batch": 1, "global_batch": 64}
    knobs |= {"zero": 1, "sequence_parallel": row["sequence_parallel"], "sequence": 8192}
    (planted,) = train("llama3.1-8b", on=ON, stack=row["stack"], recompute="full", **knobs)
    assert planted.step is not None
    log = log_of(tmp_path / "run.log", planted.step.step_time_s)
    done = run("verify", folder, log, "--json")
    assert done.code == 1
    (found,) = done.json["rows"]
    assert found["verdict"] == "slower"
    assert found["difference"] == pytest.approx(
        planted.step.step_time_s / row["step_time_s"] - 1, abs=1e-3
    )
    largest = done.json["summary"]["largest_terms"]
    assert largest[0]["term"] == "matrix"
    assert len(largest) == 3
    assert largest[0]["predicted_s"] == row["exposed_matrix_s"]
    words = shlex.split(done.json["summary"]["explain"])
    why = run(*words[1:], "--json")
    assert why.code == 0
    assert "recompute" in why.json["summary"]["tied"] + [why.json["rows"][0]["cause"]]


def test_at_70_percent_of_the_speed_people_are_told_so(run, launched, tmp_path):
    folder, row = launched
    done = run("verify", folder, log_of(tmp_path / "run.log", row["step_time_s"] / 0.7))
    assert done.code == 1
    line, *more = done.out.splitlines()
    assert "slower than predicted by 42.9 %" in " ".join((line, *more))
    assert f"to find out why: trnbench explain {folder} {tmp_path / 'run.log'}" in done.err
    fast = run("verify", folder, log_of(tmp_path / "run.log", row["step_time_s"] / 2))
    assert "faster than predicted by 50.0 %" in fast.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "more"),
    [
        (("llama3.1-8b", "--on", "p5.48xlarge:2", "--stack", "megatron"), ()),
        (
            ("llama3.1-8b", "--on", "trn1.32xlarge:4", "--stack", "nxdt"),
            ("--job", "lora", "--precision", "auto-cast-bf16"),
        ),
        (("llama3.1-8b", "--on", "trn2.48xlarge:1", "--stack", "nxdt"), ("--lnc", "1")),
        (("llama3.1-8b", "--on", "trn2.48xlarge:1", "--stack", "nxdt"), ("--job", "orpo")),
        (
            ("llama3.1-8b", "--on", "p5.48xlarge:2", "--stack", "torchtitan"),
            ("--recompute", "selective"),
        ),
    ],
)
def test_explain_predicts_what_was_launched_to_the_bit(run, tmp_path, job, more):
    """All that was chosen is said by the folder: nothing of the layout is assumed."""
    folder = tmp_path / "job"
    asked = (*job, "--with", "slurm", "--global-batch", "64", "--sequence", "8k", *more)
    done = run("launch", *asked, "-o", folder, "--json")
    assert done.code == 0, done.err
    (row,) = done.json["rows"]
    log = log_of(tmp_path / "run.log", row["step_time_s"])
    found = run("explain", folder, log, "--json")
    assert found.code == 0, found.err
    (step,) = (one for one in found.json["summary"]["steps"] if one["figure"] == "step")
    assert (step["low_s"], step["predicted_s"], step["high_s"]) == (
        *(row["low_step_time_s"], row["step_time_s"]),
        row["high_step_time_s"],
    )
    # What torchtitan means by `selective` is between two modes, and stays so.
    assert {one["name"] for one in found.json["summary"]["assumed"]} <= {"shapes", "recompute"}
    assert "was launched with" not in found.err
    (verified,) = run("verify", folder, log, "--json").json["rows"]
    assert verified["predicted_s"] == row["step_time_s"]
    assert (
        run("verify", folder, log).out.split()
        == run("explain", folder, log).out.split("\n\n")[0].split()
    )


def test_a_folder_that_was_predicted_otherwise_is_said_to_be(run, launched, tmp_path):
    folder, row = launched
    log = log_of(tmp_path / "run.log", row["step_time_s"])
    path = folder / "prediction.json"
    told = json.loads(path.read_text())
    told["rows"][0]["step_time_s"] *= 1.25
    told["version"] = "0.0.7"
    path.write_text(json.dumps(told))
    done = run("verify", folder, log, "--json")
    assert (done.code, done.json["rows"][0]["predicted_s"]) == (0, row["step_time_s"])
    (remark,) = (line for line in done.err.splitlines() if "was launched with" in line)
    assert "by trnbench 0.0.7 or other data files" in remark
    # What is asked otherwise than it was launched is no fault of the folder.
    other = run("explain", folder, log, "--recompute", "full", "--json")
    assert "was launched with" not in other.err
    assert other.json["summary"]["steps"][0]["predicted_s"] > row["step_time_s"]


@pytest.mark.slow
def test_the_circle_from_a_plan_closes_at_the_planned_speed_and_breaks_at_70_percent(run, tmp_path):
    """Plan, launch, run, verify; then a run whose machines recompute what the plan keeps."""
    folder, answer = tmp_path / "job", tmp_path / "plan.json"
    asked = ("llama3.1-8b", "--tokens", "10B", "--on", "p5.48xlarge", "--nodes", "2", *KNOBS)
    done = run(
        *("plan", *asked, "--stack", "megatron", "--launch", folder, "--with", "slurm"),
        *("--price-date", "2026-11-21", "--json", "-o", answer),
    )
    assert done.code == 0, done.err
    planned = json.loads(answer.read_text())["rows"][0]["step_time_s"]
    log = log_of(tmp_path / "run.log", planned)
    good = run("verify", folder, log)
    assert good.code == 0
    assert "as predicted" in good.out
    slow = run("verify", folder, log_of(log, planned / 0.7), "--json")
    assert slow.code == 1
    assert slow.json["rows"][0]["difference"] == pytest.approx(1 / 0.7 - 1, abs=1e-3)
    why = run(*shlex.split(slow.json["summary"]["explain"])[1:], "--json")
    assert why.code == 0
    named = [row["cause"] for row in why.json["rows"][:1]] + why.json["summary"]["tied"]
    assert "recompute" in named, "steps that take 43 % longer are those of full recompute"


@pytest.mark.parametrize(
    ("prediction", "log", "said"),
    [
        (None, "step time: 1 s\n", "no such file"),
        ("{", "step time: 1 s\n", "not valid JSON"),
        ('{"schema": "trnbench.train/1", "rows": [{}]}', "step time: 1 s\n", "is not a prediction"),
        ("own", "no times\n", "has no step time"),
        ("own", "\0\1", "binary"),
    ],
)
def test_what_cannot_be_verified_is_refused_in_a_line(
    run, launched, tmp_path, prediction, log, said
):
    folder, _ = launched
    path = folder / "prediction.json"
    if prediction is None:
        path.unlink()
    elif prediction != "own":
        path.write_text(prediction)
    (tmp_path / "run.log").write_text(log)
    done = run("verify", folder, tmp_path / "run.log")
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "LOG", "JOB"), "is not a folder"),
        (("explain", "LOG", "JOB"), "name it first, then its logs"),
        (("explain", "JOB"), "give what its run has logged too"),
    ],
)
def test_the_folder_comes_before_its_logs(run, launched, tmp_path, words, said):
    log = log_of(tmp_path / "run.log", 1.0)
    places = {"LOG": log, "JOB": launched[0]}
    done = run(*(places.get(word, word) for word in words))
    assert done.code == 2
    assert said in done.err


def test_a_configuration_is_predicted_as_it_was_launched(run, launched):
    """The same numbers to the bit: what the file says is the layout that was predicted."""
    folder, row = launched
    done = run("train", "llama3.1-8b", "--on", "p5.48xlarge", "--config", folder, "--json")
    assert done.code == 0, done.err
    (read,) = done.json["rows"]
    assert {name: read[name] for name in ("nodes", "dp", "step_time_s", "memory_bytes")} == {
        name: row[name] for name in ("nodes", "dp", "step_time_s", "memory_bytes")
    }
    assert "Megatron-LM: tp 2" in done.err
    script = folder / "train.sh"
    other = run("train", "llama3.1-8b", "--on", "p5.48xlarge:4", "--config", script, "--json")
    assert other.json["rows"][0]["dp"] == 2 * row["dp"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--on", "p5.48xlarge,trn1.32xlarge"), "of one cluster"),
        (("--suite", "trn1"), "model"),
    ],
)
def test_a_configuration_is_of_one_model_on_one_cluster(run, launched, options, said):
    folder, _ = launched
    done = run("train", "llama3.1-8b", *options, "--config", folder)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"model_alignment_strategy": {"dpo": {"kl_beta": 0.01}}}, "runs the reference once"),
        (
            {
                "model": {
                    "activations_checkpoint_granularity": "selective",
                    "activations_checkpoint_recompute": ["Mystery"],
                }
            },
            "recompute of Mystery",
        ),
    ],
)
def test_what_of_a_configuration_is_not_modelled_is_refused_with_the_file(
    run, tmp_path, table, said
):
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps({"distributed_strategy": {}, "data": {}, **table}))
    done = run("train", "llama3.1-8b", "--on", "trn1.32xlarge", "--config", path)
    assert done.code == 2
    assert "a.yaml: " in done.err
    assert said in done.err


def test_knobs_that_mean_nothing_are_refused_with_the_file(run, tmp_path):
    path = tmp_path / "a.yaml"
    text = {"distributed_strategy": {"tensor_model_parallel_size": "many"}, "data": {}}
    path.write_text(json.dumps(text))
    done = run("train", "llama3.1-8b", "--on", "trn1.32xlarge", "--config", path)
    assert done.code == 2
    assert "a.yaml: " in done.err
    assert "many" in done.err

"""`trnbench launch`: every pair writes files that parse; what cannot be started is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.launch.catalogue import FRAMEWORKS, frameworks_on, schedulers_on
from trnbench.launch.written import VALUES
from trnbench.verbs.launch.folders import launch_choices, launch_row
from trnbench.verbs.train.run import train

MODEL = "llama3.1-8b"
ON = {
    "nxdt": "trn1.32xlarge",
    "optimum-neuron": "trn2.48xlarge",
    "torchtitan": "trn2.48xlarge",
    "megatron": "p5.48xlarge",
    "megatron-bridge": "p5en.48xlarge",
}
"""An instance of each framework."""
KNOBS = ("--global-batch", "256", "--sequence", "4k", "--tp", "8", "--pp", "1", "--cp", "1")


def pairs():
    catalog = open_catalog()
    for name, instance in ON.items():
        for scheduler in schedulers_on(load_platform(catalog, instance)):
            yield name, scheduler.name


def launched(run, folder, framework, scheduler, *options, nodes=2, model=MODEL):
    on = f"{ON[framework]}:{nodes}"
    stack = ("--stack", framework, "--with", scheduler)
    return run("launch", model, "--on", on, *stack, *KNOBS, "-o", folder, *options)


def shell_files(folder: Path):
    return [path for path in folder.iterdir() if path.suffix in (".sh", ".sbatch", ".env")]


def check_shell(folder: Path):
    """Bash reads every script; ShellCheck, where it is installed, finds no fault in any."""
    paths = sorted(map(str, shell_files(folder)))
    for path in paths:
        subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck"):
        # SC1090, SC1091: values.env and the virtual environment are read where they are used.
        rules = ("--exclude=SC1090,SC1091,SC2034", "--shell=bash", "--severity=warning")
        found = subprocess.run(["shellcheck", *rules, *paths], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(("framework", "scheduler"), pairs())
def test_every_pair_writes_files_that_others_can_read(run, tmp_path, framework, scheduler):
    folder = tmp_path / "job"
    nodes = 1 if scheduler == "ecs" else 2
    done = launched(run, folder, framework, scheduler, nodes=nodes)
    assert done.code == 0, done.err
    check_shell(folder)
    for path in folder.iterdir():
        text = path.read_text()
        if path.suffix == ".yaml":
            assert all(isinstance(one, dict) for one in yaml.safe_load_all(text))
        if path.suffix == ".json":
            json.loads(text)
        if path.suffix == ".py":
            compile(text, path.name, "exec")
        if path.suffix != ".json":
            assert "Written by trnbench" in text
    prediction = json.loads((folder / "prediction.json").read_text())
    assert prediction["schema"] == "trnbench.launch/1"
    (row,) = prediction["rows"]
    assert row["low_step_time_s"] < row["step_time_s"] < row["high_step_time_s"]
    assert (row["framework"], row["scheduler"]) == (framework, scheduler)
    named = set(re.findall(r"(?m)^([A-Z_0-9]+)=", (folder / "values.env").read_text()))
    assert named <= set(VALUES)
    assert named == {value["name"] for value in prediction["summary"]["values"]}
    told = (folder / "README.md").read_text()
    for name in prediction["summary"]["to_fill_in"]:
        assert name in told
        assert name in done.err


def test_a_job_does_not_start_before_its_values_are_filled_in(run, tmp_path):
    folder = tmp_path / "job"
    launched(run, folder, "nxdt", "slurm")
    done = subprocess.run(["bash", str(folder / "start.sh")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "set CODE_DIR in" in done.stderr


def test_a_job_calls_torchrun_with_what_was_filled_in(run, tmp_path):
    """Odd paths survive: what stands in values.env arrives as one word."""
    folder = tmp_path / "a folder's name"
    assert launched(run, folder, "nxdt", "torchrun", nodes=1).code == 0
    code = tmp_path / "it's code"
    (code / "examples").mkdir(parents=True)
    text = (folder / "values.env").read_text()
    for name in ("CODE_DIR", "MODEL_DIR", "DATA_DIR", "CHECKPOINT_DIR", "COMPILE_CACHE"):
        text = text.replace(f"{name}=''", f'{name}="{code}"')
    (folder / "values.env").write_text(text)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("torchrun", "neuron_parallel_compile"):
        script = commands / name
        script.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$0" "$@"\n')
        script.chmod(0o755)
    path = {"PATH": f"{commands}:/usr/bin:/bin"}
    order = ["bash", str(folder / "start.sh")]
    done = subprocess.run(order, capture_output=True, text=True, env=path, check=True)
    words = done.stdout.splitlines()
    # Compiled first, then run.
    assert words[0].endswith("neuron_parallel_compile")
    assert [word for word in words if word.startswith("trainer.max_steps")] == [
        *("trainer.max_steps=10", "trainer.max_steps=100")
    ]
    assert words.count(f"data.train_dir={code}") == 2
    assert words.count(f"--config-path={folder}") == 2


def test_a_folder_is_not_overwritten_unless_told(run, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    done = launched(run, folder, "nxdt", "slurm")
    assert done.code == 3
    assert "--force" in done.err
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert launched(run, folder, "nxdt", "slurm", "--force").code == 0
    assert (folder / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--on", "p5.48xlarge:2", "--stack", "nxdt", "--with", "slurm"), 1, "does not run on"),
        (
            (
                *("--on", "trn1.32xlarge:2", "--stack", "nxdt", "--with", "slurm", "--cp", "2"),
                *("--context-parallel", "all-to-all"),
            ),
            1,
            "has no all-to-all context exchange; try ring",
        ),
        (
            ("--on", "trn1.32xlarge:2", "--stack", "nxdt", "--with", "slurm", "--job", "lora"),
            1,
            "--precision auto-cast-bf16",
        ),
        (("--on", "trn1.32xlarge", "--stack", "nxdt", "--with", "slurm", "--tp", "2"), 1, ""),
        (("--on", "trn1.32xlarge", "--stack", "nxdt", "--with", "slrum"), 2, "mean 'slurm'"),
        (
            ("--on", "trn1.32xlarge", "--stack", "nxd", "--with", "slurm"),
            2,
            "training stack",
        ),
        (("--on", "trn1.32xlarge"), 2, "launch needs --with"),
        (("--on", "trn1,trn2", "--stack", "nxdt", "--with", "slurm"), 2, "one cluster"),
    ],
)
def test_what_cannot_be_started_is_refused_and_nothing_is_written(
    run, tmp_path, options, code, said
):
    folder = tmp_path / "job"
    model = "llama3.1-70b" if options[-2:] == ("--tp", "2") else MODEL
    done = run("launch", model, *options, "-o", folder)
    assert done.code == code
    assert said in " ".join((done.out + done.err).split())
    assert not folder.exists()


def test_without_a_folder_it_tells_what_it_would_write(run, tmp_path):
    on = ("--on", "trn1.32xlarge", "--stack", "nxdt", "--with", "slurm")
    done = run("launch", MODEL, *on, *KNOBS, "--json")
    assert done.code == 0
    assert "nxdt.yaml" in done.json["summary"]["files"]
    assert "nothing is written" in done.err


def test_the_list_names_every_framework_and_nothing_that_does_not_go_together(run):
    done = run("launch", "--list", "--json")
    assert {row["framework"] for row in done.json["rows"]} == set(FRAMEWORKS)
    catalog = open_catalog()
    for row in done.json["rows"]:
        platform = load_platform(catalog, row["instance"])
        assert row["framework"] in {one.name for one in frameworks_on(open_catalog(), platform)}
        assert row["schedulers"] == [one.name for one in schedulers_on(platform)]


PLAN = ("llama2-7b", "--tokens", "10B", "--on", "trn1.32xlarge", "--nodes", "2", *KNOBS[:2])
LAYOUT = ("--tp", "8", "--pp", "1", "--cp", "1", "--micro-batch", "1")


def test_a_plan_is_launched_at_once_or_from_its_answer(run, tmp_path):
    first, second, answer = tmp_path / "first", tmp_path / "second", tmp_path / "plan.json"
    own = ("--launch", first, "--with", "slurm", "--price-date", "2026-11-21")
    done = run("plan", *PLAN, *LAYOUT, *own, "--json", "-o", answer)
    assert done.code == 0, done.err
    assert "to fill in, in values.env: CODE_DIR" in done.err
    again = run("launch", answer, "--with", "slurm", "-o", second)
    assert again.code == 0, again.err
    for path in first.iterdir():
        if path.name != "prediction.json":
            assert path.read_text() == (second / path.name).read_text()
    # 10 B tokens in steps of 256 sequences of 4,096.
    assert f"MAX_STEPS={round(10e9 / (256 * 4096))}\n" in (first / "values.env").read_text()
    row = json.loads(answer.read_text())["rows"][0]
    (predicted,) = json.loads((second / "prediction.json").read_text())["rows"]
    assert predicted["step_time_s"] == row["step_time_s"]
    assert predicted["checkpoint_interval_s"] == row["checkpoint_interval_s"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--launch", "x"), "go together"),
        (("--launch", "x", "--with", "slrum"), "did you mean 'slurm'"),
    ],
)
def test_a_plan_that_cannot_be_launched_is_refused_before_it_is_made(run, options, said):
    done = run("plan", *PLAN, *options)
    assert done.code == 2
    assert said in done.err
    assert not done.out


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("{}", (), "is not a JSON answer"),
        ('{"schema": "trnbench.plan/1", "rows": []}', (), "has no rows"),
        ('{"schema": "trnbench.plan/1", "rows": [{}]}', (), "cannot run"),
        ('{"schema": "trnbench.plan/1", "rows": [{}]}', ("--row", "2"), "has 1 row"),
        ('{"schema": "trnbench.plan/1", "rows": [{"feasible": true}]}', (), "needs model"),
        ("{", (), "not valid JSON"),
    ],
)
def test_what_is_no_plan_is_refused_in_a_line(run, tmp_path, text, options, said):
    path = tmp_path / "plan.json"
    path.write_text(text)
    done = run("launch", path, "--with", "slurm", *options)
    assert done.code == 2
    assert said in done.err


def test_a_row_of_an_answer_is_launched_and_nothing_written():
    """A row says what `launch` needs; one whose stack no framework stands for asks for one."""
    catalog = open_catalog()
    layout: dict[str, Any] = {"tp": 8, "pp": 1, "cp": 1, "micro_batch": 1, "global_batch": 256}
    (answer,) = train("llama2-7b", on="trn1.32xlarge:2", **layout)
    row = answer.row()
    choices = launch_choices(catalog, row)
    assert choices.stack == "nxdt"
    assert "optimum-neuron" in choices.frameworks
    launched, question = launch_row(catalog, row, scheduler=choices.schedulers[0])
    assert launched.folder is not None
    assert launched.step.layout == answer.layout
    assert question.inputs()["on"] == "trn1.32xlarge:2"
    other = {**row, "calibration": "neuron-bert-trn1"}
    assert launch_choices(catalog, other).stack is None
    with pytest.raises(InputError, match="no framework that files are written for"):
        launch_row(catalog, other, scheduler="slurm")
    assert launch_row(catalog, other, scheduler="slurm", stack="nxdt")[0].feasible
    del other["calibration"]
    assert launch_choices(catalog, other).stack == "nxdt"


def test_links_inside_the_folder_are_not_followed(run, tmp_path):
    folder, victim = tmp_path / "job", tmp_path / "victim"
    assert launched(run, folder, "nxdt", "slurm").code == 0
    victim.write_text("mine")
    before = (folder / "train.sh").read_bytes()
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(victim)
    done = launched(run, folder, "nxdt", "slurm", "--force", nodes=4)
    assert done.code == 3
    assert "README.md: it is a link" in done.err
    assert victim.read_text() == "mine"
    assert (folder / "train.sh").read_bytes() == before

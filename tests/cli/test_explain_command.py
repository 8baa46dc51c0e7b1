"""`trnbench explain`: rows and logs in, causes out, and what cannot be explained refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trnbench.cli.main import main
from trnbench.verbs.train.run import train

COLUMNS = (
    "id,instance,nodes,model,seq,tp,pp,dp,zero,mbs,gbs,recompute,precision,framework,step_time_s"
)
CELLS = "4096,1,1,8,0,1,8,none,bf16,NeMo"
FITS = "4096,2,1,4,1,1,32,none,bf16,NeMo"
RAN = ("llama3.1-8b", "p5.48xlarge")
ROWS = (
    {"nodes": 1, "tp": 2, "dp": 4, "zero": 1, "global_batch": 32},
    {"nodes": 8, "tp": 1, "dp": 64, "zero": 3, "global_batch": 64},
    {"nodes": 4, "tp": 4, "dp": 8, "zero": 1, "global_batch": 128},
)
SHARED = {"sequence": 8192, "micro_batch": 1, "pp": 1, "precision": "bf16-master"}


def measured(tmp_path, *, said: str):
    """Write rows whose times are of full recompute; all but the last say another."""
    lines = [COLUMNS]
    for number, row in enumerate(ROWS):
        own = {name: value for name, value in row.items() if name != "nodes"}
        knobs: dict[str, Any] = {**SHARED, **own}
        on = f"{RAN[1]}:{row['nodes']}"
        (answer,) = train(RAN[0], on=on, sequence_parallel=True, recompute="full", **knobs)
        assert answer.step is not None
        cells = (f"r{number}", RAN[1], row["nodes"], RAN[0], 8192, row["tp"], 1, row["dp"])
        told = "full" if number == len(ROWS) - 1 else said
        more = (row["zero"], 1, row["global_batch"], told, "bf16-master", "NeMo")
        lines.append(",".join(map(str, (*cells, *more, answer.step.step_time_s))))
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_rows_that_recompute_more_than_they_say(tmp_path, capsys):
    path = measured(tmp_path, said="none")
    assert main(["explain", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "trnbench.explain/1"
    assert found["rows"][0]["cause"] == "recompute"
    assert found["rows"][0]["change"] == "recompute full"
    assert found["summary"]["verdict"] == "one cause"
    first, _, last = found["summary"]["steps"]
    assert (first["inside"], last["inside"]) == (False, True)
    assert last["gap"] == pytest.approx(0)


@pytest.mark.slow
def test_rows_as_predicted(tmp_path, capsys):
    path = measured(tmp_path, said="full")
    assert main(["explain", str(path)]) == 0
    assert "Nothing unusual" in capsys.readouterr().out


@pytest.mark.slow
def test_a_report_draws_measured_beside_predicted(tmp_path, capsys):
    page = tmp_path / "why.html"
    assert main(["explain", str(measured(tmp_path, said="full")), "--report", str(page)]) == 0
    capsys.readouterr()
    drawn = page.read_text(encoding="utf-8").partition("measured and predicted steps")[2]
    assert drawn.count('<circle class="f') == len(ROWS)
    assert drawn.count('<line class="guide"') == len(ROWS) + 1  # and one in the legend


@pytest.mark.slow
def test_settings_that_nobody_said_come_before_any_cause(tmp_path, capsys):
    """Five times too slow, in a layout that was chosen: its knobs are asked for first."""
    log = tmp_path / "run.log"
    log.write_text("".join(f"step {i} | step time: 40 s\n" for i in range(20)))
    run = ["--model", "llama3.1-8b", "--on", "p5.48xlarge:2", "--global-batch", "64"]
    assert main(["explain", str(log), *run, "--sequence", "8k", "--tp", "2"]) == 0
    shown = capsys.readouterr().out
    line, _, _ = shown.partition("\n\n")
    assert "slower than predicted by" in line
    assumed, ask, cause = (shown.index(one) for one in ("\nAssumed", "Say what ran", "\ncause "))
    assert assumed < ask < cause
    asked = shown[ask:].partition("\n\n")[0].split(": ")[1].replace(",", "").split()
    assert {"--stack", "--pp", "--recompute", "--precision"} <= {*asked}
    assert not {"--tp", "--sequence", "--global-batch"} & {*asked}


def test_a_layout_that_does_not_fit_asks_for_the_one_that_ran(tmp_path, capsys):
    log = tmp_path / "run.log"
    log.write_text("step time: 40 s\n")
    run = ["--model", "llama3.1-70b", "--on", "trn1.32xlarge", "--global-batch", "64"]
    assert main(["explain", str(log), *run, "--sequence", "8k"]) == 2
    told = capsys.readouterr().err
    assert "no layout fits" in told
    assert "hint: give the layout that ran (--tp" in told
    assert "workload list" not in told


@pytest.mark.slow
def test_a_log_alone_leaves_several_causes_and_names_a_run(tmp_path, capsys):
    log = tmp_path / "run.log"
    log.write_text("".join(f"step {i} | step time: 4.2 s\n" for i in range(20)))
    knobs = ["--tp", "2", "--global-batch", "64", "--sequence", "8k", "--recompute", "none"]
    run = ["--model", "llama3.1-8b", "--on", "p5.48xlarge:2", "--zero", "1"]
    assert main(["explain", str(log), *run, *knobs]) == 0
    shown = capsys.readouterr().out
    assert "equally well" in shown
    assert "To tell them apart, repeat run with" in shown


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            "no times here\n",
            ["--model", "llama2-7b"],
            "does not say where it was measured: give --on",
        ),
        ("no times here\n", [], "columns not recognised"),
        (f"{COLUMNS}\nx,p5.48xlarge,1,llama9-7b,{CELLS},1\n", [], "llama9-7b"),
        (
            f"{COLUMNS}\nx,p5.48xlarge,1,llama2-7b,{CELLS},-1\n",
            [],
            "step_time_s",
        ),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_line(tmp_path, capsys, text, options, said):
    path = tmp_path / "steps.csv"
    path.write_text(text)
    assert main(["explain", str(path), *options]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_time_s", "said"), [("0.01", "is above the chips' peak"), ("9e6", "in ms it would be")]
)
def test_a_time_that_cannot_be_is_said_to_be_one(tmp_path, capsys, step_time_s, said):
    path = tmp_path / "steps.csv"
    path.write_text(
        f"{COLUMNS}\nr0,p5.48xlarge,1,llama3.1-8b,{FITS},{step_time_s}\n", encoding="utf-8"
    )
    assert main(["explain", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"r0: step_time_s: {float(step_time_s):.4g} s" in told
    assert said in " ".join(told.split())
    # Causes that no one would believe are left to machines.
    assert "0.0000" not in told
    assert main(["explain", str(path), "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["summary"]["steps"]
    assert said in step["doubt"]

"""`trnbench calibrate` of timed collectives: links and latencies of an instance, as measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trnbench.engines.analytic.collective.choice import chosen_for
from trnbench.engines.analytic.collective.sweep import sweep
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.placement import place

ON = "trn2.48xlarge"
LAUNCH_S, LINK = 60e-6, 0.6
SIZES = np.array([1024.0 * 4**i for i in range(11)])


def times(op, *, launch_s=LAUNCH_S, link=LINK, sizes=SIZES):
    """Return the seconds of a sweep where a launch takes so long and links reach so much."""
    catalog = open_catalog()
    where = place(load_platform(catalog, ON), nodes=1)
    stack = stack_of(catalog, ON)
    planted = {
        name: replace(one, launch_s=launch_s, link=link) for name, one in stack.tunings.items()
    }
    group = [list(range(where.fabric.ranks_per_node))]
    selected = chosen_for(
        replace(stack, tunings=planted), members_of(where, group, symmetric=True), op
    )
    assert not isinstance(selected, Refusal)
    return sweep(selected, sizes)


def nccom(path, op, sizes):
    found = times(op, sizes=sizes)
    lines = ["size(B) count(elems) type time:avg(us) algbw(GB/s) busbw(GB/s) algorithm"]
    lines += [
        f"{size:.0f} {size / 2:.0f} bf16 {time_s * 1e6:.2f} {alg / 1e9:.2f} {bus / 1e9:.2f} -"
        for size, time_s, alg, bus in zip(
            sizes, found.time_s, found.algbw_bytes_per_s, found.busbw_bytes_per_s, strict=True
        )
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def table(path, rows, instance=ON):
    head = "id,collective,instance,nodes,ranks,size_bytes,time_us\n"
    path.write_text(
        head + "".join(f"{row[0]},{row[1]},{instance},1,64,{row[2]},{row[3]}\n" for row in rows)
    )
    return path


@pytest.fixture
def sweeps(tmp_path):
    return [nccom(tmp_path / f"{op}.txt", op, SIZES) for op in ("all-reduce", "all-gather")]


@pytest.fixture
def short_sweep(tmp_path):
    """Enough to fit, where it is not asked how well."""
    return nccom(tmp_path / "all-reduce.txt", "all-reduce", SIZES[::2])


def numbers(done):
    return {row["number"].removeprefix("tunings.node."): row for row in done.json["rows"]}


@pytest.mark.slow
def test_planted_latency_and_links_are_found_and_predicted_with(run, sweeps, tmp_path):
    target = tmp_path / "own" / "calibration" / "mine.toml"
    target.parent.mkdir(parents=True)
    done = run("calibrate", *sweeps, "--on", f"{ON}:1", "-o", target, "--json")
    assert done.code == 0, done.err
    found = numbers(done)
    assert found["launch"]["value"] == pytest.approx(LAUNCH_S, rel=0.02)
    assert found["launch"]["low"] < LAUNCH_S < found["launch"]["high"]
    # Few sizes are bound by links: their share is known roughly, and says so.
    assert found["link"]["low"] < LINK < found["link"]["high"] < 0.95
    assert not found["network"]["moved"], "no row crossed the network"
    summary = done.json["summary"]
    assert summary["errors"]["prior"] > 0.3
    assert summary["errors"]["without_like"] < 0.02
    text = target.read_text()
    assert 'begun_as = "collective-neuron-trn2"' in text
    assert "before the fit 5 us (3 us to 300 us); 100 % of that told by rows" in text
    assert run("spec", "validate", target).code == 0
    served = ("--spec-dir", tmp_path / "own")
    scored = run("validate", "--evidence", sweeps[0], "--on", ON, *served, "--json")
    assert all(abs(row["error"]) < 0.03 for row in scored.json["rows"])
    assert {row["calibration"] for row in scored.json["rows"]} == {"mine"}
    asked = ("train", "llama3.1-8b", "--on", ON, "--tp", 32, "--zero", 1, "--recompute", "full")
    before = run(*asked, "--json").json["rows"][0]
    after = run(*asked, *served, "--json").json["rows"][0]
    assert after["step_time_s"] > before["step_time_s"], "slower links make a slower step"


@pytest.mark.slow
def test_the_user_s_own_file_is_not_counted_twice_nor_replaced(run, short_sweep):
    first = run("calibrate", short_sweep, "--on", ON, "--json")
    assert first.code == 0
    assert first.json["summary"]["stack"] == f"collective-own-{ON}"
    again = run("calibrate", short_sweep, "--on", ON)
    assert again.code == 2
    assert "is there already" in again.err
    forced = run("calibrate", short_sweep, "--on", ON, "--force", "--json")
    assert forced.json["summary"]["begun_as"] == "collective-neuron-trn2"
    assert numbers(forced)["launch"]["value"] == numbers(first)["launch"]["value"]


@pytest.mark.slow
def test_tables_of_collectives_are_taken_as_sweeps_are(run, tmp_path):
    seconds = times("all-reduce").time_s
    rows = [
        (f"r{i}", "all_reduce", int(size), s * 1e6)
        for i, (size, s) in enumerate(zip(SIZES, seconds, strict=True))
    ]
    path = table(tmp_path / "links.csv", rows)
    done = run("calibrate", path, "--stack", "ours", "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["stack"] == "collective-ours"
    assert numbers(done)["launch"]["value"] == pytest.approx(LAUNCH_S, rel=0.05)


@pytest.mark.slow
def test_json_of_nccl_tests_and_text_behind_prefixes_are_taken(run, tmp_path):
    from pathlib import Path

    log = Path(__file__).parents[1] / "samples" / "nccl_allreduce_2xp5_mpi_tag.log"
    done = run("calibrate", log, "--on", "p5.48xlarge:2", "-o", tmp_path / "p5.toml", "--json")
    assert done.code == 0, done.err
    assert len(done.json["summary"]["fitted"]) == 6
    result = {"size": 2**30, "type": "float", "redop": "sum"}
    result["out_of_place"] = {"time": 6426.3, "alg_bw": 167.09, "bus_bw": 313.29}
    path = tmp_path / "all-reduce.json"
    path.write_text(json.dumps({"nccl_version": 22703, "results": [result]}))
    done = run("calibrate", path, "--on", "p5.48xlarge:2", "-o", "-")
    assert done.code == 0, done.err
    assert 'name = "collective-own-p5.48xlarge"' in done.out


STEPS = """\
id,model,instance,nodes,tp,pp,dp,mbs,gbs,seq,zero,recompute,precision,framework,step_time_s
a,llama3.1-8b,trn2.48xlarge,1,32,1,2,1,64,4096,1,none,bf16-master,torchtitan,{:.3f}
b,llama3.1-8b,trn2.48xlarge,1,16,1,4,1,64,4096,1,none,bf16-master,torchtitan,{:.3f}
c,llama3.1-8b,trn2.48xlarge,1,8,1,8,1,64,4096,1,none,bf16-master,torchtitan,{:.3f}
"""


@pytest.mark.slow
def test_steps_beside_collectives_are_fitted_on_the_measured_links(run, short_sweep, tmp_path):
    steps = tmp_path / "steps.csv"
    steps.write_text(STEPS.format(14, 13, 12))
    target = tmp_path / "mine.toml"
    both = run(
        *(
            "calibrate",
            steps,
            short_sweep,
            "--on",
            f"{ON}:1",
            "--stack",
            "mine",
            "-o",
            target,
            "--json",
        )
    )
    assert both.code == 0, both.err
    assert (tmp_path / "collective-mine.toml").is_file()
    assert both.json["summary"]["collectives"]["stack"] == "collective-mine"
    alone = run("calibrate", steps, "--stack", "mine", "-o", tmp_path / "alone.toml", "--json")
    of = {row["id"]: row["prior"] for row in alone.json["summary"]["fitted"]}
    slower = {row["id"]: row["prior"] for row in both.json["summary"]["fitted"]}
    assert all(slower[name] > of[name] for name in of), "begun with the links as measured"
    shown = run("calibrate", steps, short_sweep, "--on", ON, "--stack", "mine", "-o", "-")
    assert shown.code == 2
    assert "two calibrations" in shown.err


def test_a_time_that_links_cannot_reach_is_left_out_with_the_arithmetic(run, tmp_path):
    rows = [("fast", "all_reduce", 2**30, 1.0), ("slow", "all_reduce", 2**30, 20000.0)]
    done = run("calibrate", table(tmp_path / "a.csv", rows), "-o", tmp_path / "x.toml", "--json")
    assert done.code == 0, done.err
    (left,) = done.json["summary"]["unused"]
    assert left["id"] == "fast"
    assert "its links carry that in" in left["reason"]


@pytest.mark.parametrize(
    ("instances", "options", "said"),
    [
        ((ON, "trn1.32xlarge"), (), "fitted to one instance"),
        ((ON,), ("--stack", "mine", "--from", "eager"), "are of training steps"),
        ((ON,), ("--all-rows",), "are of training steps"),
    ],
)
def test_what_one_stack_cannot_tell_is_refused(run, tmp_path, instances, options, said):
    files = [
        table(tmp_path / f"{name}.csv", [(name, "all_reduce", 2**20, 900.0)], name)
        for name in instances
    ]
    if "trn1.32xlarge" in instances:
        files[1].write_text(files[1].read_text().replace(",64,", ",32,"))
    done = run("calibrate", *files, *options)
    assert done.code == 2
    assert said in done.err


@pytest.mark.slow
def test_a_fit_that_does_not_predict_what_it_did_not_see_is_not_used(run, tmp_path):
    """Times without any order: what half of them say is no help with the others."""
    sizes = SIZES[5:]
    expected_us = times("all-reduce", launch_s=5e-6, link=0.8).time_s[5:] * 1e6
    wild = [
        (f"w{i}", "all_reduce", int(size), expected_us[i] * (6 if i % 2 else 1))
        for i, size in enumerate(sizes)
    ]
    done = run("calibrate", table(tmp_path / "w.csv", wild), "-o", tmp_path / "w.toml", "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["better"] is False
    assert "told by rows" not in (tmp_path / "w.toml").read_text()
    told = " ".join(run("calibrate", tmp_path / "w.csv").out.split())
    assert "the numbers stay as they were" in told

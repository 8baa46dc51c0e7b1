"""Runs in parts, each with a sequence and a layout of its own: `--phase` on every verb alike."""

from __future__ import annotations

import json

import pytest

RUN = ("--tokens", "100B", "--phase", "90%@4k", "--phase", "10%@16k,cp=2,global-batch=256")
LAID_OUT = ("--tp", "8", "--pp", "1", "--zero", "1", "--recompute", "full", "--micro-batch", "1")
DAY = ("--price-date", "2026-11-01")


def answer(run, *args):
    done = run(*args, *RUN, *LAID_OUT, *DAY, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_train_and_compare_say_the_same_of_every_part(run):
    told = answer(run, "train", "llama2-7b", "--on", "trn1.32xlarge:8")
    (row,) = answer(run, "compare", "llama2-7b", "--on", "trn1.32xlarge", "--nodes", "8")["rows"]
    same = ("sequence", "cp", "global_batch", "step_time_s", "memory_bytes", "days", "cost_usd")
    assert [{key: one[key] for key in same} for one in told["rows"]] == [
        {key: one[key] for key in same} for one in row["phases"]
    ]
    (whole,) = told["summary"]["runs"]
    assert (whole["days"], whole["cost_usd"]) == (row["days"], row["cost_usd"])


def test_parts_add_up_by_hand(run):
    told = answer(run, "train", "llama2-7b", "--on", "trn1.32xlarge:8")
    first, last = told["rows"]
    (whole,) = told["summary"]["runs"]
    assert (first["case"], last["case"]) == ("90B@4096", "10B@16384,cp=2,global-batch=256")
    # 90e9 / 4096 samples in steps of 1,024, and 10e9 / 16384 in steps of 256.
    times = [
        90e9 / 4096 / 1024 * first["step_time_s"],
        10e9 / 16384 / 256 * last["step_time_s"],
    ]
    assert first["run_share"] == pytest.approx(times[0] / sum(times))
    for key in ("days", "cost_usd", "tokens"):
        assert first[key] + last[key] == pytest.approx(whole[key])
    assert whole["memory_peak_bytes"] == max(first["memory_bytes"], last["memory_bytes"])
    assert (first["cp"], last["cp"]) == (1, 2)
    assert " days on 8 x trn1.32xlarge" in told["summary"]["verdict"]


def test_every_part_is_compiled_and_started(run):
    place = ("llama2-7b", "--on", "trn1.32xlarge", "--nodes", "8", *LAID_OUT, *DAY, "--json")
    parts = ("--phase", "90B@4k"), ("--phase", "10B@16k")
    first, last, both = (
        json.loads(run("compare", *place, *length).out)["rows"][0]["start_s"]
        for length in (*parts, parts[0] + parts[1])
    )
    # Longer sequences are larger graphs.
    assert both == pytest.approx(first + last)
    assert last > first > 0


def test_a_part_that_does_not_fit_is_said_with_its_reason(run):
    done = run(
        *("train", "llama2-7b", "--on", "trn1.32xlarge:1", "--phase", "1B@4k", *LAID_OUT[:-4]),
        *("--phase", "1B@1M,global-batch=8,recompute=none", *DAY),
    )
    assert done.code == 1
    told = " ".join(done.out.split())
    assert "no: trn1.32xlarge: part 1B@1048576,global-batch=8,recompute=none: needs" in told
    assert "none of" in told
    assert "part 1B@4096: needs" not in told


def test_people_see_parts_layouts_and_the_bill(run):
    done = run("train", "llama2-7b", "--on", "trn1.32xlarge:8", *RUN, *LAID_OUT, *DAY)
    assert done.code == 0
    for words in ("100B tokens", "part 2: 10B@16384,cp=2", "a rank holds at most", "USD/h"):
        assert words in done.out


@pytest.mark.slow
def test_the_page_of_a_comparison_lists_the_parts(run, tmp_path):
    page = tmp_path / "page.html"
    place = ("--on", "trn1.32xlarge", "--nodes", "8", *RUN, *LAID_OUT, *DAY)
    assert run("compare", "llama2-7b", *place, "--report", page).code == 0
    assert "10B@16384,cp=2,global-batch=256" in page.read_text()
    redacted = tmp_path / "redacted.md"
    assert run("compare", "llama2-7b", *place, "--report", redacted, "--redact-prices").code == 0
    parts = redacted.read_text().partition("## Parts of the run")[2].partition("\n## ")[0]
    assert "days" in parts
    assert "cost" not in parts


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--region", "us-east-1"), "give --tokens or --phase"),
        (("--tokens", "1B", "--memory"), "leave out --plot"),
        (("--tokens", "1B", "--engine", "functional"), "leave out --tokens"),
        (("--tokens", "1B", "--phase", "1B@4k"), "give one of"),
    ],
)
def test_what_does_not_go_together_is_refused(run, args, says):
    done = run("train", "llama2-7b", "--on", "trn1.32xlarge:8", *args)
    assert done.code == 2
    assert says in done.err

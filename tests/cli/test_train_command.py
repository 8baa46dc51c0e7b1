"""`trnbench train`: rows, chosen layouts, both engines, suites, answers of no, malformed input."""

from __future__ import annotations

import json

import pytest

KEYS = {
    *("instance", "nodes", "chips", "chip", "engine", "ranks", "tp", "pp", "dp", "cp", "ep", "vpp"),
    *("micro_batch", "global_batch", "zero", "recompute", "schedule", "precision", "step_time_s"),
    *("sequences_per_s", "tokens_per_s", "mfu", "memory_bytes", "memory_capacity_bytes"),
    *("feasible", "reasons", "evidence", "low_step_time_s", "high_step_time_s", "low_mfu"),
}
SETTLED = (
    *("--dp", 4, "--cp", 1, "--ep", 1, "--vpp", 1, "--micro-batch", 1, "--zero", 1),
    *("--recompute", "selective", "--schedule", "1f1b", "--sequence-parallel"),
)
LLAMA_70B = (
    *("llama3.1-70b", "--on", "trn1.32xlarge:32", "--tp", 32, "--pp", 8),
    *("--global-batch", 1024, "--sequence", 8192),
)
SMALL = ("llama2-7b", "--on", "trn1.32xlarge", "--tp", 8, "--global-batch", 64)


def rows(run, *arguments):
    done = run("train", *arguments, "--json")
    assert done.code == 0, done.err
    return done.json["rows"]


def refused(run, *arguments):
    done = run("train", *arguments, "--json")
    assert done.code == 1, done.err
    (row,) = done.json["rows"]
    assert row["feasible"] is False
    assert row["step_time_s"] is None
    return row


def test_a_settled_layout_is_taken_as_it_is(run):
    (row,) = rows(run, *LLAMA_70B, *SETTLED)
    assert set(row) >= KEYS
    assert (row["tp"], row["pp"], row["dp"], row["zero"]) == (32, 8, 4, 1)
    assert row["chosen"] == []
    defaults = ["optimizer_offload", "attention", "loss", "context_parallel", "stage_split"]
    assert row["defaults"] == [*defaults, "precision"]
    assert row["tokens_per_s"] == pytest.approx(1024 * 8192 / row["step_time_s"])
    assert row["sequences_per_s"] == pytest.approx(1024 / row["step_time_s"])
    assert row["low_step_time_s"] < row["step_time_s"] < row["high_step_time_s"]
    exposed = [value for key, value in row.items() if key.startswith("exposed_")]
    assert sum(exposed) == pytest.approx(row["step_time_s"])
    held = [v for k, v in row.items() if k.startswith("memory_") and k.split("_")[1] in HELD]
    assert sum(held) == pytest.approx(row["memory_bytes"])
    assert row["memory_bytes"] < row["memory_available_bytes"] < row["memory_capacity_bytes"]


HELD = {
    *("weights", "gradients", "optimizer", "activations", "communication", "scratch"),
    *("fragmentation", "runtime"),
}


def test_what_is_open_is_chosen_and_no_slower(run):
    done = run("train", *LLAMA_70B, "--json")
    assert done.code == 0, done.err
    (row,) = done.json["rows"]
    (settled,) = rows(run, *LLAMA_70B, *SETTLED)
    assert (row["tp"], row["pp"], row["cp"] * row["dp"]) == (32, 8, 4)
    assert row["step_time_s"] <= settled["step_time_s"] * (1 + 1e-6)
    assert {"dp", "micro_batch", "recompute"} <= set(row["chosen"])
    assert "tp" not in row["chosen"]
    (chosen,) = done.json["summary"]["chosen"]
    assert chosen["chosen"]["dp"] == row["dp"]
    assert chosen["feasible_layouts"] <= chosen["legal_layouts"]


@pytest.mark.slow
def test_the_same_layout_spelled_out_gives_the_same_row(run):
    (row,) = rows(run, *SMALL)
    options = []
    for name in row["chosen"]:
        option = "--" + name.replace("_", "-")
        if name == "sequence_parallel":
            options.append(option if row[name] else "--no-sequence-parallel")
        else:
            options += [option, row[name]]
    (again,) = rows(run, *SMALL, *options)
    assert again.pop("chosen") == []
    row.pop("chosen")
    assert again == row


def test_several_places_give_a_row_each(run):
    found = rows(run, "llama3.1-8b", "--on", "trn1.32xlarge:4,trn2.48xlarge", "--tp", 8)
    assert [row["instance"] for row in found] == ["trn1.32xlarge", "trn2.48xlarge"]
    done = run("train", "llama3.1-8b", "--on", "trn1.32xlarge:4,trn2.48xlarge", "--tp", 8)
    assert done.out.startswith("llama3.1-8b, 2 cases")


def test_defaults_are_said(run):
    (row,) = rows(run, "llama3.1-8b", "--on", "trn2.48xlarge")
    assert row["precision"] == "bf16-master"
    assert row["global_batch"] == 1024
    assert row["sequence"] == 8192
    assert set(row["defaults"]) >= {"precision", "global_batch", "sequence", "attention"}
    (odd,) = rows(run, "llama2-7b", "--on", "trn1.32xlarge", "--tp", 8, "--micro-batch", 3)
    assert odd["global_batch"] == 1026  # the next above 1024 that 3 divides


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("vit-base", 197), ("bert-large", 512), ("dit-xl-2", 256), ("dlrm", None)],
)
def test_every_family_has_a_sequence_of_its_own(run, model, tokens):
    (row,) = rows(run, model, "--on", "trn1.32xlarge", "--global-batch", 4096)
    assert row["sequence"] == (tokens or 1)
    assert (row["tokens_per_s"] is None) == (tokens is None)


@pytest.mark.slow
def test_both_engines_stand_beside_each_other(run):
    done = run("train", *LLAMA_70B, *SETTLED, "--engine", "both", "--json")
    closed, played = done.json["rows"]
    assert (closed["engine"], played["engine"]) == ("analytic", "emulate")
    assert played["step_time_s"] == pytest.approx(closed["step_time_s"], rel=0.02)
    text = run("train", *LLAMA_70B, *SETTLED, "--engine", "both").out
    assert "difference" in text


@pytest.mark.slow
def test_a_straggler_and_drawn_nodes_change_the_played_step(run):
    base = (*LLAMA_70B, *SETTLED, "--engine", "emulate")
    (even,) = rows(run, *base)
    (late,) = rows(run, *base, "--straggler", "0=1.5")
    assert late["step_time_s"] > 1.1 * even["step_time_s"]
    (drawn,) = rows(run, *base, "--seed", 3)
    (again,) = rows(run, *base, "--seed", 3)
    assert drawn == again
    assert drawn["step_time_s"] != even["step_time_s"]


def test_a_schedule_is_drawn_and_traced(run, tmp_path):
    path = tmp_path / "step.json"
    done = run("train", *LLAMA_70B, *SETTLED, "--plot", "--trace", path)
    assert done.code == 0, done.err
    assert "stage 7" in done.out
    assert f"trace: {path}" in done.err
    assert json.loads(path.read_bytes())["traceEvents"]


def test_what_cannot_run_has_no_trace(run, tmp_path):
    path = tmp_path / "step.json"
    done = run("train", "llama3.1-405b", "--on", "trn1.32xlarge", "--trace", path)
    assert done.code == 1
    assert "no trace: nothing was played" in done.err
    assert not path.exists()


@pytest.mark.parametrize("suite", ["trn1", "trn2", "nxd-examples"])
def test_a_suite_gives_a_row_for_each_case(run, suite):
    found = rows(run, "--suite", suite)
    assert len({row["case"] for row in found}) == len(found)
    assert all(row["chosen"] == [] for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3-8b", "llama3.1-8b"])
def test_the_makers_starting_layout_is_legal_and_among_the_best(run, model):
    """AWS starts with tensor parallelism in a chip and FSDP over the torus."""
    asked = (model, "--on", "trn2.48xlarge:1", "--sequence", 4096, "--global-batch", 64)
    kept = ("--recompute", "selective")
    (best,), (start,) = (
        rows(run, *asked, *kept, *layout) for layout in ((), ("--tp", 4, "--dp", 16, "--zero", 3))
    )
    assert start["feasible"]
    assert start["step_time_s"] <= 1.05 * best["step_time_s"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tp", 3), "tp=3 does not divide 64 heads; try"),
        (("--tp", 64), "no tensor parallelism of 64 ranks; try tp=32, 8, 1"),
        (("--tp", 32, "--pp", 8, "--dp", 3), "try dp=4"),
        (("--tp", 32, "--pp", 8, "--dp", 16), "4096 ranks"),
        ((*("--tp", 32, "--pp", 8, "--dp", 4), "--global-batch", 1022), "try 1020 or 1024"),
        (("--tp", 8, "--cp", 8, "--sequence", 8190, "--no-sequence-parallel"), "does not divide"),
        (("--tp", 8, "--pp", 1, "--dp", 128, "--zero", 0), "x the 15.5 GiB available: "),
        (("--tp", 32, "--pp", 8, "--precision", "mxfp8"), "mxfp8"),
        (("--pp", 100), "80 layers"),
    ],
)
def test_an_answer_of_no_has_reasons(run, arguments, words):
    row = refused(run, "llama3.1-70b", "--on", "trn1.32xlarge:32", *arguments)
    assert any(words in reason for reason in row["reasons"]), row["reasons"]


def test_what_does_not_fit_shows_where_memory_goes(run):
    done = run("train", "llama3.1-405b", "--on", "trn1.32xlarge", "--sequence", 8192)
    assert done.code == 1
    assert " per rank, " in done.out
    assert "this is nearest" in done.out
    assert "activations" in done.out


def test_a_layout_may_leave_ranks_of_one_node_idle(run):
    (row,) = rows(
        run, "tiny-gpt", "--on", "trn1.32xlarge", *("--tp", 1, "--pp", 1, "--dp", 1, "--cp", 1)
    )
    assert row["warnings"][-1] == "31 of 32 ranks stay idle"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("llama3.1-7b", "--on", "trn1.32xlarge"), "did you mean"),
        (("llama2-7b", "--on", "trn1.32large"), "did you mean 'trn1.32xlarge'?"),
        (("llama2-7b",), "--on trn1.32xlarge:32"),
        ((), "--suite NAME"),
        (("llama2-7b", "--suite", "trn1"), "one of the two"),
        (("--suite", "trn1", "--tp", 8), "brings its own places and layouts"),
        (("--suite", "trn11"), "unknown training suite 'trn11'"),
        (("llama2-7b", "--on", "trn1.32xlarge:0"), "nodes must be a number from 1"),
        ((*SMALL, "--pp", 0), "--pp"),
        ((*SMALL, "--sequence", "-1"), "--sequence"),
        ((*SMALL, "--zero", 4), "--zero"),
        ((*SMALL, "--mtp-depths", "-1"), "--mtp-depths must be from 0 to 16, found '-1'"),
        ((*SMALL, "--recompute", "ful"), "did you mean 'full'?"),
        ((*SMALL, "--schedule", "1f1"), "did you mean '1f1b'?"),
        ((*SMALL, "--attention", "flash"), "unknown attention 'flash'"),
        ((*SMALL, "--precision", "bf17"), "unknown precision 'bf17'"),
        ((*SMALL, "--stack", "nxd-trn9"), "did you mean"),
        ((*SMALL, "--lnc", 3), "no logical size 3"),
        ((*SMALL, "--capacity-factor", 1.5), "has no experts"),
        (("mixtral-8x7b", "--on", "trn1.32xlarge", "--capacity-factor", 0), "above 0"),
        (("dlrm", "--on", "trn1.32xlarge", "--sequence", 8), "has no sequence"),
        ((*SMALL, "--plot", "--json"), "--plot draws for people"),
        ((*SMALL, "--seed", 1), "needs --engine emulate"),
        ((*SMALL, "--straggler", "0=2"), "needs --engine emulate"),
        ((*SMALL, "--engine", "emulate", "--seed", "-1"), "not be negative"),
        ((*SMALL, "--engine", "emulate", "--straggler", "0:2"), "write STAGE=FACTOR"),
        ((*SMALL, "--engine", "emulate", "--straggler", "0=0"), "above 0"),
        ((*SMALL, "--engine", "emulate", "--pp", 1, "--straggler", "4=2"), "stage 4"),
        (("--suite", "trn1", "--plot"), "shows one step"),
        ((*SMALL, "--trace", "/no/such/folder/x"), "cannot write"),
    ],
)
def test_malformed_input_says_what_is_wrong(run, arguments, words):
    done = run("train", *arguments)
    assert done.code == (3 if "cannot write" in words else 2), (done.out, done.err)
    assert words in done.err
    assert done.out == ""


def test_formats_agree_and_pipes_stay_plain(run):
    arguments = ("train", *LLAMA_70B, *SETTLED)
    table = run(*arguments).out
    assert table.isascii()
    assert "\x1b" not in table
    (row,) = run(*arguments, "--json").json["rows"]
    assert json.loads(run(*arguments, "--format", "jsonl").out) == row
    heading, values = run(*arguments, "--format", "csv", "--all-columns").out.splitlines()
    assert heading.split(",")[: len(row)] == list(row)
    assert repr(row["step_time_s"]) in values
    verdict, _, table = run(*arguments, "--format", "markdown").out.partition("\n\n")
    assert verdict.startswith("**32 x trn1.32xlarge takes ")
    assert table.startswith("| model |")


def test_a_job_with_adapters_is_timed_and_named(run):
    (row,) = rows(run, *SMALL, "--job", "lora")
    asked = ("job", "adapter_rank", "adapter_on", "frozen_format")
    assert [row[name] for name in asked] == ["lora", 16, "all-linear", "none"]
    (full,) = rows(run, *SMALL, "--job", "finetune")
    assert full["job"] == "finetune"
    assert row["memory_bytes"] < full["memory_bytes"]
    frozen = ("--job", "lora", "--frozen-format", "nf4")
    refused = run("train", *SMALL, *SETTLED, *frozen)
    assert refused.code == 1
    assert "does not run frozen format nf4" in refused.out
    shown = " ".join(run("train", *SMALL, *SETTLED, *frozen, "--assume-supported").out.split())
    assert "job lora, adapter rank 16+, adapters on all-linear+, frozen format nf4" in shown
    assert "a job with adapters needs no gradients of frozen weights" in shown
    assert " job " not in run("train", *SMALL, *SETTLED).out


@pytest.mark.parametrize(
    "options",
    [
        ("--adapter-rank", "8"),
        ("--job", "finetune", "--adapter-on", "attention"),
        ("--frozen-format", "nf4"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "compare", "plan"])
def test_options_of_adapters_without_adapters_are_refused(run, verb, options):
    tokens = () if verb == "train" else ("--tokens", "1B")
    done = run(verb, "llama2-7b", *tokens, "--on", "trn1.32xlarge", *options)
    assert done.code == 2
    assert f"{options[-2]} {options[-1]} is for --job lora" in done.err


def test_a_job_that_a_model_has_no_place_for_is_refused_in_words(run):
    row = refused(run, "dlrm-dcnv2", "--on", "dgx-h100", "--job", "lora")
    assert "adapters are for models of text" in row["reasons"][0]


def test_memory_is_told_slot_by_slot(run):
    asked = ("train", "llama2-7b", "--on", "p5.48xlarge:2", "--tp", "2", "--pp", "4", "--memory")
    done = run(*asked, "--json").json
    rows, summary = done["rows"], done["summary"]
    peaks = [row for row in rows if row["peak"]]
    assert [row["slot"] for row in peaks] == [summary["peak_slot"]]
    assert peaks[0]["memory_bytes"] == pytest.approx(summary["memory_bytes"])
    assert sum(part["bytes"] for part in summary["peak"]) == pytest.approx(summary["memory_bytes"])
    assert {row["phase"] for row in rows} == {"forward", "backward", "optimizer"}
    # Slots follow one another; the optimizer is not one.
    times = [(row["start_s"], row["end_s"]) for row in rows[:-1]]
    assert all(start < end for start, end in times)
    assert [start for start, _ in times] == sorted(start for start, _ in times)
    assert rows[-1]["start_s"] is None
    text = run(*asked).out
    assert "peak memory: " in text
    assert "at the peak" in text


def test_memory_is_told_of_a_layout_that_does_not_fit(run):
    asked = ("train", "llama2-7b", "--on", "p5.48xlarge:1", "--tp", "1", "--pp", "2", "--zero", "0")
    done = run(*asked, "--micro-batch", "8", "--recompute", "none", "--memory", "--json")
    assert done.code == 1
    found = done.json
    assert found["summary"]["reasons"]
    assert found["summary"]["fit_probability"] < 0.5
    assert {row["start_s"] for row in found["rows"]} == {None}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("llama2-7b", "--on", "p5.48xlarge", "--plot"), "--memory"),
        (("llama2-7b", "--on", "p5.48xlarge", "--engine", "functional"), "--memory"),
        (("llama2-7b", "--on", "p5.48xlarge", "--engine", "both"), "one played step"),
        (("--suite", "nxd-examples"), "shows one step"),
    ],
)
def test_memory_is_of_one_step_and_has_no_second_chart(run, more, said):
    done = run("train", *more, "--memory")
    assert done.code == 2
    assert said in done.err


def test_a_stack_of_another_kind_of_chip_is_refused_with_what_to_do(run):
    done = run("train", "llama3.1-8b", "--on", "trn2.48xlarge:1", "--stack", "nemo-hopper")
    assert done.code == 2
    assert "says nothing of trainium2, the chip of trn2.48xlarge" in done.err
    assert "leave --stack out" in done.err

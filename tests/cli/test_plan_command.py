"""`trnbench plan`: the answer first, the front, what binds, and the command that says it again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal

import pytest

DATE = ("--price-date", "2026-11-21")
RUN = (
    *("llama2-7b", "--tokens", "300B", "--tp", 8, "--zero", 1, "--recompute", "selective"),
    *("--global-batch", 256, *DATE),
)
TWO = ("--on", "trn1.32xlarge,trn2.48xlarge", "--max-nodes", 16)


def answer(run, *arguments, code=0):
    done = run("plan", *arguments, "--json")
    assert done.code == code, done.err
    return done.json


def chosen(found):
    (row,) = [row for row in found["rows"] if row["chosen_plan"]]
    return row


@pytest.mark.slow
def test_what_repeats_it_looks_in_the_same_folders(run, tmp_path, monkeypatch):
    asked, listed = tmp_path / "my asked", tmp_path / "listed"
    (asked / "chips").mkdir(parents=True)
    (listed / "chips").mkdir(parents=True)
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", str(listed))
    done = run("plan", *RUN, *TWO, "--deadline", "60d", "--spec-dir", str(asked))
    assert done.out.rstrip().endswith(f"--spec-dir '{asked}' --spec-dir {listed}")


@pytest.mark.slow
def test_the_answer_comes_first(run):
    done = run("plan", *RUN, *TWO, "--deadline", "60d")
    assert done.code == 0
    assert done.out.startswith("Clear winner: ")
    first = done.out.partition("\nplan: ")[2][:200]
    assert " days on " in first
    assert " x trn" in first
    assert "TP 8 x PP " in first
    assert "USD " in first
    assert "Capacity Block" in first
    lines = done.out.splitlines()
    places = [lines.index(title) for title in ("Price", "Availability", "Evidence")]
    assert places == sorted(places)
    assert lines[-2] == "To repeat this"
    more = run("plan", *RUN, *TWO, "--deadline", "60d", "--details").out
    for section in ("What would change it", "Break-even", "Quotas to request", "Searched"):
        assert section in more


@pytest.mark.slow
def test_rows_are_the_front_and_one_is_chosen(run):
    found = answer(run, *RUN, *TWO, "--deadline", "60d")
    rows = found["rows"]
    days = [row["days"] for row in rows]
    assert days == sorted(days)
    # Beside the trade-off stands the best of each instance type.
    best = chosen(found)
    of_its_type = [row["cost_usd"] for row in rows if row["instance"] == best["instance"]]
    assert of_its_type == sorted(of_its_type, reverse=True)
    assert {row["instance"] for row in rows} == set(TWO[1].split(","))
    assert max(days) <= 60
    assert best["mean_cost_usd"] == min(row["mean_cost_usd"] for row in rows)
    assert chosen(answer(run, *RUN, *TWO, "--objective", "time"))["days"] == min(days)


@pytest.mark.slow
def test_configurations_are_counted_and_add_up(run):
    counts = answer(run, *RUN, *TWO)["summary"]["configurations"]
    for one in counts["by_instance"]:
        rejected = one["rejected_by_reason"]
        illegal = sum(n for rule, n in rejected.items() if rule not in ("memory", "collective"))
        assert one["considered"] == one["legal"] + illegal
        assert one["legal"] == one["feasible"] + rejected.get("memory", 0)
    assert counts["legal"] == sum(one["legal"] for one in counts["by_instance"])


@pytest.mark.slow
def test_the_command_gives_the_same_plan(run):
    found = answer(run, *RUN, *TWO, "--headroom", "5%", "--discount", "10%")
    command = shlex.split(found["summary"]["command"])
    assert command[:2] == ["trnbench", "plan"]
    again = answer(run, *command[2:])
    assert again["rows"] == found["rows"]
    assert again["summary"]["command"] == found["summary"]["command"]


@pytest.mark.slow
def test_a_command_of_everything(run):
    asked = (
        *("llama3.1-8b", "--phase", "9B@8192", "--phase", "1B@16384", "--on", "p5.48xlarge"),
        *("--nodes", "2,4", "--global-batch", 256, "--no-sequence-parallel", "--budget", "5M"),
        *("--deadline", "30d", "--objective", "pareto", "--price", "p5.48xlarge=50", *DATE),
        *("--failures-per-node-day", 0.01, "--checkpoint-interval", "30 min"),
        *("--commitment", "share", "--confirm", 1, "--keep-checkpoints", "2@fsx-lustre"),
    )
    found = answer(run, *asked)
    again = answer(run, *shlex.split(found["summary"]["command"])[2:])
    assert again == found


@pytest.mark.slow
def test_sensitivity_and_break_even(run):
    found = answer(run, *RUN, *TWO, "--deadline", "60d")
    plan, summary = chosen(found), found["summary"]
    dearer = next(c for c in summary["sensitivity"] if c["moved"] == "price" and c["factor"] > 1)
    assert dearer["same_plan"]["cost_usd"] == pytest.approx(
        dearer["factor"] * plan["cost_usd"], rel=1e-9
    )
    own, other = summary["break_even"]
    assert own["instance"] == plan["instance"]
    assert own["mfu"] == pytest.approx(plan["mfu"])
    assert own["break_even_mfu"] < own["mfu"]
    # The other one has to be faster than it is predicted to be.
    assert other["against_usd"] == pytest.approx(plan["cost_usd"])
    assert other["break_even_mfu"] > other["mfu"]


@pytest.mark.slow
def test_a_baseline_for_the_break_even(run):
    found = answer(run, *RUN, *TWO, "--baseline", "trn1.32xlarge")
    (row,) = found["summary"]["break_even"]
    assert row["instance"] == "trn2.48xlarge"
    assert "trn1.32xlarge" in row["against"]


def test_quotas_are_in_virtual_processors(run):
    found = answer(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 8, "--purchase", "on-demand")
    (quota,) = found["summary"]["quotas"]
    assert (quota["code"], quota["vcpus"]) == ("L-2C3B7624", 8 * 128)


@pytest.mark.slow
def test_confirmed_in_the_emulator(run):
    found = answer(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 8, "--confirm", 2)
    confirmed = found["summary"]["confirmed"]
    assert len(confirmed) == 2
    for one in confirmed:
        assert one["played_step_time_s"] == pytest.approx(one["step_time_s"], rel=0.05)
    assert confirmed[0]["step_time_s"] == chosen(found)["step_time_s"]
    assert confirmed[0]["step_time_s"] <= confirmed[1]["step_time_s"]


@pytest.mark.parametrize(
    ("limits", "binds"),
    [
        (("--deadline", "1h"), ["deadline of 1 h:", "no more than"]),
        (("--budget", "100"), ["budget of 100 USD"]),
        (("--budget", "100", "--deadline", "1h"), ["deadline of", "no more than", "budget of"]),
    ],
)
def test_what_nothing_keeps_is_answered_with_what_comes_nearest(run, limits, binds):
    found = answer(run, *RUN, *TWO, *limits, code=1)
    summary = found["summary"]
    assert summary["feasible"] is False
    assert len(summary["binding"]) == len(binds)
    for told, wanted in zip(summary["binding"], binds, strict=True):
        assert told.startswith(wanted)
    (near,) = found["rows"]
    assert near["feasible"] is False
    assert near["cost_usd"] is not None
    assert near["reasons"] == summary["binding"]
    assert summary["answer"]


def test_what_binds_is_the_figure_that_was_held_against_the_limit(run):
    limits = ("--budget", "100", "--deadline", "30m", "--confidence", "90%")
    summary = answer(run, *RUN, *TWO, *limits, code=1)["summary"]
    deadline, _, budget = summary["binding"]
    for told, asked in ((deadline, 0.5 / 24), (budget, 100.0)):
        ((number, unit, ratio),) = re.findall(
            r": ([\d.,]+) (days|USD) in 90% of draws on .*, ([\d.,e+]+)x", told
        )
        assert (unit == "USD") == (asked == 100.0)
        held = float(number.replace(",", "")) / asked
        assert float(ratio.replace(",", "")) == pytest.approx(held, rel=0.01)


@pytest.mark.slow
def test_the_fastest_plan_is_not_called_the_cheapest(run):
    found = answer(run, *RUN, *TWO, "--objective", "time")
    fastest, *_, cheapest = found["rows"]
    assert fastest["chosen_plan"]
    assert cheapest["cheapest_probability"] > 0
    named = f" probability: {fastest['nodes']} x {fastest['instance']} takes "
    told = found["summary"]["verdict"]
    assert told.startswith("Fastest with ")
    assert named in told
    assert f"The cheapest, {cheapest['nodes']} x {cheapest['instance']}, takes " in told
    assert found["summary"]["regret_usd"] is None


@pytest.mark.slow
def test_an_interval_across_a_limit_is_a_warning(run):
    row = chosen(answer(run, *RUN, *TWO, "--deadline", "60d"))
    budget = (row["cost_usd"] + row["high_cost_usd"]) / 2
    done = run("plan", *RUN, *TWO, "--deadline", "60d", "--budget", budget)
    assert " may miss the deadline or budget (" in " ".join(done.out.split())
    roomy = run("plan", *RUN, *TWO, "--deadline", "60d", "--budget", "1B")
    assert "budget" not in roomy.out.splitlines()[0]


@pytest.mark.slow
def test_the_nearest_plan_is_the_nearest(run):
    (row,) = answer(run, *RUN, *TWO, "--deadline", "1h", code=1)["rows"]
    (fastest, *_) = answer(run, *RUN, *TWO, "--objective", "pareto")["rows"]
    assert row["days"] == fastest["days"]
    (row,) = answer(run, *RUN, *TWO, "--budget", "100", code=1)["rows"]
    cheapest = answer(run, *RUN, *TWO, "--objective", "pareto")["rows"][-1]
    assert row["cost_usd"] == cheapest["cost_usd"]


def test_an_option_without_a_price_is_answered_with_one_that_has(run):
    asked = (*RUN, "--on", "trn2.48xlarge", "--max-nodes", 16, "--purchase", "on-demand")
    found = answer(run, *asked, code=1)
    assert "no published price of trn2.48xlarge as on-demand" in found["summary"]["binding"][0]
    (near,) = found["rows"]
    assert near["purchase"] == "capacity-block"


def test_a_region_without_a_price_is_answered_with_one_that_has(run):
    asked = (*RUN, "--on", "trn2.48xlarge", "--max-nodes", 16, "--region", "us-west-2")
    found = answer(run, *asked, code=1)
    assert "no published price" in found["summary"]["binding"][0]
    (near,) = found["rows"]
    assert near["region"] == "us-east-2"


def test_no_price_at_all(run):
    found = answer(run, *RUN, "--on", "trn2-ultraserver", "--nodes", 1, code=1)
    assert "--assume-price" in found["summary"]["binding"][0]
    (near,) = found["rows"]
    assert near["cost_usd"] is None
    assert near["days"] is not None


@pytest.mark.slow
def test_what_has_no_price_is_left_out_and_said(run):
    found = answer(run, *RUN, "--on", "trn1.32xlarge,trn2-ultraserver", "--max-nodes", 16)
    assert "no published price" in found["summary"]["left_out"]["trn2-ultraserver"]


def test_what_does_not_fit(run):
    found = answer(run, "llama3.1-405b", "--tokens", "1T", "--on", "trn1.2xlarge", code=1)
    assert " per rank, " in found["summary"]["binding"][0]


def test_a_deadline_that_nobody_asked_for_is_not_in_the_way(run):
    found = answer(run, "llama2-70b", "--tokens", "50T", "--on", "trn1.32xlarge", "--nodes", 32)
    assert chosen(found)["days"] > 60
    assert "this is the fastest" in found["summary"]["assumed"][0]["why"]


def test_a_small_job_on_one_small_machine(run):
    found = answer(
        run, "bert-large", "--samples", "10M", "--on", "trn1.2xlarge", "--global-batch", 256, *DATE
    )
    row = chosen(found)
    assert row["nodes"] == 1
    assert row["purchase"] == "on-demand"
    assert row["cost_usd"] == pytest.approx(1.34375 * row["billed_hours"])
    assert row["work_s"] == pytest.approx(1e7 / row["sequences_per_s"])


@pytest.mark.slow
def test_within_a_budget_the_fastest(run):
    front = answer(run, *RUN, *TWO, "--objective", "pareto")["rows"]
    budget = front[len(front) // 2]["cost_usd"]
    found = answer(run, *RUN, *TWO, "--budget", budget)
    assert found["summary"]["objective"] == "time"
    assert chosen(found)["days"] == front[len(front) // 2]["days"]


def test_an_interrupt_keeps_what_was_found(run, monkeypatch):
    """Ctrl-C while the second instance type is searched."""
    from trnbench.predict.search.counts import Counts

    whole = Counts.price
    sent = []

    def price(counts, cluster):
        whole(counts, cluster)
        sent.append(len(cluster))
        if len(sent) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Counts, "price", price)
    monkeypatch.setattr("trnbench.cli.watching.processors", lambda: 1)
    done = run("plan", *RUN, *TWO, "--json")
    assert done.code == 130
    assert done.json["rows"]
    assert done.json["summary"]["complete"] is False
    assert done.json["summary"]["not_looked_at"] == ["trn2.48xlarge"]
    assert "interrupted" in done.err


@pytest.mark.slow
def test_the_bill_is_told_term_by_term(run):
    asked = (*RUN, *TWO, "--discount", "10%", "--keep-checkpoints", "3@s3-standard")
    row = chosen(answer(run, *asked))
    out = run("plan", *asked, "--details").out
    bill, _ = [line for line in out.splitlines() if " machines x " in line and " = " in line]
    machines, hours, rate, usd = (
        float(part.replace(",", "").split()[0]) for part in re.split(" x | = ", bill)
    )
    assert machines == row["machines"]
    assert machines * hours * rate == pytest.approx(usd, abs=1)
    assert usd + row["storage_usd"] == pytest.approx(row["cost_usd"], abs=1)
    for words in ("training ", "checkpoints ", "work lost ", "restarts ", "less 10 %", "rate: "):
        assert words in out
    assert "failures per node per day 0.005 (0.0023 to 0.009): assumed" in out


def test_what_never_ends_has_no_plan(run):
    done = run("plan", *RUN, *TWO, "--failures-per-node-day", 1000)
    assert done.code == 1
    assert "the run never ends on " in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--budget", "-5"), "budget must be above 0"),
        (("--budget", "0"), "budget must be above 0"),
        (("--budget", "lots"), "--budget"),
        (("--deadline", "-90d"), "deadline must be above 0"),
        (("--objective", "fun"), "unknown objective"),
        (("--confirm", "-1"), "confirm"),
        (("--plot", "--json"), "--plot"),
    ],
)
def test_malformed_input_of_a_plan_is_one_line(run, arguments, told):
    done = run("plan", *RUN, *TWO, *arguments)
    assert done.code == 2
    assert done.out == ""
    assert told in done.err


def test_where_no_layout_was_found_none_is_told(run):
    asked = ("--tokens", "1B", "--max-nodes", "2", "--precision", "fp8")
    done = run("plan", "llama3.1-8b", "--on", "trn1.32xlarge", *asked)
    assert done.code == 1
    assert "None" not in done.out


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_a_schedule_that_the_stack_refuses_is_no_plan_whatever_the_degrees(run, verb):
    asked = ("llama2-7b", "--tokens", "1B", "--on", "p4d.24xlarge", "--nodes", 1, *DATE)
    done = run(verb, *asked, "--schedule", "zb-h1")
    assert done.code == 1
    assert "does not run schedule zb-h1" in " ".join(done.out.split())
    assert run(verb, *asked, "--schedule", "zb-h1", "--assume-supported").code == 0


@pytest.mark.slow
def test_the_pilot_of_a_tie_is_written_as_a_folder(run, tmp_path):
    asked = ("llama3.1-70b", "--tokens", "2T", "--on", "trn2.48xlarge,p5.48xlarge", "--nodes", 64)
    done = run("plan", *asked, "--pilot", tmp_path / "pilot", "--json")
    (best, *_) = done.json["summary"]["pilots"]
    assert best["steps"] == 20
    kept = json.loads((tmp_path / "pilot" / "prediction.json").read_text())
    assert str(best["nodes"]) in json.dumps(kept)
    assert best["layout"]["dp"] < done.json["rows"][0]["dp"] or best["nodes"] < 64
    assert "MAX_STEPS=20\n" in (tmp_path / "pilot" / "values.env").read_text()
    assert (tmp_path / "pilot" / "README.md").exists()
    sure = run("plan", *RUN, "--on", "trn1.32xlarge", "--max-nodes", 4, "--pilot", tmp_path / "no")
    assert "no pilot is written: none is worth its cost" in sure.err
    assert not (tmp_path / "no").exists()
    lost = run("plan", *RUN, *TWO, "--with", "slurm")
    assert lost.code == 2
    assert "--with SCHEDULER needs --launch FOLDER or --pilot FOLDER" in lost.err

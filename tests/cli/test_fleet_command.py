"""`trnbench fleet`: shipped fleets, what is said where there is no plan, and plan for one job."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.sampling import sampled
from trnbench.verbs.fleet.answer import FLEET_KEYS
from trnbench.verbs.fleet.run import fleet
from trnbench.verbs.plan.run import plan

HEAD = """
name = "mine"
title = "Mine"
starts_on = 2027-01-04
horizon = "{horizon}"
price_date = 2026-11-21
on = ["trn1.32xlarge", "trn2.48xlarge"]
max_nodes = 8
"""
JOB = """
[[job]]
name = "{name}"
model = "{model}"
tokens = "{tokens}"
layout = {{ tp = 8, zero = 1, global_batch = 256, recompute = "selective" }}
"""


@pytest.fixture
def write(tmp_path):
    def write(*parts, horizon="90 d"):
        path = tmp_path / "mine.toml"
        path.write_text(HEAD.format(horizon=horizon) + "".join(parts))
        return path

    return write


def job(name="a", model="tinyllama-1.1b", tokens="50B", more=""):
    return JOB.format(name=name, model=model, tokens=tokens) + more


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(("two-jobs", "shared-quota"), ("two-jobs",)))
def test_shipped_fleets_are_listed_checked_and_solved(run, name):
    listed = run("workload", "list", "--json").json["rows"]
    (path,) = [row["path"] for row in listed if row["name"] == name]
    assert run("workload", "validate", path).code == 0
    assert run("workload", "show", name).code == 0
    done = run("fleet", name, "--json")
    assert done.code == 0
    found, summary = done.json["rows"], done.json["summary"]
    assert len(found) >= 2
    assert all(tuple(row) == FLEET_KEYS for row in found)
    assert summary["feasible"]
    assert summary["gap"] is None or summary["gap"] <= 1.01e-3
    assert sum(row["cost_usd"] for row in found) == pytest.approx(summary["cost_usd"])
    assert sum(one["usd"] for one in summary["bill"]) == pytest.approx(summary["cost_usd"])
    assert sum(one["usd"] for one in summary["purchases"]) == pytest.approx(summary["cost_usd"])
    assert run("fleet", name, "--json").out == done.out  # the same bytes again


@pytest.mark.slow
def test_people_see_the_verdict_the_jobs_the_days_and_the_bill(run):
    shown = run("fleet", "shared-quota")
    assert shown.code == 0
    for part in (
        "Every deadline holds with",
        "when",
        "deadline",
        "What to buy when",
        "Bill",
        "How sure",
    ):
        assert part in shown.out
    assert "spot machines are not promised" in " ".join(shown.out.split())


def test_a_fleet_of_no_jobs(run, write):
    done = run("fleet", write(), "--json")
    assert done.code == 0
    assert done.json["rows"] == []
    assert done.json["summary"]["verdict"] == "Nothing to buy: the fleet has no jobs."


@pytest.mark.slow
def test_a_quota_of_nothing_is_named(run, write):
    quotas = "".join(
        f'\n[[quota]]\ninstance = "{name}"\nnodes = 0\n'
        for name in ("trn1.32xlarge", "trn2.48xlarge")
    )
    done = run("fleet", write(job(), quotas), "--json")
    assert done.code == 1
    summary = done.json["summary"]
    assert not summary["feasible"]
    assert "quota of 0 x trn1.32xlarge" in summary["verdict"]
    assert done.json["rows"][0]["instance"] is None


@pytest.mark.slow
def test_one_impossible_job_leaves_the_others_their_plan(run, write):
    parts = job("a"), job("huge", model="llama3.1-405b", tokens="10T")
    done = run("fleet", write(*parts), "--json")
    assert done.code == 1
    rows = {row["name"]: row for row in done.json["rows"]}
    assert rows["huge"]["instance"] is None
    assert rows["a"]["cost_usd"] > 0
    assert done.json["summary"]["verdict"].startswith("No: huge cannot run")
    assert "1 of 2 jobs can be done" in done.json["summary"]["verdict"]


def test_a_job_without_a_price_says_so(run, write):
    done = run("fleet", write(job(more='on = ["trn2-ultraserver"]\n')), "--json")
    assert done.code == 1
    assert "no published price" in done.json["summary"]["verdict"]


def test_a_deadline_nobody_can_keep_is_named(run, write):
    done = run("fleet", write(job(more='within = "1 h"\n'), horizon="60 d"), "--json")
    assert done.code == 1
    assert "deadline of a" in done.json["summary"]["binding"]


@pytest.mark.slow
def test_the_earliest_end_costs_more_and_the_front_has_both(run, write):
    path = write(job())
    text = path.read_text()
    found = {}
    for objective in ("cost", "time", "pareto"):
        path.write_text(text.replace("title =", f'objective = "{objective}"\ntitle ='))
        found[objective] = run("fleet", path, "--json").json["summary"]
    assert found["time"]["finish_days"] < found["cost"]["finish_days"]
    assert found["time"]["cost_usd"] > found["cost"]["cost_usd"]
    front = found["pareto"]["front"]
    assert front[0]["finish_days"] == pytest.approx(found["time"]["finish_days"])
    assert front[-1]["cost_usd"] == pytest.approx(found["cost"]["cost_usd"])


@pytest.mark.slow
def test_spot_on_a_base_is_played_and_not_promised(run, write):
    more = 'purchase = ["spot"]\nspot_shares = [0.5, 1.0]\nnodes = [4]\n'
    spotted = JOB.replace("layout", more + "layout").format(
        name="a", model="llama2-7b", tokens="100B"
    )
    found = run("fleet", write(spotted), "--json").json["summary"]
    (played,) = found["spot"]
    assert played["days"]["low"] < played["days"]["value"] < played["days"]["high"]
    assert played["cost_usd"]["low"] < played["cost_usd"]["high"]
    assert "not promised" in found["notes"][0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\n[[job]]\nname = "a"\nmodel = "tinyllama-1.1b"\n', "expected one of `tokens`"),
        (job() + job(), "'a' is given twice"),
        (job(model="tinylama"), "did you mean"),
        ('\n[[month]]\nmonth = "2027-13"\nusd = "1 USD"\n', "is not one such as 2027-01"),
        ("\nunknown = 1\n", "unknown key"),
        (
            job() + '\n[[quota]]\ninstance = "trn1.32xlarge"\nregion = "us-est-1"\nnodes = 1\n',
            "unknown region",
        ),
    ],
)
def test_faults_are_told(run, write, text, says):
    done = run("fleet", write(text))
    assert done.code == 2
    assert says in done.err


@pytest.mark.slow
def test_an_old_rate_is_warned_of(run, write):
    done = run("fleet", write(job()), "--max-price-age", "100d", "--json")
    assert "days before" in done.json["summary"]["warnings"][0]
    assert run("fleet", write(job()), "--json").json["summary"]["warnings"] == []


def test_what_to_buy_names_the_blocks(run, write):
    (bought,) = run("fleet", write(job()), "--json").json["summary"]["purchases"]
    assert bought["purchase"] == "capacity-block"
    assert " days, blocks of " in bought["what"]


def test_a_block_on_offer_is_bought_whole_for_all_who_run_in_it(run, write):
    only = 'purchase = ["capacity-block"]\nnodes = [4]\non = ["trn1.32xlarge"]\n'
    block = """
[[block]]
instance = "trn1.32xlarge"
region = "us-east-1"
size = 8
days = 14
starts_on = [2027-01-06]
"""
    jobs = [
        JOB.replace("layout", only + "layout").format(name=name, model="tinyllama-1.1b", tokens=n)
        for name, n in (("a", "50B"), ("b", "80B"))
    ]
    done = run("fleet", write(*jobs, block), "--json")
    assert done.code == 0
    (bought,) = done.json["summary"]["purchases"]
    assert bought["usd"] == pytest.approx(8 * 14 * 24 * 9.532)
    assert bought["jobs"] == ["a", "b"]
    assert {row["starts_on"] for row in done.json["rows"]} == {"2027-01-06"}
    costs = [row["cost_usd"] for row in done.json["rows"]]
    assert sum(costs) == pytest.approx(bought["usd"])
    # A block that is too short for either is of no use.
    short = write(*jobs, block.replace("days = 14", "days = 1"))
    assert run("fleet", short).code == 1


@pytest.mark.slow
def test_when_time_runs_out_the_plan_made_job_by_job_stands_in(run, write):
    quota = '\n[[quota]]\ninstance = "trn1.32xlarge"\nnodes = 2\n'
    jobs = [job(name, tokens="150B") for name in "abcdef"]
    path = write(*jobs, quota, horizon="80 d")
    asked = ("fleet", path, "--time-limit", "1 us", "--no-limit-costs")
    done = run(*asked, "--json")
    assert done.code == 0
    assert done.json["summary"]["found_by"] == "greedy"
    assert done.json["summary"]["stopped"]
    assert "planned job by job" in run(*asked).out


@pytest.mark.slow
def test_a_plan_on_spot_is_played_too(run):
    asked = ("llama2-7b", "--tokens", "10B", "--on", "trn1.32xlarge", "--nodes", 1, "--tp", 8)
    dated = (*asked, "--price-date", "2026-11-21")
    found = run("plan", *dated, "--purchase", "spot", "--json").json["summary"]["spot"]
    assert found["days"]["low"] < found["days"]["high"]
    assert "capacity is not promised" in run("plan", *dated, "--purchase", "spot").out
    assert run("plan", *dated, "--json").json["summary"]["spot"] is None


def test_compare_reads_a_job_of_a_fleet(run):
    done = run("compare", "two-jobs:draft-model", "--json")
    assert done.code == 0
    assert done.json["inputs"]["model"] == "tinyllama-1.1b"
    assert done.json["inputs"]["parts"][0]["tokens"] == 1e11
    assert {row["tp"] for row in done.json["rows"]} == {8}
    assert run("compare", "two-jobs:nobody").code == 2
    assert run("plan", "two-jobs:").code == 2


def test_a_job_in_shares_of_its_tokens_is_compared_part_by_part(run, write):
    shares = 'phases = ["80%@2k", "20%@8k,global_batch=128"]\n'
    path = write(job(more='on = ["trn1.32xlarge"]\nnodes = [2]\n' + shares))
    done = run("compare", f"{path}:a", "--json")
    assert done.code == 0, done.err
    (row,) = done.json["rows"]
    assert [part["tokens"] for part in row["phases"]] == [40e9, 10e9]
    assert [part["global_batch"] for part in row["phases"]] == [256, 128]


KEPT_SEEDS = (0, 2, 6, 7, 8)
"""Seeds of which the quick suites try a fleet: of these each way to buy is one."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(20), KEPT_SEEDS))
def test_plan_for_one_job_is_a_fleet_of_one_job(write, seed):
    draw = random.Random(seed)
    model, tokens = draw.choice(
        [("llama2-7b", draw.randint(20, 300)), ("tinyllama-1.1b", draw.randint(20, 200))]
    )
    types = draw.sample(["trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "p4d.24xlarge"], 2)
    purchase = draw.choice(
        [["on-demand"], ["capacity-block"], ["reserved"], ["on-demand", "capacity-block"], ["spot"]]
    )
    days = draw.choice([20, 40, 80])
    layout: dict[str, Any] = {
        "tp": 8,
        "pp": 1,
        "zero": 1,
        "global_batch": 256,
        "recompute": "selective",
    }
    asked = plan(
        model,
        tokens=f"{tokens}B",
        on=types,
        max_nodes=8,
        purchase=purchase,
        deadline=f"{days}d",
        price_date="2026-11-21",
        **layout,
    )
    cells = ", ".join(f'{key} = "{value}"' for key, value in layout.items())
    names = ", ".join(f'"{name}"' for name in types)
    bought = ", ".join(f'"{name}"' for name in purchase)
    path = write(
        f'\n[[job]]\nname = "a"\nmodel = "{model}"\ntokens = "{tokens}B"\non = [{names}]\n'
        f'purchase = [{bought}]\nwithin = "{days} d"\nlayout = {{ {cells} }}\n',
        horizon="200 d",
    )
    found = fleet(str(path), limit_costs=False)
    assert (asked.best is not None) == found.feasible
    if asked.best is not None:
        # A plan recommends the lowest mean bill, a fleet the lowest by the estimate.
        least = min(one.cost_usd.value for one in asked.front if one.cost_usd is not None)
        assert found.cost_usd is not None
        assert found.cost_usd.value == pytest.approx(least, rel=1e-3)


def test_an_undecided_job_names_the_pilot_that_compare_names(run, tmp_path):
    rivals = "trn2.48xlarge,p5.48xlarge"
    path = tmp_path / "mine.toml"
    head = HEAD.format(horizon="120 d").replace("max_nodes = 8", "max_nodes = 64")
    head = head.replace('["trn1.32xlarge", "trn2.48xlarge"]', str(rivals.split(",")))
    asked = '[[job]]\nname = "a"\nmodel = "qwen3-8b"\ntokens = "500B"\nwithin = "30 d"\n'
    path.write_text(head.replace("'", '"') + asked)
    summary = run("fleet", path, "--no-limit-costs", "--json").json["summary"]
    best = summary["pilots"][0]
    assert summary["verdict_is"] == "tie"
    assert summary["regret_usd"] - best["regret_after_usd"] > best["cost_usd"]
    assert f"Twenty steps of a on {best['nodes']} x {best['instance']}" in summary["verdict"]
    alone = run(
        *("compare", "qwen3-8b", "--tokens", "500B", "--deadline", "30d", "--on", rivals),
        *("--max-nodes", "64", "--price-date", "2026-11-21", "--json"),
    ).json["summary"]["pilots"][0]
    named = ("instance", "nodes", "purchase", "layout")
    assert [best[key] for key in named] == [alone[key] for key in named]
    assert best["regret_after_usd"] == pytest.approx(alone["regret_after_usd"], rel=0.05)


def test_a_sure_choice_needs_no_pilot(run, write):
    summary = run("fleet", write(job()), "--no-limit-costs", "--json").json["summary"]
    assert (summary["verdict_is"], summary["pilots"]) == ("clear", [])

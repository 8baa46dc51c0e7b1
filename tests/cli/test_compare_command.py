"""`trnbench compare`: rows, footings, prices that are not there, scaling, malformed input."""

from __future__ import annotations

import csv
import io
import re

import pytest

KEYS = {
    *("instance", "nodes", "tp", "pp", "dp", "tokens_per_s", "mfu", "days", "low_days"),
    *("high_days", "cost_usd", "low_cost_usd", "high_cost_usd", "usd_per_million_tokens"),
    *("low_usd_per_million_tokens", "relative_time", "relative_cost", "bottleneck", "basis"),
    *("evidence", "purchase", "region", "price_date", "usd_per_hour", "goodput", "feasible"),
    *("reasons", "notes", "break_even_mfu"),
}
DATE = ("--price-date", "2026-11-21")
RUN = (
    *("llama2-7b", "--tokens", "300B", "--tp", 8, "--zero", 1, "--recompute", "selective"),
    *("--global-batch", 256, *DATE),
)
TWO = ("--on", "trn1.32xlarge,trn2.48xlarge")


def rows(run, *arguments, code=0):
    done = run("compare", *arguments, "--json")
    assert done.code == code, done.err
    assert not done.err
    return done.json["rows"]


@pytest.mark.slow
def test_a_row_a_type_with_time_money_and_what_they_rest_on(run):
    trn1, trn2 = rows(run, *RUN, *TWO, "--nodes", 4)
    assert set(trn1) >= KEYS
    assert (trn1["instance"], trn2["instance"]) == ("trn1.32xlarge", "trn2.48xlarge")
    for row in (trn1, trn2):
        assert row["nodes"] == 4
        assert row["low_days"] < row["days"] < row["high_days"]
        assert row["low_cost_usd"] <= row["cost_usd"] <= row["high_cost_usd"]
        assert row["usd_per_million_tokens"] == pytest.approx(row["cost_usd"] / 3e5)
        assert row["work_s"] == pytest.approx(3e11 / row["tokens_per_s"])
        assert row["goodput"] == pytest.approx(row["work_s"] / row["wall_s"])
        assert row["purchase"] == "capacity-block"
        assert row["cost_usd"] == pytest.approx(
            row["machines"] * row["billed_hours"] * row["usd_per_hour"]
        )
        exposed = {k: v for k, v in row.items() if k.startswith("exposed_")}
        assert exposed[f"exposed_{row['bottleneck'].replace('-', '_')}_s"] == max(exposed.values())
    assert trn1["relative_time"] == trn1["relative_cost"] == 1.0
    assert trn2["relative_time"] == pytest.approx(trn2["days"] / trn1["days"])
    assert trn2["relative_cost"] == pytest.approx(trn2["cost_usd"] / trn1["cost_usd"])
    assert trn2["low_relative_cost"] < trn2["relative_cost"] < trn2["high_relative_cost"]


@pytest.mark.slow
def test_break_even_is_where_the_bills_meet(run):
    _, trn2 = rows(run, *RUN, *TWO, "--nodes", 4, "--purchase", "on-demand", *own("trn2.48xlarge"))
    # By the second, cost is in proportion to 1 / speed, but for the start and the last checkpoint.
    ratio = trn2["break_even_mfu"] / trn2["mfu"]
    assert ratio == pytest.approx(trn2["relative_cost"], rel=0.02)


def own(name, usd=40):
    return ("--price", f"{name}={usd}")


def test_a_deadline_takes_the_fewest_nodes_that_keep_it(run):
    (few,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--deadline", "30d")
    assert few["days"] <= 30
    (half,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", few["nodes"] // 2)
    assert half["days"] > 30
    (same,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", few["nodes"])
    assert same["step_time_s"] == few["step_time_s"]
    assert same["cost_usd"] == few["cost_usd"]


def test_a_deadline_that_nothing_keeps(run):
    (row,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--deadline", "1h", code=1)
    assert row["feasible"] is False
    assert row["days"] is not None
    assert "misses the deadline of 1 h" in row["reasons"][-1]


def test_without_a_footing_a_deadline_is_assumed_and_said(run):
    done = run("compare", *RUN, "--on", "trn1.32xlarge")
    assert done.code == 0
    assert "that finishes in 60 days (default; set --deadline)" in " ".join(done.out.split())


@pytest.mark.slow
def test_the_usual_question_is_answered_and_said(run):
    done = run("compare", "llama2-7b", "--max-nodes", "64", "--tp", "8", "--pp", "1")
    assert done.code == 0
    shown = " ".join(done.out.split())
    assert "Assumed tokens 2T, on trn1.32xlarge, trn1n.32xlarge, trn2.48xlarge," in shown


@pytest.mark.slow
def test_every_terminal_has_room_for_cost_and_days_with_their_ranges(run, monkeypatch):
    where = ("--on", "trn1.32xlarge,trn3-ultraserver-gen2", "--nodes", "1")
    done = run("compare", *RUN, *where, "--price", "trn3-ultraserver-gen2=500")
    heading = next(line for line in done.out.splitlines() if "instance" in line)
    assert re.search(r"instance +nodes +days +cost \(K USD\)", heading)
    blocks = ["Price", "Availability", "Evidence"]
    titles = [line for line in done.out.splitlines() if line in blocks]
    assert titles == blocks


def test_an_instance_that_cannot_run_it_is_not_said_to_have_no_price(run):
    done = run("compare", "llama3.1-405b", "--tokens", "1T", "--on", "trn1.2xlarge", "--nodes", "1")
    assert done.code == 1
    assert "no price" not in done.out
    assert "no published rate" not in done.out


@pytest.mark.slow
def test_a_rate_that_cannot_buy_so_many_machines_is_not_said_to_be_missing(run):
    done = run("compare", "llama2-7b", "--tokens", "1T", "--on", "trn2.48xlarge", "--nodes", 512)
    told = " ".join(done.out.split())
    assert "trn2.48xlarge: 512 machines: Capacity Blocks hold 256 on a day at most; set" in told
    assert "no published rate" not in told


@pytest.mark.slow
def test_equal_cost_is_the_fastest_for_no_more_money(run):
    same = (*own("trn1.32xlarge"), *own("trn2.48xlarge"))
    trn1, trn2 = rows(run, *RUN, *TWO, *same, "--equal-cost", "--nodes", 4)
    assert trn1["nodes"] == 4
    assert trn2["cost_usd"] <= trn1["cost_usd"]
    more = rows(
        run, *RUN, "--on", "trn2.48xlarge", *own("trn2.48xlarge"), "--nodes", 2 * trn2["nodes"]
    )
    assert more[0]["cost_usd"] > trn1["cost_usd"]


@pytest.mark.slow
def test_equal_cost_with_what_has_no_price(run):
    found = rows(run, *RUN, "--on", "trn1.32xlarge,trn2-ultraserver", "--equal-cost")
    assert found[1]["reasons"] == ["no price of trn2-ultraserver, so none that is equal"]


@pytest.mark.slow
def test_no_price_is_null_with_the_way_out(run):
    _, ultra = rows(run, *RUN, "--on", "trn1.32xlarge,u-trn2x64", "--nodes", 4)
    assert ultra["instance"] == "trn2-ultraserver"
    assert ultra["cost_usd"] is None
    assert ultra["relative_cost"] is None
    assert ultra["days"] is not None
    assert ultra["feasible"] is True
    assert any("--price trn2-ultraserver=USD" in note for note in ultra["notes"])


@pytest.mark.slow
def test_an_assumed_price_is_shown_as_assumed(run):
    _, ultra = rows(
        run,
        *RUN,
        *("--on", "trn2.48xlarge,trn2-ultraserver", "--nodes", 4),
        *("--assume-price", "trn2-ultraserver=4x trn2.48xlarge"),
    )
    assert ultra["usd_per_hour"] == pytest.approx(4 * 35.7608)
    assert ultra["price_origin"] == "assumed"


def test_an_option_that_was_asked_for_and_is_not_sold(run):
    _, trn2 = rows(run, *RUN, *TWO, "--nodes", 4, "--purchase", "on-demand")
    assert trn2["cost_usd"] is None
    assert trn2["feasible"] is True


def test_spot_only_on_request(run):
    (spot,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 4, "--purchase", "spot")
    assert spot["purchase"] == "spot"
    (unasked,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 4)
    assert unasked["purchase"] != "spot"


def test_the_price_date_decides(run):
    old = ("llama2-7b", "--tokens", "300B", "--on", "p5.48xlarge", "--nodes", 4, "--tp", 8)
    (before,) = rows(run, *old, "--price-date", "2025-05-01", "--purchase", "on-demand")
    (after,) = rows(run, *old, "--price-date", "2026-11-21", "--purchase", "on-demand")
    assert (before["usd_per_hour"], after["usd_per_hour"]) == (98.32, 55.04)


def test_a_discount_is_off_the_price(run):
    (full,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 4)
    (less,) = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", 4, "--discount", "18%")
    assert less["cost_usd"] == pytest.approx(0.82 * full["cost_usd"])


@pytest.mark.slow
def test_phases_add_up(run):
    place = ("--on", "p5.48xlarge", "--nodes", 4, "--global-batch", 256, *DATE)
    both = rows(run, "llama3.1-8b", "--phase", "9B@8192", "--phase", "1B@131072", *place)[0]
    short = rows(run, "llama3.1-8b", "--phase", "9B@8192", *place)[0]
    long = rows(run, "llama3.1-8b", "--phase", "1B@131072", *place)[0]
    assert both["work_s"] == pytest.approx(short["work_s"] + long["work_s"])
    assert [phase["sequence"] for phase in both["phases"]] == [8192, 131072]
    assert both["tokens"] == 1e10


def test_samples_of_a_recommender(run):
    (row,) = rows(run, "dlrm-dcnv2", "--samples", "1B", "--on", "p5.48xlarge", "--nodes", 1, *DATE)
    assert row["tokens"] is row["usd_per_million_tokens"] is None
    assert row["work_s"] == pytest.approx(1e9 / row["sequences_per_s"])


def test_a_model_that_does_not_fit(run):
    (row,) = rows(
        run, "llama3.1-405b", "--tokens", "1T", "--on", "trn1.32xlarge", "--nodes", 1, code=1
    )
    assert row["feasible"] is False
    assert row["cost_usd"] is row["days"] is None
    assert " per rank, " in row["reasons"][0]


def test_machines_without_a_network_stay_alone(run):
    (row,) = rows(
        run, "bert-large", "--samples", "1M", "--on", "trn1.2xlarge", "--nodes", 2, code=1
    )
    assert row["reasons"] == ["trn1.2xlarge has no network that joins instances"]


@pytest.mark.parametrize("verb", ["compare", "plan"])
def test_the_heading_names_a_job_that_is_no_pre_training(run, verb):
    where = ("--on", "p5.48xlarge", "--nodes", "1", "--tp", "8", "--pp", "1")
    how = ("--samples", "50K", "--global-batch", "64", "--micro-batch", "1")
    asked = (verb, "llama2-7b", *where, *how)
    assert "llama2-7b, job lora, 204.8M tokens" in run(*asked, "--job", "lora").out
    assert "llama2-7b, 204.8M tokens" in run(*asked).out


def test_memory_is_left_free(run):
    place = ("--on", "p4d.24xlarge", "--nodes", 2)
    full = rows(run, "llama2-7b", "--tokens", "300B", *place)[0]
    less = rows(run, "llama2-7b", "--tokens", "300B", *place, "--headroom", "60%")[0]
    assert less["memory_bytes"] <= 0.4 * less["memory_available_bytes"] < full["memory_bytes"]
    assert less["step_time_s"] > full["step_time_s"]


@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_scaling_of_a_layout_family(run, scaling):
    found = rows(run, *RUN, "--on", "trn1.32xlarge", "--nodes", "1,2,4", "--scaling", scaling)
    assert [row["nodes"] for row in found] == [1, 2, 4]
    assert len({(row["tp"], row["pp"], row["micro_batch"], row["zero"]) for row in found}) == 1
    running = [row for row in found if row["feasible"]]
    assert running[0]["efficiency"] == 1.0
    for row in running:
        assert row["dp"] == 32 * row["nodes"] // (row["tp"] * row["pp"] * row["cp"])
        assert row["global_batch"] == (256 if scaling == "strong" else 64 * row["nodes"])
        each = row["sequences_per_s"] / row["nodes"]
        first = running[0]["sequences_per_s"] / running[0]["nodes"]
        assert row["efficiency"] == pytest.approx(each / first)


def test_scaling_keeps_more_of_the_speed_if_it_is_weak(run):
    place = (*RUN, "--on", "trn1.32xlarge", "--nodes", "2,16", "--scaling")
    strong, weak = (rows(run, *place, how)[-1]["efficiency"] for how in ("strong", "weak"))
    assert weak >= strong


@pytest.mark.slow
def test_plots_are_for_people(run):
    done = run("compare", *RUN, *TWO, "--nodes", 4, "--plot")
    assert "o trn1.32xlarge" in done.out
    assert "days" in done.out
    done = run("compare", *RUN, *TWO, "--nodes", "2,4", "--scaling", "strong", "--plot")
    assert ". trn1.32xlarge, ideal" in done.out
    assert run("compare", *RUN, *TWO, "--plot", "--json").code == 2


@pytest.mark.slow
def test_csv_has_the_rows_of_json(run):
    done = run("compare", *RUN, *TWO, "--nodes", 4, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(done.out)))
    for cells, row in zip(table, rows(run, *RUN, *TWO, "--nodes", 4), strict=True):
        assert float(cells["cost_usd"]) == row["cost_usd"]
        assert cells["instance"] == row["instance"]


@pytest.mark.slow
def test_the_same_bytes_again(run):
    again = [run("compare", *RUN, *TWO, "--nodes", 4, "--json").out for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.slow
def test_a_run_that_never_ends_is_a_no(run):
    arguments = (*RUN, *TWO, "--nodes", "2", "--failures-per-node-day", "1000")
    for row in rows(run, *arguments, code=1):
        assert row["days"] is None
        assert row["cost_usd"] is None
        assert "the run never ends" in row["reasons"]
    done = run("compare", *arguments)
    assert done.code == 1
    assert "unbounded" in done.out


@pytest.mark.slow
def test_kept_checkpoints_are_billed(run):
    nodes = (*RUN, *TWO, "--nodes", "2")
    for alone, kept in zip(
        rows(run, *nodes), rows(run, *nodes, "--keep-checkpoints", "3@s3-standard"), strict=True
    ):
        # 0.023 USD for a GB in 730 h
        usd = 3 * kept["checkpoint_bytes"] / 1e9 * 0.023 * kept["days"] * 24 / 730
        assert kept["storage_usd"] == pytest.approx(usd)
        assert kept["cost_usd"] == pytest.approx(alone["cost_usd"] + usd)
        assert alone["storage_usd"] == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("llama2-7b", "--tokens", "0", "--on", "trn1.32xlarge"), "tokens must be above 0"),
        (
            ("llama2-7b", "--tokens", "1T", "--on", "trn1.32xlarge:4", "--nodes", "4"),
            "leave out --nodes",
        ),
        (("llama2-7b", "--tokens", "1T", "--on", "trn1.32xlarg"), "did you mean"),
        (("llama2-8b", "--tokens", "1T", "--on", "trn1.32xlarge"), "did you mean"),
        ((*RUN, *TWO, "--nodes", "0"), "nodes must be from 1"),
        ((*RUN, *TWO, "--nodes", "4,4"), "named twice"),
        ((*RUN, *TWO, "--nodes", "four"), "not a whole number"),
        ((*RUN, *TWO, "--deadline", "0d"), "deadline must be above 0"),
        ((*RUN, *TWO, "--deadline", "soon"), "--deadline"),
        ((*RUN, *TWO, "--region", "us-east-9"), "unknown region"),
        ((*RUN, *TWO, "--price-date", "yesterday"), "--price-date"),
        ((*RUN, *TWO, "--discount", "100%"), "discount"),
        ((*RUN, *TWO, "--purchase", "barter"), "unknown purchase option"),
        ((*RUN, *TWO, "--price", "trn1.32xlarge=-3"), "above 0"),
        ((*RUN, *TWO, "--commitment", "half"), "unknown commitment"),
        ((*RUN, *TWO, "--baseline", "p5.48xlarge"), "not among"),
        ((*RUN, *TWO, "--headroom", "1.5"), "headroom"),
        ((*RUN, *TWO, "--scaling", "sideways"), "unknown scaling"),
        ((*RUN, *TWO, "--scaling", "weak", "--equal-cost"), "scaling"),
        ((*RUN, *TWO, "--equal-cost", "--nodes", "2,4"), "one number"),
        ((*RUN, *TWO, "--samples", "5"), "give one of"),
        ((*RUN, *TWO, "--failures-per-node-day", "-1"), "is not a failure rate"),
        (("llama2-7b", "--phase", "1T", *TWO), "TOKENS@SEQUENCE"),
        (("llama2-7b", "--phase", "1T@0", *TWO), "--phase must be from 1"),
        ((*RUN, *TWO, "--price", "p5.48xlarge=3"), "not among --on"),
        ((*RUN, *TWO, "--assume-price", "p5.48xlarge=3x trn1.32xlarge"), "not among --on"),
        ((*RUN, *TWO, "--purchase", "spot,spot"), "named twice"),
        ((*RUN, *TWO, "--keep-checkpoints", "3@attic"), "unknown store"),
        ((*RUN, *TWO, "--nodes", "2147483646"), "can be laid out"),
        (("llama2-7b", "--samples", "5", *TWO), "less than one step"),
        (("dlrm-dcnv2", "--tokens", "1T", *TWO), "samples"),
    ],
)
def test_malformed_input_is_one_clear_line(run, arguments, told):
    done = run("compare", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert told in done.err
    assert done.err.startswith("trnbench: error: ")


@pytest.mark.slow
def test_each_row_has_its_share_of_the_draws(run):
    done = run("compare", *RUN, "--on", "trn1.32xlarge,trn2.48xlarge,trn2-ultraserver", "--json")
    found, summary = done.json["rows"], done.json["summary"]
    shares = [row["cheapest_probability"] for row in found]
    assert sum(shares) == pytest.approx(1)
    assert [row["cost_usd"] is None for row in found] == [False, False, True]
    assert shares[2] == 0
    assert all(0 < row["fit_probability"] <= 1 for row in found)
    assert summary["verdict_is"] == ("clear" if max(shares) >= 0.8 else "tie")
    assert (summary["draws"], summary["seed"]) == (2048, 0)
    means = [row["mean_cost_usd"] for row in found[:2]]
    assert summary["recommended"] == found[means.index(min(means))]["instance"]
    assert summary["regret_usd"] == min(row["regret_usd"] for row in found[:2])
    assert found[2]["marks"][0] == "offer"
    pilots = summary["pilots"]
    assert all(one["regret_after_usd"] + one["cost_usd"] < summary["regret_usd"] for one in pilots)


@pytest.mark.slow
def test_a_no_is_as_complete_as_a_yes(run):
    done = run("compare", *RUN, *TWO, "--deadline", "1h", "--json")
    assert done.code == 1
    assert done.json["summary"]["verdict"].startswith("No: the deadline of 1 h cannot be met. ")
    assert sum(row["cheapest_probability"] for row in done.json["rows"]) == pytest.approx(1)
    none = run("compare", *RUN, "--on", "trn2-ultraserver", "--nodes", "4", "--json")
    assert none.code == 1
    assert [row["cheapest_probability"] for row in none.json["rows"]] == [0]
    assert none.json["summary"]["verdict_is"] == "none"


@pytest.mark.slow
def test_what_is_late_is_not_the_cheapest_of_what_has_no_price(run):
    asked = (*RUN, "--on", "trn1.32xlarge,trn2-ultraserver", "--nodes", 4)
    both = run("compare", *asked, "--json").json
    assert "; no other type has a price." in both["summary"]["verdict"]
    slow, fast = (row["days"] for row in both["rows"])
    done = run("compare", *asked, "--deadline", f"{(slow + fast) / 2}d", "--json")
    assert done.code == 1
    assert [row["feasible"] for row in done.json["rows"]] == [False, True]
    verdict = done.json["summary"]["verdict"]
    assert verdict.startswith("No price is published for trn2-ultraserver. ")
    assert verdict.endswith("Give --price trn2-ultraserver=USD.")


@pytest.mark.slow
def test_the_only_one_in_time_is_called_so(run):
    both = rows(run, *RUN, *TWO, "--nodes", 4)
    middle = sum(row["days"] for row in both) / 2
    done = run("compare", *RUN, *TWO, "--nodes", 4, "--deadline", f"{middle}d", "--json")
    assert done.code == 0
    assert "; no other type finishes in time." in done.json["summary"]["verdict"]


@pytest.mark.slow
def test_more_confidence_takes_more_machines(run):
    def nodes(*more):
        return [row["nodes"] for row in rows(run, *RUN, *TWO, "--deadline", "60d", *more)]

    sure, unsure = nodes("--confidence", "99%"), nodes()
    assert all(one >= other for one, other in zip(sure, unsure, strict=True))
    assert sure != unsure


def test_a_confidence_without_a_deadline_is_refused(run):
    done = run("compare", *RUN, *TWO, "--nodes", "4", "--confidence", "90%")
    assert done.code == 2
    assert "--confidence keeps a deadline, and there is none: give --deadline" in done.err


@pytest.mark.slow
def test_a_confidence_is_said_as_it_was_given(run):
    done = run("compare", *RUN, *TWO, "--deadline", "1h", "--confidence", "97.5%")
    assert "that finishes in 1 h with 97.5% confidence" in " ".join(done.out.split())
    assert "in 1 h with 97.5% confidence" in " ".join(done.out.split())
    assert "cannot be met with 97.5 % confidence. " in " ".join(done.out.split())


@pytest.mark.parametrize("share", ["49%", "99.5%", "0", "2"])
def test_a_confidence_beyond_the_draws_is_refused(run, share):
    done = run("compare", *RUN, *TWO, "--confidence", share)
    assert done.code == 2
    assert "--confidence must be from 50% to 99%, found " in done.err


def test_a_row_says_how_likely_it_is_on_time_and_what_it_costs_on_average(run):
    asked = ("llama2-7b", "--tokens", "300B", "--on", "trn2.48xlarge", "--nodes", 1, "--json")

    def row(deadline):
        (found,) = run("compare", *asked, "--deadline", deadline).json["rows"]
        return found

    sure, tight = row("300d"), row("31d")
    assert sure["on_time_probability"] == 1
    assert 0 < tight["on_time_probability"] < 1
    assert sure["low_cost_usd"] < sure["mean_cost_usd"] < sure["high_cost_usd"]
    # About half of the draws are past the estimate.
    estimate = row(f"{sure['days']}d")
    assert 0.3 < estimate["on_time_probability"] < 0.7

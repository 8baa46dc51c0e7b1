"""`trnbench prices`: what is shown, what a refresh writes, and what it leaves whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

OWN = "instance,region,purchase,usd_per_hour,date_from,source\n"
RATES = OWN + (
    "trn1.32xlarge,us-east-1,capacity-block,8.5,2026-11-22,quote of 22 November\n"
    "trn2.48xlarge,us-east-2,capacity-block,30,2026-11-22,quote of 22 November\n"
)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(RATES)
    return path


def files(tmp_path):
    """The files of a user, by name, without the lock that stays beside the lists."""
    found = (tmp_path / "data").rglob("*")
    there = (path for path in found if path.is_file() and path.name != ".prices.lock")
    return {path.name: path.read_bytes() for path in there}


@pytest.mark.slow
def test_show_lists_rates_by_day_with_verdicts_and_draws_them(run):
    shown = run("prices", "show", "trn1.32xlarge")
    assert shown.code == 0
    assert "capacity-block" in shown.out
    assert "day on which it was read" in shown.out
    found = run("prices", "show", "trn1.32xlarge", "--since", "2026-10-01", "--json").json
    assert found["schema"] == "trnbench.prices-show/1"
    assert min(row["date_to"] for row in found["rows"]) >= "2026-10-01"
    assert {one["claim"] for one in found["summary"]["verdicts"]} == {"trn1-cost"}
    verdicts = [
        row["verdicts"] for row in run("prices", "show", "trn1.32xlarge", "--json").json["rows"]
    ]
    assert {"trn1-cost": "does not"} in verdicts


@pytest.mark.slow
def test_show_of_nothing_and_of_nobody(run):
    assert run("prices", "show", "trn1.32xlarge", "--since", "2030-01-01").code == 1
    nobody = run("prices", "show", "trn1.31xlarge")
    assert nobody.code == 2
    assert "did you mean" in nobody.err


def test_a_dry_run_writes_nothing(run, own, tmp_path):
    done = run("prices", "refresh", "--source", own, "--dry-run", "--json")
    assert done.code == 0
    assert [row["change"] for row in done.json["rows"]] == ["changed", "changed"]
    assert done.json["summary"]["written"] == 0
    assert files(tmp_path) == {}


@pytest.mark.slow
def test_refreshed_rates_are_shown_and_planned_with(run, own, tmp_path):
    assert run("prices", "refresh", "--source", own).code == 0
    assert set(files(tmp_path)) == {"trn1.32xlarge.toml", "trn2.48xlarge.toml"}
    rows = run("prices", "show", "trn1.32xlarge", "--json").json["rows"]
    assert rows[-1]["usd_per_hour"] == 8.5
    assert rows[-1]["source"] == "quote of 22 November"
    assert len(rows) > 1  # shipped ones are still there
    asked = ("llama2-7b", "--tokens", "10B", "--on", "trn1.32xlarge", "--nodes", 1, "--tp", 8)
    priced = run("plan", *asked, "--price-date", "2026-11-22", "--json").json["rows"][0]
    assert (priced["usd_per_hour"], priced["price_date"]) == (8.5, "2026-11-22")
    before = run("plan", *asked, "--price-date", "2026-11-21", "--json").json["rows"][0]
    assert before["usd_per_hour"] == 9.532
    assert run("spec", "validate", tmp_path / "data").code == 0


def test_a_rate_that_is_too_old_is_warned_of(run, monkeypatch):
    asked = ("llama2-7b", "--tokens", "10B", "--on", "trn1.32xlarge", "--nodes", 1, "--tp", 8)
    dated = (*asked, "--price-date", "2026-11-21", "--json")

    def warnings(*more):
        (row,) = run("compare", *dated, *more).json["rows"]
        return [one for one in row["warnings"] if "support ended" not in one]

    assert warnings("--max-price-age", "200d") == []
    assert "read on 2026-07-22, 122 days before" in warnings("--max-price-age", "100d")[0]
    monkeypatch.setenv("TRNBENCH_PRICES_MAX_AGE", "100d")
    assert "122 days" in warnings()[0]


def test_the_same_again_changes_no_byte(run, own, tmp_path):
    run("prices", "refresh", "--source", own)
    first = files(tmp_path)
    again = run("prices", "refresh", "--source", own, "--json")
    assert {row["change"] for row in again.json["rows"]} == {"known"}
    assert files(tmp_path) == first


def test_a_list_of_ones_own_that_cannot_grow_is_left_alone(run, own, tmp_path):
    path = tmp_path / "data" / "trnbench" / "prices" / "trn1.32xlarge.toml"
    path.parent.mkdir(parents=True)
    text = (
        'name = "trn1.32xlarge"\ntitle = "t"\nkind = "vendor"\nprice = [\n{ region = "us-east-1", '
        'option = "on-demand", usd_per_hour = "1 USD/h", date_from = 2026-01-01, '
        'date_to = 2026-01-01, source = "s" }]\n[sources]\ns = { title = "s", date = 2026-01-01 }\n'
    )
    path.write_text(text)
    done = run("prices", "refresh", "--source", own)
    assert done.code == 2
    assert "[[price]]" in done.err
    assert files(tmp_path) == {path.name: text.encode()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "from where?"),
        (("--source", "/no/such/file"), "no such file"),
        (("--source", "{own}", "--region", "us-east-1"), "--source aws"),
    ],
)
def test_faults_are_told_in_one_line(run, own, arguments, says):
    done = run("prices", "refresh", *(text.format(own=own) for text in arguments))
    assert done.code == 2
    assert says in done.err


def test_without_boto3_the_way_to_install_it_is_told(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    done = run("prices", "refresh", "--source", "aws")
    assert done.code == 3
    assert "pip install 'trnbench[aws]'" in done.err


def test_the_policy_only_looks(run):
    done = run("prices", "refresh", "--policy")
    assert done.code == 0
    actions = done.json["Statement"][0]["Action"]
    assert all(action.split(":")[1].startswith(("Get", "Describe", "Search")) for action in actions)


def test_the_policy_is_a_table_where_one_is_asked_for(run):
    done = run("prices", "refresh", "--policy", "--format", "csv")
    lines = done.out.splitlines()
    assert lines[0] == "service,action"
    assert "pricing,pricing:GetProducts" in lines
    assert (
        "| ec2 | ec2:DescribeSpotPriceHistory |"
        in run("prices", "refresh", "--policy", "--format", "markdown").out
    )


def test_what_could_not_be_read_again_is_not_written(run, own, tmp_path):
    prices = {"us\u200eeast": {"linux": {"ondemand": "21.5"}}}
    path = tmp_path / "instances.json"
    path.write_text(json.dumps([{"instance_type": "trn1.32xlarge", "pricing": prices}]))
    done = run("prices", "refresh", "--source", path)
    assert done.code == 2
    assert f"{path}: makes a list that trn1.32xlarge.toml cannot be: " in done.err
    assert "U+200E" in done.err
    assert files(tmp_path) == {}
    assert run("prices", "refresh", "--source", own).code == 0


def test_rates_that_others_added_meanwhile_stay(run, own, tmp_path):
    from trnbench.verbs.prices import run as prices

    first = prices.refresh_prices(str(own))
    own.write_text(RATES.replace("8.5", "8.25").replace("30", "29"))
    second = prices.refresh_prices(str(own))
    # Both were read before either was written.
    prices.write_rates(first, str(own))
    done = prices.write_rates(second, str(own))
    assert {one.change for one in done.rates} == {"changed"}
    text = files(tmp_path)["trn1.32xlarge.toml"].decode()
    assert "8.5 USD/h" in text
    assert "8.25 USD/h" in text


@pytest.mark.slow
def test_eight_refreshes_at_once_keep_all_rates(run, tmp_path):
    sources = []
    for n in range(8):
        sources.append(tmp_path / f"{n}.csv")
        sources[n].write_text(f"{OWN}trn1.32xlarge,us-east-1,on-demand,2{n}.5,2026-11-1{n},mine\n")
    command = [sys.executable, "-m", "trnbench", "prices", "refresh", "--quiet", "--source"]
    running = [subprocess.Popen([*command, str(one)], stdout=subprocess.DEVNULL) for one in sources]
    assert [one.wait() for one in running] == [0] * 8
    rows = run("prices", "show", "trn1.32xlarge", "--json").json["rows"]
    assert {row["usd_per_hour"] for row in rows} >= {20.5 + n for n in range(8)}


KILLED = """
import os, signal, sys
from trnbench.cli import output
at = int(sys.argv.pop(1))
calls = 0
def ending(real):
    def called(*given, **named):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)
    return called
output.os.fsync = ending(output.os.fsync)
output.Path.replace = ending(output.Path.replace)
from trnbench.__main__ import run
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_refresh_that_is_killed_leaves_every_list_whole(run, own, tmp_path, at):
    run("prices", "refresh", "--source", own)
    before = files(tmp_path)
    own.write_text(RATES.replace("8.5", "8.25").replace("30", "29"))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(at), "prices", "refresh", "--source", str(own)],
        env=os.environ,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL
    after = {name: text for name, text in files(tmp_path).items() if name.endswith(".toml")}
    assert after.keys() == before.keys()
    for name, text in before.items():
        # Old as it was, or whole with the new rates behind the old text.
        assert after[name] == text or after[name].startswith(text.rstrip(b"\n"))
    assert run("spec", "validate", tmp_path / "data").code == 0
    assert run("prices", "refresh", "--source", own).code == 0
    rows = run("prices", "show", "trn1.32xlarge", "--json").json["rows"]
    assert {row["usd_per_hour"] for row in rows} >= {8.5, 8.25}

"""`trnbench collective`: sweeps, checks, link loads, faults, neighbours and refusals."""

from __future__ import annotations

import json

import pytest

KEYS = {
    *("op", "instance", "nodes", "ranks", "size_bytes", "elements", "dtype", "engine", "time_s"),
    *("algbw_bytes_per_s", "busbw_bytes_per_s", "algorithm", "check", "calibration", "evidence"),
    *("feasible", "reasons"),
}
ONE_SIZE = ("--min-size", "64MiB", "--max-size", "64MiB")


def rows(run, *arguments):
    done = run("collective", *arguments, "--json")
    assert done.code == 0, done.err
    return done.json["rows"]


def test_a_sweep_has_the_sizes_and_keys_its_users_expect(run):
    found = rows(run, "all-reduce", "--on", "trn1.32xlarge", "--dtype", "bf16")
    assert [row["size_bytes"] for row in found] == [1024 * 4**i for i in range(11)]
    for row in found:
        assert set(row) >= KEYS
        assert row["elements"] == row["size_bytes"] // 2
        assert row["ranks"] == 32
        assert row["algbw_bytes_per_s"] == pytest.approx(row["size_bytes"] / row["time_s"])
        assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * 2 * 31 / 32)
        assert row["time_s"] >= row["bound_s"]
    times = [row["time_s"] for row in found]
    assert times == sorted(times)


def test_both_engines_agree(run):
    found = rows(run, "all-gather", "--on", "trn2-ultraserver", *ONE_SIZE, "--engine", "both")
    assert [row["engine"] for row in found] == ["analytic", "emulate"]
    assert found[1]["time_s"] == pytest.approx(found[0]["time_s"], rel=0.05)


@pytest.mark.parametrize(
    "op",
    [
        *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"),
        *("permute", "send-receive"),
    ],
)
def test_every_operation_moves_the_right_data(run, op):
    place = ("--on", "p5.48xlarge:2", "--min-size", "16KiB", "--max-size", "16KiB")
    assert rows(run, op, *place, "--check")[0]["check"].startswith("ok")


def test_names_of_other_tools_are_taken(run):
    assert rows(run, "all_reduce", "--on", "p5.48xlarge", *ONE_SIZE)[0]["op"] == "all-reduce"


def test_the_table_says_what_it_counts_and_what_it_rests_on(run):
    done = run("collective", "all-reduce", "--on", "trn2.48xlarge:4", *ONE_SIZE)
    assert done.out.startswith("all-reduce on 4 nodes of trn2.48xlarge: 1 group of 256 ranks")
    for word in ("algbw (GB/s)", "busbw (GB/s)", "algorithm", "67,108,864", "calibration"):
        assert word in done.out


def test_links_are_listed_and_the_torus_is_drawn(run):
    done = run("collective", "all-reduce", "--on", "trn2.48xlarge", *ONE_SIZE, "--links")
    assert "Busiest of" in done.out
    assert "neuronlink-xy: share of the time each link is busy" in done.out
    row = rows(run, "all-reduce", "--on", "trn2.48xlarge", *ONE_SIZE, "--links")[0]
    assert all(0 < link["busy"] <= 1 for link in row["links"])


def test_a_dead_link_costs_time_and_carries_nothing(run):
    arguments = ("all-reduce", "--on", "trn2.48xlarge", *ONE_SIZE, "--links", "--engine", "emulate")
    whole = rows(run, *arguments)[0]
    dead = rows(run, *arguments, "--fail-link", "0-1")[0]
    slow = rows(run, *arguments, "--fail-link", "0-1=50%")[0]
    assert dead["time_s"] > whole["time_s"]
    assert slow["time_s"] >= whole["time_s"]
    assert "c0>c1" in {link["link"] for link in whole["links"]}
    assert not {"c0>c1", "c1>c0"} & {link["link"] for link in dead["links"]}


def test_a_neighbour_on_the_same_links_costs_time(run):
    arguments = ("all-reduce", "--on", "trn2.48xlarge", *ONE_SIZE, "--engine", "emulate")
    row = rows(run, *arguments, "--beside", "all-to-all:256MiB")[0]
    assert row["together_s"] > row["time_s"]


def test_groups_by_size_by_stride_and_by_list(run):
    base = ("all-reduce", "--on", "trn2.48xlarge", *ONE_SIZE)
    assert rows(run, *base, "--groups", "16")[0]["group_size"] == 16
    strided = rows(run, *base, "--groups", "16@4")[0]
    assert (strided["group_size"], strided["ranks"]) == (16, 64)
    listed = rows(run, *base, "--groups", "0-3;4-7")[0]
    assert (listed["group_size"], listed["ranks"]) == (4, 8)
    assert rows(run, *base, "--lnc", "1")[0]["ranks"] == 128


def test_a_trace_holds_every_message(run, tmp_path):
    target = tmp_path / "t.json"
    place = ("--on", "trn1.32xlarge", "--min-size", "1MiB", "--max-size", "1MiB")
    done = run("collective", "all-reduce", *place, "--trace", target)
    assert done.code == 0
    events = [e for e in json.loads(target.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["args"]["bytes"] > 0 for e in events} == {True}


def test_a_plot_over_several_places(run):
    done = run("collective", "all-reduce", "--on", "trn1.32xlarge,p5.48xlarge", "--plot")
    assert "bus bandwidth over size: all-reduce" in done.out
    assert "x p5.48xlarge:1" in done.out


@pytest.mark.slow
def test_a_suite_brings_places_operations_and_sizes(run):
    found = rows(run, "--suite", "trn3")
    assert {row["op"] for row in found} >= {"all-reduce", "all-to-all"}
    assert all(row["instance"].startswith("trn3") for row in found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "trn1.32xlarge", "--groups", "5"), "32 ranks do not divide into groups of 5"),
        (("--on", "trn1.32xlarge:20000"), "a cluster has at most 100000; possible: up to 6250"),
        (("--on", "trn1.2xlarge:2"), "no network adapters"),
        (("--on", "trn2.48xlarge", "--ranks", "1000"), "the cluster has 64"),
        (("--on", "trn2.48xlarge", "--groups", "0-23"), "possible: groups of 1, 4, 16, 32, 64"),
        (("--on", "trn2.48xlarge", "--algorithm", "in-switch"), "in-switch"),
        (
            ("--on", "trn1.32xlarge:4", "--fail-link", "17-net"),
            "chip 16 has no living way to the network; possible: groups inside a node",
        ),
    ],
)
def test_no_is_an_answer_with_what_is_possible(run, arguments, said):
    done = run("collective", "all-reduce", *arguments, *ONE_SIZE)
    assert (done.code, done.err) == (1, "")
    assert said in " ".join(done.out.split())
    row = run("collective", "all-reduce", *arguments, *ONE_SIZE, "--json").json["rows"][0]
    assert (row["feasible"], row["time_s"]) == (False, None)


@pytest.mark.parametrize("op", ["all-reduce", "all-to-all", "broadcast", "send-receive"])
def test_a_rank_by_itself_takes_no_time_and_has_no_bandwidth(run, op):
    options = ("--on", "p5.4xlarge", *ONE_SIZE, "--engine", "both", "--check", "--links")
    assert run("collective", op, *options, "--plot").code == 0
    for row in rows(run, op, *options):
        assert (row["time_s"], row["algbw_bytes_per_s"], row["busbw_bytes_per_s"]) == (
            0,
            None,
            None,
        )


def test_groups_inside_a_node_do_not_need_its_network(run):
    options = ("all-reduce", "--on", "trn1.32xlarge:2", *ONE_SIZE, "--groups", "32")
    sound, cut = rows(run, *options), rows(run, *options, "--fail-link", "17-net")
    assert cut[0]["time_s"] == sound[0]["time_s"]


def test_algorithms_the_table_puts_first_are_named_with_the_reason(run):
    options = ("--on", "p5.48xlarge", "--min-size", "1GiB", "--ranks", "4")
    row = rows(run, "all-reduce", *options)[0]
    assert (row["algorithm"], len(row["passed_over"])) == ("ring", 1)
    assert row["passed_over"][0].startswith("in-switch: ")
    assert "ring, not in-switch: " in run("collective", "all-reduce", *options).out


def test_pairs_take_no_other_algorithm(run):
    options = ("permute", "--on", "trn2.48xlarge", *ONE_SIZE, "--algorithm")
    assert run("collective", *options, "direct").code == 0
    done = run("collective", *options, "ring")
    assert (done.code, "its algorithm is direct" in done.out) == (1, True)


def test_sizes_below_an_element_a_rank_are_refused_alone(run):
    sizes = ("--min-size", "64", "--max-size", "1KiB")
    done = run("collective", "all-gather", "--on", "trn2.48xlarge", *sizes, "--json")
    assert done.code == 1
    assert [row["feasible"] for row in done.json["rows"]] == [False, True, True]
    assert "from 256 bytes" in done.json["rows"][0]["reasons"][0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give an operation"),
        (("all-reduce",), "on which instance?"),
        (("all-redcue", "--on", "p5.48xlarge"), "did you mean 'all-reduce'?"),
        (("all-reduce", "--on", "p5.48xlrge"), "did you mean 'p5.48xlarge'?"),
        (("all-reduce", "--on", "p5.48xlarge:0"), "--on: nodes must be a number"),
        (("all-reduce", "--on", "p5.48xlarge:x"), "--on: nodes must be a number"),
        (("all-reduce", "--on", ","), "an empty name"),
        (("all-reduce", "--on", "p5.48xlarge", "--min-size", "-5"), "must be above 0"),
        (("all-reduce", "--on", "p5.48xlarge", "--min-size", "1 Gb"), "write 'Gbit' or 'GB'"),
        (("all-reduce", "--on", "p5.48xlarge", "--max-size", "1"), "below the smallest"),
        (("all-reduce", "--on", "p5.48xlarge", "--max-size", "1e300"), "out of range"),
        (("all-reduce", "--on", "p5.48xlarge", "--factor", "1"), "above 1"),
        (("all-reduce", "--on", "p5.48xlarge", "--factor", "1.0001"), "raise the factor"),
        (("all-reduce", "--on", "p5.48xlarge", "--factor", "inf"), "is not a count"),
        (("all-reduce", "--on", "p5.48xlarge", "--min-size", "0.5"), "at least 1 byte"),
        (("all-reduce", "--on", "p5.48xlarge", "--ranks", "0"), "--ranks"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0"), "1 rank or more"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "4@0"), "1 rank or more"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "7-0"), "'7-0' is not a range"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0-999999999"), "is not a range"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0-7", "--ranks", "4"), "leave out"),
        (("all-reduce", "--on", "p5.48xlarge", "--algorithm", "ring:tree"), "cannot read"),
        (
            ("all-reduce", "--on", "trn1.32xlarge:6250", "--check", *ONE_SIZE),
            "moves 160,000,000,000 pieces",
        ),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "a"), "--groups: cannot read"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0-3;4"), "same number of ranks"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0,0"), "a rank is in two"),
        (("all-reduce", "--on", "p5.48xlarge", "--groups", "0-99"), "rank"),
        (("all-reduce", "--on", "p5.48xlarge", "--lnc", "2"), "h100 has no logical size 2"),
        (("all-reduce", "--on", "p5.48xlarge", "--dtype", "f32"), "unknown number format"),
        (("all-reduce", "--on", "p5.48xlarge", "--algorithm", "rign"), "did you mean 'ring'?"),
        (("all-reduce", "--on", "p5.48xlarge", "--stack", "nccl"), "unknown calibration"),
        (("all-reduce", "--on", "p5.48xlarge", "--fail-link", "x"), "--fail-link: cannot read"),
        (("all-reduce", "--on", "p5.48xlarge", "--fail-link", "0-1=2"), "0 to 1 of its speed"),
        (("all-reduce", "--on", "trn1.32xlarge", "--fail-link", "0-99"), "99"),
        (("all-reduce", "--on", "p5.48xlarge", "--seed", "1"), "--seed acts on"),
        (("all-reduce", "--on", "p5.48xlarge", "--check", "--seed", "-1"), "not be negative"),
        (("all-reduce", "--on", "p5.48xlarge", "--plot", "--json"), "needs --format table"),
        (("all-reduce", "--on", "p5.48xlarge", "--trace", "x"), "one operation of one size"),
        (("all-reduce", "--on", "p5.48xlarge", "--beside", "all-gather:1MiB"), "--engine emulate"),
        (("--suite", "trn4"), "did you mean 'trn"),
        (("--suite", "trn2", "--on", "p5.48xlarge"), "leave out --on"),
    ],
)
def test_malformed_requests_are_one_line(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("collective", *arguments)
    assert done.code == 2, done.err
    assert said in done.err
    assert done.out == ""
    assert len([line for line in done.err.splitlines() if "hint:" not in line]) == 1

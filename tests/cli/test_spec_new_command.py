"""`trnbench spec new`: one command, one small file, and the other verbs run on it."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import user_folder

NEW = ("spec", "new", "my-h100", "--like", "dgx-h100")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def made(section="instances"):
    return user_folder() / section / "my-h100.toml"


def test_one_command_writes_one_small_file_that_serves(run):
    done = run(*NEW, "--chip", "h200", "--chips", "4", "--network", "8x400Gbit/s")
    assert done.code == 0
    assert f"written: {made()}" in done.out
    assert len(made().read_text().splitlines()) <= 10
    checked = run("spec", "validate", made())
    assert checked.code == 0
    assert "training by training-torchtitan-hopper, from hgx-h200" in checked.out
    shown = run("spec", "show", "my-h100", "--json").json["rows"]
    values = {row["key"]: (row["value"], row["source"]) for row in shown}
    assert values["fabric[1].adapters"] == ("8", "owner")
    assert values["fabric[1].step_latency"] == ("8.5 us", "nccl-tuning, as in dgx-h100")
    assert values["like"][0] == "dgx-h100"


def test_verbs_run_on_it_and_say_what_they_took_over_from_whom(run):
    assert run(*NEW, "--usd-per-hour", "20").code == 0
    words = "not made for my-h100: carried over from dgx-h100 (the same chip"
    step = run("train", "llama2-7b", "--on", "my-h100:2", "--tp", "8", "--json")
    assert step.code == 0
    assert any(words in warning for warning in step.json["rows"][0]["warnings"])
    (row,) = run("collective", "all-reduce", "--on", "my-h100:2", "--json", *SIZE).json["rows"]
    assert any(words in warning for warning in row["warnings"])
    known = run("collective", "all-reduce", "--on", "dgx-h100:2", "--json", *SIZE).json["rows"]
    assert row["time_s"] == known[0]["time_s"]


SIZE = ("--min-size", "1MiB", "--max-size", "1MiB")


def test_an_oversubscribed_network_slows_what_leaves_a_node(run):
    new = ("--network", "8x400Gbit/s", "--oversubscribed", "2:1")
    assert run(*NEW, *new).code == 0
    assert len(made().read_text().splitlines()) <= 10
    assert "2:1 to the spine" in run("spec", "show", "my-h100").out
    assert run("spec", "new", "railed", "--like", "my-h100", "--rail-optimised").code == 0
    times = {}
    for name in ("dgx-h100", "my-h100", "railed"):
        where = ("--on", f"{name}:4", "--min-size", "1GiB", "--max-size", "1GiB")
        hierarchical = ("--algorithm", "hierarchical", "--engine", "both")
        rows = run("collective", "all-reduce", *where, *hierarchical, "--json").json["rows"]
        times[name] = [row["time_s"] for row in rows]
    assert times["my-h100"][0] > 1.3 * times["dgx-h100"][0]
    assert times["railed"] == pytest.approx(times["dgx-h100"])
    for closed, played in times.values():
        assert played == pytest.approx(closed, rel=0.05)


def test_a_rate_is_a_price_of_ones_own_in_every_region_and_without_discount(run):
    assert run(*NEW, "--usd-per-hour", "20").code == 0
    assert 'kind = "assumed"' in made("prices").read_text()
    compared = run(
        *("compare", "llama2-7b", "--tokens", "10B", "--on", "my-h100", "--nodes", "2"),
        *("--discount", "50%", "--json"),
    )
    (row,) = compared.json["rows"]
    assert (row["usd_per_hour"], row["purchase"], row["price_origin"]) == (20, "quote", "own")


def test_the_rate_of_an_owned_machine_is_shown_term_by_term(run):
    done = run(
        *(*NEW, "--capex", "300000", "--years", "4", "--power", "10.2kW"),
        *("--usd-per-kwh", "0.12", "--staff-usd-per-year", "17520", "--json"),
    )
    terms = {row["name"]: row["usd_per_hour"] for row in done.json["rows"]}
    assert terms == pytest.approx({"purchase": 8.561644, "power": 1.224, "staff": 2.0})
    assert done.json["summary"]["usd_per_hour"] == pytest.approx(sum(terms.values()))
    assert 'value = "11.78564' in made("prices").read_text()


def test_a_file_of_ones_choice_serves_with_its_folder(run, tmp_path):
    folder = tmp_path / "specs-of-mine"
    (folder / "instances").mkdir(parents=True)
    target = folder / "instances" / "my-h100.toml"
    done = run(*NEW, "--usd-per-hour", "20", "-o", target)
    assert done.code == 0
    assert done.out.endswith(f"try: trnbench spec show my-h100 --spec-dir {folder}\n")
    assert (folder / "prices" / "my-h100.toml").is_file()
    assert not user_folder().exists()
    assert run("spec", "show", "my-h100", "--spec-dir", folder).code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--like", "dgx-h10"), "unknown instance 'dgx-h10'; did you mean 'dgx-h100'?"),
        (("--network", "8x400"), "'400' has no unit"),
        (("--network", "8x400Gb/s"), "does not say bit or byte"),
        (("--network", "400Gbit/s"), "expected adapters x rate such as 8x400Gbit/s"),
        (("--network", "0x400Gbit/s"), "must be from 1"),
        (("--oversubscribed", "1:2"), "'1:2' is below 1:1"),
        (("--oversubscribed", "2"), "expected a ratio such as 2:1, found '2'"),
        (("--oversubscribed", "2:0"), "expected a ratio such as 2:1"),
        (("--like", "trn1.2xlarge", "--rail-optimised"), "has no network to change"),
        (("--chips", "0"), "must be from 1"),
        (("--chips", "two"), "is not a whole number"),
        (("--like", "trn1.32xlarge", "--chips", "8"), "joins its 16 chips by torus"),
        (("--like", "trn1.2xlarge", "--network", "8x400Gbit/s"), "has no network to change"),
        (("--chip", "trainium1"), "other compute units than the chips of dgx-h100"),
        (("--chip", "h99"), "unknown chip 'h99'"),
        (("--usd-per-hour", "-4"), "must be above 0"),
        (("--usd-per-hour", "4", "--capex", "4"), "give --usd-per-hour, or what it is worked out"),
        (("--capex", "300000"), "--capex needs --years"),
        (("--power", "1kW", "--usd-per-kwh", "0.1"), "--power needs --capex"),
        (("--capex", "3", "--years", "4", "--power", "10", "--usd-per-kwh", "1"), "has no unit"),
        (("--capex", "3", "--years", "0"), "must be above 0"),
        (("-o", "other.toml"), "must be named my-h100.toml"),
        (("--usd-per-hour", "4", "-o", "my-h100.toml"), "found in a folder named instances"),
        (("-o", "my-h100.toml"), "found in a folder named instances"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(run, options, says):
    done = run(*NEW, *options)
    assert done.code == 2
    assert says in done.err.splitlines()[0]
    assert not user_folder().exists()


@pytest.mark.parametrize("name", ["dgx-h100", "u-trn2x64", "h100", "my-h100"])
def test_a_name_that_is_taken_is_refused_and_nothing_overwritten(run, name):
    run(*NEW)
    before = made().read_bytes()
    done = run("spec", "new", name, "--like", "p5.48xlarge")
    assert done.code == 2
    assert f"{name!r} is the name of" in done.err
    assert made().read_bytes() == before


def test_a_file_that_cannot_be_used_says_why(run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nprovider = "own"\nlike = "dgx-h100"\nchips = 6\n'
        'source = "owner"\nkind = "vendor"\n'
        'sources.owner = { title = "Its owner", date = 2026-01-02 }\n'
    )
    done = run("spec", "validate", path)
    assert done.code == 2
    assert "its fabric joins 8 chips, not 6" in done.out
    assert "0 of 1 file good, 1 fault in 1 file" in done.out


def test_a_hyphen_prints_the_files_and_writes_none(run):
    done = run(*NEW, "--usd-per-hour", "20", "-o", "-")
    assert done.code == 0
    assert done.out.startswith("# instances/my-h100.toml")
    assert "# prices/my-h100.toml" in done.out
    assert run("spec", "show", "my-h100").code == 2


def test_a_cluster_with_a_rate_is_not_said_to_be_sold_as_nothing(run):
    assert run(*NEW, "--usd-per-hour", "20").code == 0
    assert "sold as" not in run("spec", "show", "my-h100").out


def test_links_of_another_chip_are_not_kept_in_silence(run):
    done = run("spec", "new", "mine", "--like", "dgx-h100", "--chip", "a100")
    assert done.code == 0
    assert "nvlink keeps 450 GB/s per chip one way, as with h100 in dgx-h100" in done.err
    assert "with a100-80gb it is 300 GB/s in dgx-a100" in done.err
    assert "nvlink" not in run("spec", "new", "other", "--like", "dgx-h100", "--chips", "8").err

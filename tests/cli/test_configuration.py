"""Defaults of the user's: layered, shown with where each was said, written, and refused."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.toml_file import read_toml
from trnbench.verbs.asking.configuration import CURRENT, SETTINGS, configuration, template

QUESTION = ("compare", "llama3.1-8b", "--tokens", "100B", "--nodes", "1", "--json")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A user's config folder and a working folder, nothing in them."""
    token = CURRENT.set(None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    (tmp_path / "config" / "trnbench").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path
    CURRENT.reset(token)


def write(here, text, *, user=False):
    folder = here / "config" / "trnbench" if user else here / "work"
    (folder / "trnbench.toml").write_text(text)


def said(run):
    rows = run("info", "--json").json["summary"]["defaults"]
    return {key: value.partition(" (")[::2] for key, value in rows.items()}


def test_later_places_win_key_by_key(run, here, monkeypatch):
    write(here, 'region = "us-east-1"\nstack = "a"\ndiscount = "5%"\n', user=True)
    write(here, 'region = "us-east-2"\ndiscount = 0.1\n')
    monkeypatch.setenv("TRNBENCH_DISCOUNT", "20%")
    found = said(run)
    assert {key: value for key, (value, _) in found.items()} == {
        "region": "us-east-2",
        "stack": "a",
        "discount": "20%",
        "keep": "0",
    }
    assert found["discount"][1] == "TRNBENCH_DISCOUNT)"
    assert found["region"][1].endswith("work/trnbench.toml)")
    assert found["stack"][1].endswith("config/trnbench/trnbench.toml)")


@pytest.mark.slow
def test_defaults_stand_for_options_and_options_win(run, here):
    write(
        here,
        'region = "us-east-2"\ninstances = ["trn1.32xlarge", "p5.48xlarge"]\n'
        '[prices]\n"p5.48xlarge" = 20\n"p4d.24xlarge" = 9\n',
    )
    rows = run(*QUESTION).json["rows"]
    assert (rows[0]["instance"], rows[0]["region"]) == ("trn1.32xlarge", "us-east-2")
    assert rows[1]["usd_per_hour"] == 20
    (row,) = run(*QUESTION, "--on", "p5.48xlarge", "--price", "p5.48xlarge=30").json["rows"]
    assert row["usd_per_hour"] == 30


def test_a_scenario_of_the_terminal_ui_runs(run, here):
    write(here, 'instances = ["p5.48xlarge"]\n')
    (here / "work" / "s.toml").write_text(
        'model = "llama3.1-8b"\ntokens = "100B"\ninstances = ["trn1.32xlarge"]\nnodes = 4\n'
        'region = "us-east-2"\nprices = ["trn1.32xlarge=7"]\nsequence = 4096\n'
    )
    (row,) = run("compare", "--scenario", "s.toml", "--json").json["rows"]
    assert (row["instance"], row["nodes"], row["usd_per_hour"]) == ("trn1.32xlarge", 4, 7)
    (row,) = run("compare", "--scenario", "s.toml", "--nodes", "2", "--json").json["rows"]
    assert (row["instance"], row["nodes"]) == ("trn1.32xlarge", 2)
    (here / "work" / "s.toml").write_text('modle = "x"\n')
    done = run("compare", "--scenario", "s.toml")
    assert done.code == 2
    assert "modle" in done.err


def test_own_folders_of_specs_stand_beside_the_file(run, here):
    (here / "work" / "mine" / "chips").mkdir(parents=True)
    write(here, 'spec_folders = ["mine"]\ncolours = false\nkeep = true\n')
    folders = run("info", "--json").json["summary"]["folders"]
    assert folders[0]["path"].endswith("work/mine")
    assert configuration().environment["NO_COLOR"] == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('regoin = "x"\n', "regoin: unknown key; did you mean 'region'?"),
        ("region = 3\n", "region: expected a text"),
        ('discount = "much"\n', "discount:"),
        ("keep = 3\n", "keep: expected true or false"),
        ("prices = 3\n", "prices: expected a table of names"),
        ('[prices]\n"x" = -1\n', "prices: x: expected USD"),
        ('spec_folders = ["nowhere"]\n', "is not a folder"),
        ("instances = []\n", "instances: expected a list of names"),
        ("region = \n", "not valid TOML"),
    ],
)
def test_what_means_nothing_is_refused_with_file_and_key(run, here, text, message):
    write(here, text)
    done = run("info")
    assert (done.code, done.out) == (2, "")
    assert "work/trnbench.toml: " in done.err
    assert message in done.err
    assert run("info", "--help").code == 0


def test_a_file_of_defaults_is_written_once(run, here):
    path = here / "config" / "trnbench" / "trnbench.toml"
    assert run("info", "--init").code == 0
    assert path.read_text() == template()
    path.write_text('region = "us-east-2"\n')
    done = run("info", "--init")
    assert done.code == 2
    assert "is there already" in done.err
    assert path.read_text() == 'region = "us-east-2"\n'
    assert run("info", "--init", "--force").code == 0
    assert path.read_text() == template()
    assert run("info", "--force").code == 2


def test_every_line_of_the_template_can_be_said(here):
    (here / "work" / "specs" / "chips").mkdir(parents=True)
    text = "\n".join(line.removeprefix("# ") for line in template().splitlines()[1:])
    write(here, text)
    assert set(read_toml(here / "work" / "trnbench.toml")) == set(SETTINGS)
    assert set(configuration().values) >= {key for key, one in SETTINGS.items() if one.option}

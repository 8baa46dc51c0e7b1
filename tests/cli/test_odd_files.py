"""Files that `validate` calls good are used without a fault; what has a fault is told by key."""

from __future__ import annotations

import pytest

from trnbench.verbs.asking.configuration import CURRENT

STUDY = (
    'name = "s"\ntitle = "t"\nverb = "train"\n'
    '[fixed]\nmodel = "llama2-7b"\non = "trn1.32xlarge:1"\n[axes]\ntp = [8, 16]\n'
)
PRICES = 'name = "trn1.32xlarge"\ntitle = "t"\nkind = "vendor"\nprice = []\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder whose file of defaults is looked for."""
    token = CURRENT.set(None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    CURRENT.reset(token)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[[exclude]]\ntp = { above = 2026-01-01 }\n", "numbers above and below"),
        ("[[exclude]]\ntp = 07:32:00\n", "numbers above and below"),
        ("place = [{ at = 07:32:00 }]\n", "texts, numbers or tables of options"),
        ("nonsense = [1]\n", "axes.nonsense: train has no option 'nonsense'"),
    ],
)
def test_a_study_that_cannot_be_asked_is_not_good(run, tmp_path, more, says):
    path = tmp_path / "studies" / "s.toml"
    path.parent.mkdir()
    path.write_text(STUDY)
    assert run("workload", "validate", path).code == 0
    path.write_text(STUDY + more)
    done = run("workload", "validate", path)
    assert done.code == 2
    assert says in done.out


def test_a_list_without_a_price_is_not_good(run, tmp_path):
    path = tmp_path / "prices" / "trn1.32xlarge.toml"
    path.parent.mkdir()
    path.write_text(PRICES)
    done = run("spec", "validate", path)
    assert done.code == 2
    assert "[[price]]" in done.out
    assert run("spec", "show", "prices/trn1.32xlarge", "--spec-dir", tmp_path).code == 2


def test_a_rate_of_failures_that_nothing_has_is_refused(run):
    asked = ("compare", "llama2-7b", "--on", "trn1.32xlarge", "--nodes", "2", "--tokens", "1B")
    for rate in ("1e-300", "1e12", "1e300"):
        done = run(*asked, "--failures-per-node-day", rate)
        assert done.code == 2
        assert "--failures-per-node-day" in done.err


def test_own_prices_of_the_working_folder_say_where_they_come_from(run, here):
    file = here / "trnbench.toml"
    file.write_text('discount = "50%"\n')
    asked = ("compare", "llama2-7b", "--on", "trn1.32xlarge", "--nodes", "2", "--tokens", "1B")
    said = f"a discount is set by {file}"
    assert said in run(*asked).out
    assert run(*asked, "--json").json["inputs"]["defaults"] == [said]
    assert said not in run(*asked, "--discount", "10%").out


def test_a_loop_of_links_is_not_replaced(run, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    done = run("matrix", "64x64x64", "--on", "trainium1", "-o", one)
    assert done.code == 3
    assert "round in a circle" in done.err
    assert one.is_symlink()


def test_a_folder_that_is_gone_is_named(run, here):
    here.rmdir()
    done = run("matrix", "64x64x64", "--on", "trainium1")
    assert done.code == 3
    assert "the working folder is gone" in done.err

"""What sessions leave and users configure: scenarios as command lines, state, settings."""

from __future__ import annotations

import datetime
from contextvars import ContextVar

import pytest

from trnbench.errors import DataFileError
from trnbench.facts.catalog.search import open_catalog
from trnbench.tui.app import TrnbenchApp
from trnbench.tui.cluster_view import LABEL
from trnbench.tui.questions.scenarios import compare_question
from trnbench.tui.scenario_view import other_fields, scenario_fields, texts_of
from trnbench.tui.settings import SessionState, read_config, read_state, write_state
from trnbench.verbs.asking.command_lines import command_question


def test_a_scenario_has_a_command_line():
    scenario = {
        **{"model": "llama3.1-70b", "tokens": 2e12, "on": ("trn1.32xlarge", "p5.48xlarge")},
        **{"sequence": 4096, "deadline": 60 * 86400.0, "purchase": ("spot",), "discount": 0.18},
        "price_date": datetime.date(2026, 11, 21),
        "assume_price": ("trn2-ultraserver=4xtrn2.48xlarge",),
    }
    assert command_question("compare", compare_question(scenario)).line == (
        "trnbench compare llama3.1-70b --tokens 2T --on trn1.32xlarge,p5.48xlarge "
        "--sequence 4096 --purchase spot --price-date 2026-11-21 --discount 18% "
        "--assume-price trn2-ultraserver=4xtrn2.48xlarge --deadline 60d"
    )
    texts = texts_of(scenario)
    assert texts["tokens"] == "2T"
    assert texts["deadline"] == "60d"
    assert texts["nodes"] == ""


def test_forms_begin_with_the_users_own_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unset = ContextVar("none", default=None)
    monkeypatch.setattr("trnbench.verbs.asking.configuration.CURRENT", unset)
    (tmp_path / "trnbench.toml").write_text(
        'region = "us-east-2"\ndiscount = "18%"\ninstances = ["trn2.48xlarge", "p5.48xlarge"]\n'
        '[prices]\n"trn2.48xlarge" = 30.0\n"dgx-h100" = 20.0\n'
    )
    opened = TrnbenchApp(open_catalog())
    assert opened.scenario == {
        "region": "us-east-2",
        "discount": "18%",
        "instances": "trn2.48xlarge, p5.48xlarge",
        "prices": "trn2.48xlarge=30.0?, dgx-h100=20.0?",
    }
    catalog, today = opened.catalog, datetime.date(2026, 11, 21)
    fields = {one.key: one for one in (*scenario_fields(catalog, today), *other_fields(catalog))}
    assert {spec.group for spec in fields.values() if len(spec.label) > LABEL} == set()
    for key, text in opened.scenario.items():
        assert fields[key].parse(text)
    scenario = {
        **{"model": "llama3.1-70b", "tokens": 2e12, "on": ("trn2.48xlarge", "p5.48xlarge")},
        "price": ("trn2.48xlarge=30.0?", "dgx-h100=20.0?"),
    }
    assert compare_question(scenario).run.bought.prices == ("trn2.48xlarge=30.0",)


def test_state_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / "tui.toml"
    state = SessionState(
        view="matrix", theme="nord", texts={"matrix": {"chips": 'a "quoted" name'}}
    )
    write_state(path, state)
    assert read_state(path) == state


def test_a_state_that_cannot_be_read_is_as_good_as_none(tmp_path):
    path = tmp_path / "tui.toml"
    assert read_state(path) == SessionState()
    path.write_text("view = [", encoding="utf-8")
    assert read_state(path) == SessionState()


def test_a_configuration_names_theme_and_keys(tmp_path):
    path = tmp_path / "tui.toml"
    path.write_text('theme = "nord"\n[keys]\n"table.sort" = "o"\n', encoding="utf-8")
    config = read_config(path, lambda: ["table.sort"])
    assert config.theme == "nord"
    assert config.keys == {"table.sort": "o"}


def test_faults_of_a_configuration_are_told_with_the_nearest_name(tmp_path):
    path = tmp_path / "tui.toml"
    path.write_text('colour = "red"\n[keys]\n"table.srt" = "o"\n', encoding="utf-8")
    with pytest.raises(DataFileError) as caught:
        read_config(path, lambda: ["table.sort"])
    assert [fault.path for fault in caught.value.faults] == ["colour", "keys.table.srt"]
    assert "table.sort" in caught.value.faults[1].message

"""Saved scenarios: a file reads back as the options of `compare` that it was written from."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.errors import DataFileError
from trnbench.tui.questions.scenarios import compare_question
from trnbench.verbs.asking.run_parts import parts_of
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.scenario import (
    KEYS,
    read_scenario,
    scenario_file_options,
    scenario_options,
    scenario_text,
)

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zl", "Zp")),
    min_size=1,
    max_size=12,
)
LISTS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
SCENARIOS = st.fixed_dictionaries(
    {"model": NAMES, "tokens": st.floats(1.0, 1e15), "on": LISTS},
    optional={
        "phase": LISTS,
        "sequence": st.integers(1, 10**6),
        "global_batch": st.integers(1, 10**6),
        "precision": NAMES,
        "nodes": st.integers(1, 10**5).map(lambda count: (count,)),
        "deadline": st.floats(1.0, 1e9),
        "purchase": LISTS,
        "region": NAMES,
        "discount": st.floats(1e-6, 0.99),
        "price_date": st.dates(),
        "price": LISTS,
        "assume_price": LISTS,
        "stack": NAMES,
        "speed": LISTS,
        "mfu": LISTS,
        "migration_cost": LISTS,
        "samples": st.floats(1.0, 1e9),
        "job": NAMES,
        "sequence_parallel": st.booleans(),
        "zero": st.integers(0, 3),
        "supported_only": st.just(True),
        "failures_per_node_day": st.floats(1e-6, 10.0),
    },
)


@pytest.mark.slow
@given(SCENARIOS)
def test_a_scenario_reads_back(tmp_path_factory, scenario):
    path = tmp_path_factory.getbasetemp() / "scenario.toml"
    path.write_text(scenario_text(scenario), encoding="utf-8")
    assert read_scenario(path) == scenario


def test_a_file_by_hand(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'model = "llama3.1-70b"\ntokens = "2T"\ninstances = ["trn1.32xlarge"]\nnodes = 4\n'
        'deadline = "60 d"\ndiscount = "18%"\nprice_date = 2026-11-21\nstack = "nxdt"\n',
        encoding="utf-8",
    )
    assert read_scenario(path) == {
        **{"model": "llama3.1-70b", "tokens": 2e12, "on": ("trn1.32xlarge",), "nodes": (4,)},
        **{"deadline": 60 * 86400.0, "discount": 0.18, "stack": "nxdt"},
        "price_date": datetime.date(2026, 11, 21),
    }
    said = scenario_file_options(path)
    assert (said["deadline"], said["nodes"], said["discount"]) == ("60d", "4", "18%")
    assert CompareQuestion.read(said) == CompareQuestion.read(read_scenario(path))


def test_a_supposition_of_a_file_gives_the_answer_of_the_command_line(tmp_path):
    path = tmp_path / "mine.toml"
    told = {"speed": ["p5.48xlarge=-30%"], "migration_cost": ["trn2.48xlarge=100K"]}
    asked = {"model": "llama2-7b", "tokens": "20B", "on": "trn2.48xlarge,p5.48xlarge", **told}
    path.write_text(scenario_text(asked), encoding="utf-8")
    again = CompareQuestion.read(scenario_file_options(path)).run.what_if
    assert again == CompareQuestion.read(asked).run.what_if
    assert again.speeds == {"p5.48xlarge": 0.7}
    assert again.once_usd == {"trn2.48xlarge": 100e3}


def test_keys_are_fields_but_for_five_that_files_had_since_the_first():
    assert {key for key, one in scenario_options().items() if key != one.name} == {
        *("phases", "instances", "prices", "assumed_prices", "logical_size")
    }
    assert [*scenario_options()][:19] == [*KEYS]


def test_all_faults_are_told_at_once(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('modell = "x"\ntokens = 2\ninstances = []\n', encoding="utf-8")
    with pytest.raises(DataFileError) as caught:
        read_scenario(path)
    told = {fault.path: fault.message for fault in caught.value.faults}
    assert set(told) == {"modell", "model", "tokens"}
    assert "did you mean 'model'" in told["modell"]


def test_parts_of_a_scenario_are_those_of_the_command_line():
    phases = ("90%@8k", "10%@128k,cp=8,global-batch=256")
    asked = {
        **{"model": "llama3.1-8b", "tokens": 2e12, "on": ("p5.48xlarge",), "nodes": (8,)},
        "phase": phases,
    }
    assert 'phases = [\n  "90%@8k"' in scenario_text(asked)
    assert compare_question(asked).run.parts == parts_of("2T", None, phases)

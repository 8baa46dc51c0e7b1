"""Saved scenarios: a file reads back as the scenario it was written from."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.errors import DataFileError
from trnbench.scenario import Scenario, read_scenario, scenario_text

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zl", "Zp")),
    min_size=1,
    max_size=12,
)
SCENARIOS = st.builds(
    Scenario,
    model=NAMES,
    tokens=st.floats(1.0, 1e15),
    instances=st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    phases=st.lists(NAMES, max_size=2).map(tuple),
    sequence=st.none() | st.integers(1, 10**6),
    global_batch=st.none() | st.integers(1, 10**6),
    precision=st.none() | NAMES,
    nodes=st.none() | st.integers(1, 10**5),
    deadline_s=st.none() | st.floats(1.0, 1e9),
    purchase=st.lists(NAMES, max_size=2).map(tuple),
    region=st.none() | NAMES,
    discount=st.just(0.0) | st.floats(1e-6, 0.99),
    price_date=st.none() | st.dates(),
    prices=st.lists(NAMES, max_size=2).map(tuple),
    assumed_prices=st.lists(NAMES, max_size=2).map(tuple),
)


@pytest.mark.slow
@given(SCENARIOS)
def test_a_scenario_reads_back(tmp_path_factory, scenario):
    path = tmp_path_factory.mktemp("scenario") / "scenario.toml"
    path.write_text(scenario_text(scenario), encoding="utf-8")
    assert read_scenario(path) == scenario


def test_a_file_by_hand(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'model = "llama3.1-70b"\ntokens = "2T"\ninstances = ["trn1.32xlarge"]\n'
        'deadline = "60 d"\ndiscount = "18%"\nprice_date = 2026-11-21\n',
        encoding="utf-8",
    )
    assert read_scenario(path) == Scenario(
        model="llama3.1-70b",
        tokens=2e12,
        instances=("trn1.32xlarge",),
        deadline_s=60 * 86400.0,
        discount=0.18,
        price_date=datetime.date(2026, 11, 21),
    )


def test_all_faults_are_told_at_once(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('modell = "x"\ntokens = 2\ninstances = []\n', encoding="utf-8")
    with pytest.raises(DataFileError) as caught:
        read_scenario(path)
    told = {fault.path: fault.message for fault in caught.value.faults}
    assert set(told) == {"modell", "model", "tokens"}
    assert "did you mean 'model'" in told["modell"]


def test_parts_of_a_scenario_are_those_of_the_command_line():
    from trnbench.app.run_parts import parts_of
    from trnbench.scenario import scenario_options
    from trnbench.tui.compare_questions import compare_request

    phases = ("90%@8k", "10%@128k,cp=8,global-batch=256")
    asked = Scenario(
        model="llama3.1-8b", tokens=2e12, instances=("p5.48xlarge",), nodes=8, phases=phases
    )
    assert scenario_options(asked)["phase"] == [*phases]
    assert compare_request(asked).run.parts == parts_of("2T", None, phases)

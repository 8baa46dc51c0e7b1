"""Runs with real numbers as a use case: rows, price, checkpoints, interruptions, refusals."""

from __future__ import annotations

import pytest

from trnbench.engines.execute.checkpoint import checkpoints
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict import setup as predict_setup
from trnbench.show.formats import render
from trnbench.show.text_table import PLAIN
from trnbench.verbs.train.functional import run_functional
from trnbench.verbs.train.functional_text import functional_report
from trnbench.verbs.train.question import FunctionalQuestion

SMALL = PartialLayout(tp=8, sequence=16, global_batch=2, precision="bf16-sr")


@pytest.fixture(scope="module")
def catalog():
    return open_catalog()


@pytest.fixture(scope="module")
def request_():
    return FunctionalQuestion(model="tiny-gpt", place=("trn1.32xlarge", 1), layout=SMALL, steps=4)


@pytest.fixture(scope="module")
def whole(catalog, request_):
    return run_functional(catalog, request_)


def test_a_run_has_a_row_a_step_with_modelled_time_and_cost(whole):
    rows = whole.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["tokens"] for row in rows] == [32, 64, 96, 128]
    assert list(rows[0]) == ["step", "loss", "tokens", "modelled_time_s", "modelled_cost_usd"]
    step_s = whole.answer.step.step_time_s
    assert rows[3]["modelled_time_s"] == pytest.approx(4 * step_s)
    assert whole.usd_per_hour > 0
    expected = 4 * step_s / 3600 * whole.usd_per_hour
    assert rows[3]["modelled_cost_usd"] == pytest.approx(expected)


def test_what_was_measured_agrees_with_what_was_said(whole):
    assert whole.agrees
    assert whole.measured == 4
    assert {stage.role for stage in whole.stages} == {"only"}
    assert {line.axis for line in whole.traffic} == {"tp", "world"}
    assert [line.number_format for line in whole.flop] == ["bf16"]
    assert whole.busiest_link is not None


def test_people_see_curve_and_accounts(whole, request_):
    report = functional_report(whole, request_.inputs())
    text = render(report, "table", PLAIN).decode()
    assert "4 steps" in text
    assert "DIFFERS" not in text
    assert "busiest link" in text
    assert report.summary["final_loss"] == whole.losses[-1]
    unread = replace(whole, reasons=("no such thing",), losses=())
    assert b"no: no such thing" in render(
        functional_report(unread, request_.inputs()), "table", PLAIN
    )


@pytest.mark.slow
def test_a_run_goes_on_from_its_folder(catalog, request_, whole, tmp_path):
    kept = request_.but(steps=4, folder=tmp_path, save_every=1)
    first = run_functional(catalog, kept.but(steps=2, folder=tmp_path))
    assert (first.resumed, first.measured) == (0, 2)
    second = run_functional(catalog, kept)
    assert (second.resumed, second.measured) == (2, 2)
    assert second.losses == whole.losses
    assert second.agrees
    again = run_functional(catalog, kept)
    assert (again.losses, again.measured, again.stages) == (whole.losses, 0, ())
    with pytest.raises(InputError, match="another run"):
        run_functional(catalog, kept.but(seed=1))


def test_a_model_that_changed_under_its_name_is_another_run(
    catalog, request_, tmp_path, monkeypatch
):
    kept = request_.but(steps=1, folder=tmp_path)
    run_functional(catalog, kept)
    model = load_model(catalog, "tiny-gpt")
    assert model.transformer is not None
    assert model.transformer.mlp is not None
    mlp = replace(model.transformer.mlp, activation="silu")
    other = replace(model, transformer=replace(model.transformer, mlp=mlp))
    monkeypatch.setattr(predict_setup, "load_model", lambda *_: other)
    with pytest.raises(InputError, match=r"another run: model tiny-gpt \(.* there, tiny-gpt \("):
        run_functional(catalog, kept)


def test_fewer_steps_than_a_folder_has_are_shown_and_nothing_is_measured(
    catalog, request_, whole, tmp_path
):
    run_functional(catalog, request_.but(steps=4, folder=tmp_path))
    fewer = request_.but(steps=1, folder=tmp_path)
    shown = run_functional(catalog, fewer)
    assert (shown.losses, shown.measured) == (whole.losses[:1], 0)
    drawn = render(functional_report(shown, fewer.inputs()), "table", PLAIN)
    assert b"1 step came from a checkpoint" in drawn


def test_an_interruption_keeps_what_is_done(catalog, request_, whole, tmp_path):
    heard: list[int] = []
    kept = request_.but(steps=4, folder=tmp_path, save_every=100)
    stopped = run_functional(
        catalog,
        kept,
        progress=lambda done, total, what: heard.append(done),
        cancel=lambda: 2 in heard,
    )
    assert stopped.interrupted
    assert stopped.losses == whole.losses[:3]
    assert [path.name for path in checkpoints(tmp_path)] == [
        "step-00000000.npz",
        "step-00000003.npz",
    ]
    assert run_functional(catalog, kept).losses == whole.losses


def test_a_folder_that_cannot_be_written_is_found_out_before_the_first_step(
    catalog, request_, tmp_path
):
    (tmp_path / "file").write_text("")
    heard: list[int] = []
    with pytest.raises(EnvironmentFault, match="cannot write"):
        run_functional(
            catalog,
            request_.but(steps=4, folder=tmp_path / "file"),
            progress=lambda done, total, what: heard.append(done),
        )
    assert not heard


def test_without_a_price_there_is_no_cost(catalog, request_):
    unpriced = run_functional(
        catalog,
        request_.but(place=("trn2-ultraserver", 1), layout=SMALL.changed(tp=4), steps=1),
    )
    assert unpriced.losses
    assert unpriced.usd_per_hour is None
    assert unpriced.rows()[0]["modelled_cost_usd"] is None
    assert unpriced.rows()[0]["modelled_time_s"] is not None


@pytest.mark.parametrize(
    ("model", "layout", "words"),
    [
        ("tiny-gpt", PartialLayout(tp=3), "does not divide"),
        ("tiny-gpt", PartialLayout(dp=64), "ranks"),
        ("bert-large", PartialLayout(sequence=16, global_batch=1), "fills gaps"),
    ],
)
def test_what_cannot_be_trained_is_answered_with_reasons(catalog, request_, model, layout, words):
    answer = run_functional(catalog, request_.but(model=model, layout=layout))
    assert not answer.losses
    assert any(words in reason for reason in answer.reasons), answer.reasons


def test_a_model_that_does_not_fit_into_this_machine_is_refused(catalog, request_):
    large = request_.but(model="llama3.1-8b", layout=PartialLayout(tp=32, precision="bf16"))
    with pytest.raises(EnvironmentFault, match="of memory"):
        run_functional(catalog, large)


def test_runs_that_are_none_are_refused():
    given = FunctionalQuestion(model="tiny-gpt", place=("trn1.32xlarge", 1))
    with pytest.raises(InputError, match="steps"):
        given.but(steps=0)
    with pytest.raises(InputError, match="seed"):
        given.but(seed=-1)
    with pytest.raises(InputError, match="save_every"):
        given.but(save_every=0)

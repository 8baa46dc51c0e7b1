"""Programs that searches one after another share."""

import pytest

from tests.unit.search.test_search import question
from trnbench.predict.search import runs
from trnbench.predict.search.runs import SearchHooks, SharedPrograms
from trnbench.predict.search.search import search
from trnbench.program.step import training_step as lowering


def asked(instance, **more):
    return question("llama2-7b", instance, [1, 2], batch=48, sequence=4096, **more)


def searched(instance, hooks, **more):
    return search(asked(instance, **more), top=5, hooks=hooks, best="of each")


@pytest.fixture
def lowered(monkeypatch):
    """Return the number of programs lowered up to now, as the length of a list."""
    programs = []

    def training_step(*arguments, **options):
        programs.append(lowering(*arguments, **options))
        return programs[-1]

    monkeypatch.setattr(runs, "training_step", training_step)
    return programs


def test_types_with_equal_grids_share_programs_and_answer_as_alone(lowered):
    hooks = SearchHooks(lowered=SharedPrograms())
    searched("trn1.32xlarge", hooks)
    before = len(lowered)
    second = searched("trn1n.32xlarge", hooks)
    assert len(lowered) == before > 0
    alone = searched("trn1n.32xlarge", SearchHooks())
    assert tuple(second.ranked) == tuple(alone.ranked)
    assert second.tally == alone.tally


@pytest.mark.parametrize(
    ("instance", "more"),
    [("p5.48xlarge", {}), ("trn1.32xlarge", {"fixed": {"recompute": "full"}})],
)
def test_another_grid_or_another_knob_has_programs_of_its_own(lowered, instance, more):
    hooks = SearchHooks(lowered=SharedPrograms())
    searched("trn1.32xlarge", hooks)
    before = len(lowered)
    found = searched(instance, hooks, **more)
    assert len(lowered) > before
    assert tuple(found.ranked) == tuple(searched(instance, SearchHooks(), **more).ranked)

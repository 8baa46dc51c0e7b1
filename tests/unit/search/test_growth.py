"""The largest micro-batches that fit, from the straight lines on which tensors grow."""

import gc

import numpy as np
import pytest

from tests.unit.search.test_best import looked_at_one_by_one
from tests.unit.search.test_search import question
from trnbench.engines.analytic.step import memory_growth
from trnbench.engines.analytic.step.memory import JobMemory
from trnbench.engines.analytic.step.memory_growth import LargestMicroBatch, Pipelines, Room
from trnbench.facts.records import replace
from trnbench.predict.search import search as walk
from trnbench.predict.search.legality import families
from trnbench.predict.search.pieces import Piece
from trnbench.predict.search.runs import played
from trnbench.predict.search.search import search
from trnbench.predict.search.space import space_of
from trnbench.program.step import training_step

DENSE = question(
    "llama2-7b", "trn1.32xlarge", [1, 2, 3], batch=96, sequence=4096, assume_supported=True
)
LOST = 0.1


def kinds_of_rows(asked):
    """Yield the memory and the valid rows of every schedule and variant, by number of stages."""
    space = space_of(asked)
    for family in families(space):
        piped = (space.axes["pp"] > 1)[family.legal.index[0]]
        for look in family.looks:
            for variant in look.variants:
                program = training_step(asked.model, space.layout(family.schedule, variant))
                memory = JobMemory.of(played(program, family.schedule), asked.stack.memory)
                for several in (False, True):
                    rows = family.legal.some(piped == several)
                    roles = [s.role for s in program.stages if (s.role != "only") == several]
                    if len(rows):
                        yield memory, rows, roles


def largest(memory, rows, roles, available):
    room = Room(
        pipelines=Pipelines(pick=rows.first.pick), bytes=np.asarray(available), lost=1 + LOST
    )
    return memory.largest_micro_batch(room, roles)


def agreed(asked, scales=(0.3, 1.0, 3.0)):
    """Return how many rows were cut by a formula; each as the memory of every layout tells."""
    cut = 0
    for memory, rows, roles in kinds_of_rows(asked):
        points = rows.points()
        (needed,) = memory.bytes(points, fragmentation_ratios=[LOST], roles=roles)
        number = np.repeat(np.arange(len(rows)), rows.count)
        sizes = memory.program.grid.micro_batch.ravel()
        for available in np.median(needed) * np.array(scales) if memory.grows_evenly else ():
            found = largest(memory, rows, roles, available)
            samples = np.broadcast_to(found.samples, len(rows))
            count = rows.before(np.searchsorted(sizes, samples, "right"))
            fits = np.bincount(number[needed <= available], minlength=len(rows))
            sure = ~np.broadcast_to(found.in_doubt, len(rows))
            assert np.array_equal(count[sure], fits[sure])
            cut += int(((fits > 0) & (fits < rows.count) & sure).sum())
    return cut


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("pp", [None, 2])
def test_a_row_is_cut_where_the_memory_of_each_layout_says(schedule, pp):
    layout = DENSE.layout.changed(schedule=schedule, pp=pp)
    assert agreed(replace(DENSE, layout=layout)) > (50 if pp is None else 5)


@pytest.mark.parametrize("recompute", ["full:2", "attention-core", "full"])
def test_stages_that_repeat_some_layers_are_cut_as_well(recompute):
    assert agreed(replace(DENSE, layout=DENSE.layout.changed(recompute=recompute))) > 50


def test_the_phases_of_a_job_are_cut_by_the_largest():
    asked = question(
        "llama2-7b", "trn2.48xlarge", [2], batch=256, sequence=2048, fixed={"job": "grpo"}
    )
    assert agreed(asked) > 20


@pytest.mark.parametrize("wrong", [0.99, 1.01])
def test_a_wrong_slope_is_noticed(wrong, monkeypatch):
    def steeper(size, sizes):
        found = line(size, sizes)
        return found and (found[0], found[1] * wrong)

    line = memory_growth._line
    monkeypatch.setattr(memory_growth, "_line", steeper)
    with pytest.raises(AssertionError):
        agreed(DENSE)


def test_a_pipeline_of_one_group_keeps_all_samples(monkeypatch):
    asked = replace(DENSE, layout=DENSE.layout.changed(schedule="interleaved", pp=4, vpp=2))
    lines = memory_growth._lines
    monkeypatch.setattr(memory_growth, "_lines", lambda *given: (*lines(*given)[:2], None))
    with pytest.raises(AssertionError):
        agreed(asked, scales=np.linspace(0.2, 3, 20))


def test_a_layout_that_fits_to_the_byte_is_in_doubt():
    memory, rows, roles = next(
        found for found in kinds_of_rows(DENSE) if found[0].program.layout.schedule == "1f1b"
    )
    (needed,) = memory.bytes(rows.last, fragmentation_ratios=[LOST], roles=roles)
    found = largest(memory, rows, roles, float(needed[3]))
    assert np.broadcast_to(found.in_doubt, len(rows))[3]
    assert not np.broadcast_to(found.in_doubt, len(rows)).all()


def test_no_formula_tells_where_tensors_do_not_grow_evenly():
    experts = question("mixtral-8x7b", "trn2.48xlarge", batch=64, fixed={"ep": 8})
    assert not all(memory.grows_evenly for memory, *_ in kinds_of_rows(experts))
    late = replace(DENSE.stack.memory, gradients_made="backward")
    memory, *_ = next(kinds_of_rows(DENSE))
    assert memory.grows_evenly
    assert not JobMemory.of(memory.program, late).grows_evenly


@pytest.mark.parametrize("best", ["of all", "of each"])
@pytest.mark.parametrize("in_doubt", [False, True])
def test_the_best_count_what_fits_as_all_layouts_do(best, in_doubt, monkeypatch):
    monkeypatch.setattr(walk, "LARGE", 0)
    asked = replace(DENSE, nodes=(1, 2))
    if in_doubt:
        doubtful = LargestMicroBatch(samples=np.zeros(()), in_doubt=np.asarray(True))
        monkeypatch.setattr(JobMemory, "largest_micro_batch", lambda *given: doubtful)
    every, some = looked_at_one_by_one(asked, 5), search(asked, top=5, best=best)
    assert tuple(some.ranked) == tuple(every.ranked)
    assert some.tally.feasible == every.tally.feasible
    assert some.tally.rejected_by_reason == every.tally.rejected_by_reason


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b"])
def test_layouts_leave_the_memory_with_their_search(model):
    asked = question(model, "trn2.48xlarge", [1], batch=64, sequence=2048)
    gc.collect()
    gc.disable()
    try:
        search(asked, top=1)
        assert not [one for one in gc.get_objects() if isinstance(one, Piece)]
    finally:
        gc.enable()

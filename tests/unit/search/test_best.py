"""The best layouts without pricing all: the same as those of a search that prices every layout.

`python -m tests.unit.search.test_best FIRST COUNT` tries seeds one by one and names what failed.
"""

import math
import sys
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from tests.sampling import sampled
from tests.unit.search.test_search import question
from trnbench.engines.analytic.step.pipeline import PipelineWork, pipeline_time
from trnbench.errors import TrnbenchError
from trnbench.predict.search import bounds, pricing
from trnbench.predict.search import search as walk
from trnbench.predict.search.bounds import least_waits
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult, Tally
from trnbench.predict.search.search import search
from trnbench.program.slots import SlotTimes
from trnbench.verbs.search_layouts.run import search_layouts

MODELS = (
    *("llama2-7b", "llama3.1-8b", "llama3.1-70b", "llama3.1-405b"),
    *("mixtral-8x7b", "gpt-oss-20b", "deepseek-v3"),
)
INSTANCES = (
    *("trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "p4d.24xlarge"),
    *("p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"),
)
ON_REQUEST = (
    *("recompute", "context_parallel", "stage_split"),
    *("pipeline_layout", "shard", "expert_tp"),
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
QUICK = (20, 34, 35, 36, 40, 44)


def drawn(seed: int) -> tuple[SearchQuestion, int]:
    """Return a question about layouts, and how many of the best it asks for."""
    draw = Random(seed)
    fixed: dict[str, object] = {}
    if draw.random() < 0.35:
        fixed["job"] = draw.choice(["lora", "dpo", "grpo", "finetune", "orpo", "ppo"])
    if draw.random() < 0.35:
        fixed[draw.choice(ON_REQUEST)] = "any"
    if draw.random() < 0.25:
        name, values = draw.choice(
            (
                ("tp", (1, 2, 4, 8)),
                ("pp", (1, 2, 4)),
                ("zero", (0, 1, 2, 3)),
                ("schedule", SCHEDULES),
            )
        )
        fixed[name] = draw.choice(values)
    if draw.random() < 0.1:
        fixed["optimizer_offload"] = "host"
    asked = question(
        draw.choice(MODELS),
        draw.choice(INSTANCES),
        sorted(draw.sample((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64), draw.randint(1, 4))),
        batch=draw.choice((64, 96, 256, 1024, 1920)),
        sequence=draw.choice((2048, 4096, 8192)),
        fixed=fixed,
        headroom=draw.choice((None, None, None, 0.0, 0.1)),
        assume_supported=draw.random() < 0.2,
    )
    return asked, draw.choice((1, 3, 20))


def counted(tally: Tally) -> tuple[int, ...]:
    return tally.considered, tally.legal, tally.feasible, tally.unseen


def clusters(result: SearchResult) -> list[object]:
    return [
        (one.nodes, counted(one.tally), tuple(one.ranked), one.nearest, one.within_rows)
        for one in result.by_nodes.values()
    ]


def looked_at_one_by_one(asked: SearchQuestion, top: int) -> SearchResult:
    """Answer that prices every layout, of which each was asked whether it fits."""
    with patch.object(walk, "LARGE", math.inf):
        return search(asked, top=top)


def agree(seed: int) -> int:
    """Return how many layouts bounds left out; the best are the same ones, to the bit."""
    asked, top = drawn(seed)
    try:
        every = looked_at_one_by_one(asked, top)
    except TrnbenchError:
        return 0
    each = search(asked, top=top, best="of each")
    together = search(asked, top=top, best="of all")
    for found in (each, together):
        assert tuple(found.ranked) == tuple(every.ranked)
        assert counted(found.tally) == counted(every.tally)
        assert found.tally.priced + found.tally.outpaced <= every.tally.feasible
        assert (found.nearest, found.reasons) == (every.nearest, every.reasons)
    assert clusters(each) == clusters(every)
    return together.tally.outpaced


@pytest.mark.parametrize("seed", sampled(range(300), QUICK))
def test_the_best_are_those_of_all_layouts_priced(seed):
    agree(seed)


@pytest.mark.parametrize("seed", sampled(range(300), QUICK))
def test_rows_on_the_part_of_a_grid_that_is_priced_have_the_same_best_ones(seed, monkeypatch):
    monkeypatch.setattr(walk, "LARGE", 0)
    monkeypatch.setattr(pricing, "LARGE", 0)
    agree(seed)


def test_a_bound_of_rows_that_is_too_high_is_noticed(monkeypatch):
    monkeypatch.setattr(walk, "LARGE", 0)
    monkeypatch.setattr(pricing, "NEAR", 1.0)
    monkeypatch.setattr(bounds, "_least_yet", lambda seconds: 1.5 * seconds)
    with pytest.raises(AssertionError):
        _ = [agree(seed) for seed in QUICK]


def test_a_bound_that_is_too_high_is_noticed(monkeypatch):
    def no_overlap(schedule, pp, vpp, fewest, most):
        return (pp - 1) * most if schedule == "1f1b" else 0 * most

    monkeypatch.setattr(bounds, "least_waits", no_overlap)
    with pytest.raises(AssertionError):
        agree(34)


def test_the_best_of_all_are_the_first_of_an_exhaustive_answer():
    asked = {"model": "llama2-7b", "instance": "trn1.32xlarge", "nodes": (2, 4), "tp": 8}
    asked |= {"global_batch": 256, "sequence": 4096, "precision": "bf16-master"}
    every, best = search_layouts(**asked, top=5), search_layouts(**asked, best=5)
    assert tuple(best.ranked) == tuple(every.ranked)
    assert best.assumed == every.assumed
    assert best.feasible == every.feasible == best.tally.priced + best.tally.outpaced
    assert 0 < best.tally.outpaced < best.feasible


@pytest.mark.parametrize(
    ("schedule", "vpp", "micro_batches", "waits"),
    [
        # Four equal stages: the last of 8 micro-batches also passes the other three.
        ("gpipe", 1, 8, 3),
        ("1f1b", 1, 8, 3),
        ("1f1b", 1, 1, 3),
        # Of few micro-batches, some may hide behind what a slow stage has to do meanwhile.
        ("1f1b", 1, 3, 4 / (1 - 2 / 8) - 3),
        ("interleaved", 2, 4, 1.5),
        ("interleaved", 2, 8, (3 - 4 * 15 / 64) / 2),
        ("zb-h1", 1, 8, 0),
    ],
)
def test_a_pipeline_of_four_stages_waits_at_least_so_many_slots(
    schedule, vpp, micro_batches, waits
):
    degrees = (np.array(float(number)) for number in (4, vpp, micro_batches, micro_batches))
    assert least_waits(schedule, *degrees) == pytest.approx(waits, abs=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_pipeline_of_unequal_stages_waits_less(schedule):
    # Stages, those behind the slowest, chunks, groups of micro-batches, how many more or fewer
    # there may be, the parts of the slowest that a stage before and behind it takes, forward part.
    grid = np.meshgrid(
        *(np.arange(2.0, 10), np.arange(9.0)),
        *(np.arange(2.0, 5) if schedule == "interleaved" else np.ones(1),),
        *(np.arange(1.0, 15), np.array([0.0, 4.0])),
        *(np.array([0.5, 1.0]), np.linspace(0.1, 1, 19), np.array([0.3, 0.5])),
    )
    stages, behind, chunks, groups, spread, before, after, forward = (
        axis[grid[1] < grid[0]] for axis in grid
    )
    micro_batches = groups * (stages if schedule == "interleaved" else 1)
    before_s, after_s = (stages - 1 - behind) * before, behind * after

    def slots(seconds):
        weight = (1 - forward) / 2 if schedule == "zb-h1" else 0.0
        return SlotTimes(
            forward_s=forward * seconds,
            backward_s=(1 - forward - weight) * seconds,
            weight_s=weight * seconds,
        )

    work = PipelineWork(
        slowest=slots(1.0),
        before=slots(before_s),
        after=slots(after_s),
        stages_after=behind,
        send_s=np.zeros(()),
        send_overlap=np.zeros(()),
    )
    degrees = {"pp": stages, "vpp": chunks, "micro_batches": micro_batches}
    taken_s = pipeline_time(schedule, **degrees, work=work).time_s
    fewest, most = np.maximum(1, micro_batches - spread), micro_batches + spread
    passes = micro_batches + least_waits(schedule, stages, chunks, fewest, most)
    of_least = taken_s / ((1 + before_s + after_s) / stages * passes)
    # The bound of a split backward pass leaves out what the first micro-batch waits.
    assert 1 - 1e-9 < of_least.min() < (1.03 if schedule == "zb-h1" else 1.001)


def main(first: int, count: int) -> int:
    """Try seeds; return how many failed."""
    failed = 0
    for seed in range(first, first + count):
        try:
            print(f"{seed}: {agree(seed):,} layouts left out", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{seed}: FAILED {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)

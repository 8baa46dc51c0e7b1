import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import sampled
from tests.steps import step_prices
from trnbench.engines.analytic.step.memory import memory
from trnbench.engines.analytic.step.utilization import utilization
from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.calibration.hosts import load_job_rates
from trnbench.facts.calibration.supports import ANYTHING_ELSE, SupportLine
from trnbench.facts.calibration.training_stack import (
    TrainingEfficiency,
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import DEGREES, KNOBS, Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.layout_rules import OF_EXPERTS, OUTER, group_reasons, platform_refusals
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult, Tally
from trnbench.predict.search.runs import Seen
from trnbench.predict.search.search import SearchHooks, search
from trnbench.program.schedule import slot_order
from trnbench.program.step import training_step
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.quotes.searching import search_all
from trnbench.verbs.search_layouts.run import search_layouts

CATALOG = open_catalog()


def question(
    model: str,
    instance: str,
    nodes=(1,),
    *,
    batch=8,
    sequence=256,
    precision="bf16-master",
    stack=None,
    fixed=None,
    **kept,
) -> SearchQuestion:
    platform = load_platform(CATALOG, instance)
    training = (
        training_stack_of(CATALOG, platform.instance.name)
        if stack is None
        else load_training_stack(CATALOG, stack)
    )
    efficiency = TrainingEfficiency(
        chip=load_chip_efficiency(CATALOG, platform.chip.name), stack=training
    )
    given = {"global_batch": batch, "sequence": sequence, "precision": precision}
    return SearchQuestion(
        model=load_model(CATALOG, model),
        platform=platform,
        efficiency=efficiency,
        collectives=stack_of(CATALOG, platform.instance.name),
        rates=load_job_rates(CATALOG),
        nodes=tuple(nodes),
        layout=PartialLayout(**given, **(fixed or {})),
        **kept,
    )


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def layouts(asked: SearchQuestion, nodes: int) -> Iterator[Layout]:
    """Yield every layout worth looking at whose ranks fill the cluster."""
    fixed = asked.layout.given
    sequence, batch = asked.completed.sequence, asked.completed.global_batch
    transformer = asked.model.transformer
    assert transformer is not None
    degrees = asked.platform.legal_degrees()
    ranks = nodes * asked.ranks_per_node
    choices: dict[str, Sequence[Any]] = {
        "tp": degrees.tensor_parallel if degrees else divisors(asked.ranks_per_node),
        "pp": divisors(ranks),
        "cp": divisors(ranks) if asked.runs("context parallel") else [1],
        "ep": divisors(transformer.moe.experts) if transformer.moe else [1],
        "vpp": range(1, transformer.layers + 1),
        "micro_batch": divisors(int(batch)),
        "zero": [stage for stage in range(4) if asked.runs(f"zero {stage}")],
        **{
            name: [one for one in KNOBS[name].preferred if asked.runs(f"{name} {one}")]
            for name in ("recompute", "schedule")
        },
    }
    choices |= {name: [value] for name, value in fixed.items()}
    if asked.completed.attention == "fused":
        # Nothing is left to repeat: the same program as without recompute.
        plain = ["none" if mode == "selective" else mode for mode in choices["recompute"]]
        choices["recompute"] = list(dict.fromkeys(plain))
    for values in product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        fixed_ranks = chosen["tp"] * chosen["pp"] * chosen["cp"]
        if ranks % fixed_ranks:
            continue
        dp = ranks // fixed_ranks
        double = (
            ("schedule" not in fixed and chosen["pp"] == 1 and chosen["schedule"] != "1f1b")
            or (
                chosen["schedule"] == "gpipe"
                and "1f1b" in choices["schedule"]
                and batch == dp * chosen["micro_batch"]
            )
            or (dp * chosen["cp"] == 1 and chosen["zero"] > min(choices["zero"]))
            or ("vpp" not in fixed and -(-transformer.layers // chosen["pp"]) % chosen["vpp"])
        )
        if not double:
            cut = asked.runs("sequence parallel") and sequence % chosen["tp"] == 0
            yield Layout(
                **chosen,
                dp=dp,
                sequence_parallel=cut and chosen["tp"] > 1,
                attention=asked.completed.attention,
            )


def one_by_one(asked: SearchQuestion, nodes: int) -> tuple[Counter[str], dict[Layout, float]]:
    """Return how many layouts came how far, and their seconds, each from a program of its own."""
    counts: Counter[str] = Counter()
    found = {}
    for layout in layouts(asked, nodes):
        program = training_step(asked.model, layout)
        refused = platform_refusals(asked.platform, program.grid, nodes=nodes)
        routed = group_reasons(asked.platform, program.grid, (*OUTER, *OF_EXPERTS))
        if refused or any(routed) or not program.legal:
            continue
        counts["legal"] += 1
        held = memory(program, asked.platform, fragmentation_ratio=asked.fragmentation_ratio)
        if held.total_bytes > asked.available_bytes:
            continue
        counts["feasible"] += 1
        prices = step_prices(program, asked.platform, asked.efficiency, asked.collectives)
        seconds = float(prices.time().time_s)
        if np.isfinite(seconds):
            found[layout] = seconds
    return counts, found


def everything(
    asked: SearchQuestion, **hooks
) -> tuple[SearchResult, dict[tuple[int, Layout], float]]:
    """Return a search's result, and the seconds of every layout it priced."""
    found: dict[tuple[int, Layout], float] = {}

    def watch(seen: Seen) -> None:
        for number in range(len(seen)):
            key = int(seen.degree("nodes")[number]), seen.layout(number)
            assert key not in found
            found[key] = float(seen.step_time_s[number])

    return search(asked, hooks=SearchHooks(watch=watch, **hooks)), found


def adds_up(tally: Tally) -> bool:
    rejected = dict(tally.rejected_by_reason)
    refused = rejected.pop("collective", 0) + rejected.pop("format", 0)
    too_large = rejected.pop("memory", 0)
    return (
        tally.considered == tally.legal + sum(rejected.values())
        and tally.legal == tally.feasible + too_large + tally.unseen
        and tally.feasible == tally.priced + refused
    )


SMALL = {
    "tiny, Trn1": question("tiny-gpt", "trn1.2xlarge"),
    "tiny, Trn1, 32 ranks": question("tiny-gpt", "trn1.32xlarge", fixed={"zero": 1}),
    "tiny, Trn2": question("tiny-gpt", "trn2.3xlarge", batch=6),
    "tiny, H100, nothing sharded": question(
        "tiny-gpt", "p5.48xlarge", fixed={"recompute": "none", "zero": 0}, batch=6
    ),
    "experts": question(
        "mixtral-8x7b",
        "trn2.48xlarge",
        batch=64,
        sequence=4096,
        fixed={"recompute": "full", "zero": 1, "tp": 16, "cp": 1, "schedule": "1f1b"},
    ),
    "an odd sequence": question(
        "llama2-7b",
        "trn1.32xlarge",
        batch=4,
        sequence=100,
        fixed={"recompute": "selective", "zero": 1},
    ),
    "uneven stages": question(
        "llama2-7b",
        "p5.48xlarge",
        batch=8,
        sequence=64,
        nodes=(3,),
        fixed={"recompute": "full", "zero": 1, "cp": 1, "tp": 4},
    ),
    "overlapped experts": question(
        "mixtral-8x7b",
        "p5.48xlarge",
        batch=8,
        sequence=4096,
        nodes=(2,),
        fixed={"overlapped": "on", "schedule": "interleaved", "recompute": "none", "zero": 1}
        | {"tp": 2, "cp": 1},
        assume_supported=True,
    ),
    "room to be left": question(
        "llama2-7b",
        "p5.48xlarge",
        batch=8,
        sequence=4096,
        headroom=0.3,
        fixed={"cp": 1, "schedule": "1f1b", "zero": 1},
    ),
}


LARGE = ("experts", "room to be left", "tiny, Trn1, 32 ranks", "tiny, Trn2")
"""Those of a few hundred layouts, each priced alone."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(asked, id=name, marks=[pytest.mark.soak] if name in LARGE else [])
        for name, asked in SMALL.items()
    ],
)
def test_a_search_finds_what_pricing_layouts_one_by_one_finds(asked):
    nodes = asked.nodes[0]
    counts, wanted = one_by_one(asked, nodes)
    result, found = everything(asked)
    assert wanted
    assert (result.legal, result.feasible) == (counts["legal"], counts["feasible"])
    assert {(nodes, layout) for layout in wanted} == set(found)
    for layout, seconds in wanted.items():
        assert found[nodes, layout] == pytest.approx(seconds, rel=1e-9)
    assert result.best is not None
    assert result.best.step_time_s == pytest.approx(min(wanted.values()), rel=1e-6)
    assert adds_up(result.tally)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(
    tp=st.sampled_from([None, 1, 8]),
    pp=st.sampled_from([None, 1, 2, 4]),
    vpp=st.sampled_from([None, 1, 2]),
    micro_batch=st.sampled_from([None, 1, 2]),
    schedule=st.sampled_from([None, "1f1b", "interleaved"]),
    batch=st.sampled_from([4, 6, 32]),
)
def test_what_is_fixed_stays_and_the_optimum_is_that_of_the_rest(
    tp, pp, vpp, micro_batch, schedule, batch
):
    fixed = {
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "micro_batch": micro_batch,
        "schedule": schedule,
        "zero": 1,
        "recompute": "none",
    }
    asked = question("tiny-gpt", "trn1.32xlarge", batch=batch, fixed=fixed)
    counts, wanted = one_by_one(asked, 1)
    result, found = everything(asked)
    assert result.legal == counts["legal"]
    assert {layout for _, layout in found} == set(wanted)
    assert adds_up(result.tally)
    if wanted:
        assert result.best is not None
        assert result.best.step_time_s == pytest.approx(min(wanted.values()), rel=1e-6)
        for name, value in asked.layout.given.items():
            assert getattr(result.best.layout, name) == value
    else:
        assert result.best is None
        assert result.reasons


@pytest.mark.slow
def test_numbers_of_nodes_at_once_give_what_each_gives_alone():
    several = question("llama2-7b", "p5.48xlarge", nodes=(4, 1, 6), batch=48, sequence=4096)
    result, _ = everything(several)
    assert list(result.by_nodes) == [4, 1, 6]
    totals: Counter[str] = Counter()
    for nodes in several.nodes:
        alone, _ = everything(replace(several, nodes=(nodes,)))
        together = result.by_nodes[nodes]
        assert alone.ranked == together.ranked
        assert (alone.legal, alone.feasible) == (together.tally.legal, together.tally.feasible)
        assert adds_up(together.tally)
        totals.update(legal=alone.legal, priced=alone.tally.priced)
    assert (result.legal, result.tally.priced) == (totals["legal"], totals["priced"])
    assert result.best == min(
        (cluster.best for cluster in result.by_nodes.values() if cluster.best),
        key=lambda found: found.step_time_s,
    )


@pytest.mark.slow
def test_grids_cut_into_parts_give_what_one_gives(monkeypatch):
    asked = question("llama2-7b", "p5.48xlarge", nodes=(4, 1, 6), batch=48, sequence=4096)
    whole, every = everything(asked)
    monkeypatch.setattr("trnbench.predict.search.search.GRID", 1)
    parted, each = everything(asked)
    assert every == each
    assert parted.by_nodes == whole.by_nodes
    monkeypatch.setattr("trnbench.predict.search.parts.BLOCK", 1)
    blocked, one_by_one = everything(asked)
    assert one_by_one == every
    assert (blocked.by_nodes, blocked.tally) == (whole.by_nodes, whole.tally)


def test_ranked_layouts_are_the_fastest_and_carry_their_figures():
    asked = question("llama2-7b", "trn1.32xlarge", nodes=(2,), batch=64, sequence=4096)
    result, found = everything(asked)
    times = sorted(found.values())
    assert [one.step_time_s for one in result.ranked] == pytest.approx(times[:20], rel=1e-6)
    for one in (result.ranked[0], result.ranked[-1]):
        program = training_step(asked.model, one.layout)
        held = memory(program, asked.platform, fragmentation_ratio=asked.stack.fragmentation)
        assert one.memory_bytes == pytest.approx(float(held.total_bytes))
        assert one.memory_capacity_bytes == held.capacity_bytes
        used = utilization(program, asked.platform, np.array(one.step_time_s))
        assert one.mfu == pytest.approx(float(used.mfu))
        assert one.tokens_per_s == pytest.approx(64 * 4096 / one.step_time_s)
        assert prod((one.layout.tp, one.layout.pp, one.layout.cp, one.layout.dp)) == 64


@pytest.mark.parametrize(
    ("model", "batch", "sequence"),
    [("bert-large", 64, 128), ("vit-base", 64, 197), ("dit-xl-2", 32, 256)],
)
def test_the_needed_flop_are_the_same_in_every_layout(model, batch, sequence):
    asked = question(model, "p5.48xlarge", batch=batch, sequence=sequence)
    result, _ = everything(asked)
    assert result.best is not None
    for one in result.ranked:
        program = training_step(asked.model, one.layout)
        used = utilization(program, asked.platform, np.array(one.step_time_s))
        assert one.mfu == pytest.approx(float(used.mfu))


@pytest.mark.slow
@pytest.mark.parametrize("attention", sampled(("fused", "naive"), ("fused",)))
@pytest.mark.parametrize(
    ("model", "instance", "sequence", "batch", "fixed"),
    [
        ("tiny-gpt", "trn1.32xlarge", 256, 32, {}),
        ("mixtral-8x7b", "p5en.48xlarge", 2048, 16, {"zero": 3, "cp": 1}),
        ("bert-large", "trn1.2xlarge", 512, 16, {}),
        ("dit-xl-2", "p5.48xlarge", 256, 8, {"tp": 1}),
        ("dlrm-dcnv2", "p5.48xlarge", 1, 64, {}),
    ],
)
def test_no_program_is_ranked_twice(model, instance, sequence, batch, fixed, attention):
    asked = question(
        model, instance, batch=batch, sequence=sequence, fixed={**fixed, "attention": attention}
    )
    _, found = everything(asked)
    programs: dict[object, list[Layout]] = {}
    for _, layout in found:
        programs.setdefault(_same_step(asked, layout), []).append(layout)
    assert [doubles for doubles in programs.values() if len(doubles) > 1] == []
    assert found


def _same_step(asked: SearchQuestion, layout: Layout) -> object:
    """Return what two layouts have in common if they are the same program, run in one order."""
    program = training_step(asked.model, layout)
    held = memory(program, asked.platform, fragmentation_ratio=0.0)
    order = slot_order(
        layout.schedule,
        pp=int(layout.pp),
        vpp=int(layout.vpp),
        micro_batches=int(program.micro_batches),
    )
    return (
        tuple(sorted(held.by_category().items())),
        tuple((kind, block.flop().item()) for kind, block in program.blocks.items()),
        tuple(getattr(layout, name) for name in DEGREES),
        (order.kind.tobytes(), order.micro_batch.tobytes(), order.chunk.tobytes()),
    )


def test_a_recommender_spreads_its_tables_and_nothing_else():
    asked = question("dlrm-dcnv2", "p5.48xlarge", batch=4096, sequence=1)
    result, found = everything(asked)
    assert result.best is not None
    assert adds_up(result.tally)
    assert {(one.tp, one.pp, one.cp, one.vpp) for _, one in found} == {(1, 1, 1, 1)}
    assert {one.recompute for _, one in found} == {"none"}
    assert len({one.ep for _, one in found}) > 1


@pytest.mark.slow
def test_experts_are_spread_only_where_the_stack_can():
    asked = question("mixtral-8x7b", "trn2.48xlarge", nodes=(4,), batch=64, sequence=4096)
    assert {one.ep for _, one in everything(asked)[1]} == {1, 2, 4, 8}
    stack = replace(
        asked.stack,
        supports=(
            SupportLine(status="untested", features=("expert parallel",)),
            SupportLine(status="runs", features=(ANYTHING_ELSE,)),
        ),
    )
    without = replace(asked, efficiency=replace(asked.efficiency, stack=stack))
    assert {one.ep for _, one in everything(without)[1]} == {1}
    told = replace(without, layout=without.layout.changed(ep=4))
    assert {one.ep for _, one in everything(told)[1]} == {4}


def test_a_cancelled_search_keeps_what_it_found_and_counts_what_it_left():
    asked = question("llama2-7b", "trn1.32xlarge", nodes=(2,), batch=64, sequence=4096)
    every: list[int] = []
    whole, _ = everything(asked, progress=lambda done, total, what: every.append(done))
    chunks: list[int] = []
    result, found = everything(
        asked,
        # What fits is known before anything is timed; two chunks are left then.
        cancel=lambda: len(chunks) >= len(every) - 2,
        progress=lambda done, total, what: chunks.append(done),
    )
    assert not result.complete
    assert whole.complete
    assert result.tally.unseen > 0
    assert adds_up(result.tally)
    assert 0 < result.tally.priced < whole.tally.priced
    assert result.best is not None
    assert result.best.step_time_s == pytest.approx(min(found.values()), rel=1e-6)
    assert chunks == sorted(chunks)

    nothing, _ = everything(asked, cancel=lambda: True)
    assert (nothing.best, nothing.tally.priced, nothing.complete) == (None, 0, False)
    assert nothing.tally.unseen == nothing.legal == whole.legal


def test_progress_ends_with_every_legal_layout():
    told: list[tuple[int, int]] = []
    asked = question("tiny-gpt", "trn1.32xlarge", fixed={"zero": 1})
    result = search(
        asked, hooks=SearchHooks(progress=lambda done, total, what: told.append((done, total)))
    )
    assert told[-1] == (result.legal, result.legal)


def test_a_model_that_fits_nowhere_names_the_layout_that_comes_nearest():
    result = search(question("gpt3-175b", "trn1.32xlarge", nodes=(1, 2), batch=64, sequence=2048))
    assert result.best is None
    assert result.feasible == 0
    assert result.nearest is not None
    assert result.nearest.nodes == 2
    assert result.nearest.ratio > 1
    assert result.by_nodes[1].nearest is not None
    assert result.by_nodes[1].nearest.ratio > result.nearest.ratio
    (said,) = re.findall(
        r"needs .* per rank, ([\d.]+)x the 15.5 GiB available: ", result.reasons[0]
    )
    # By the estimate, as its table shows it; the ratio is of what is left at the upper ends.
    assert 1 < float(said) <= result.nearest.ratio
    needed = result.nearest.memory_bytes
    _, found = everything(
        question("gpt3-175b", "trn1.32xlarge", nodes=(2,), batch=64, sequence=2048)
    )
    assert not found
    assert needed > 16 * 2**30 * 0.9


def test_room_to_be_left_is_named_when_it_is_what_does_not_fit():
    asked = question("llama2-7b", "trn1.32xlarge", batch=32, sequence=4096, headroom=0.95)
    result = search(asked)
    assert result.best is None
    assert result.nearest is not None
    loose = search(replace(asked, headroom=0.0))
    assert loose.best is not None


@pytest.mark.parametrize(
    ("fixed", "batch", "word"),
    [
        ({"tp": 5}, 8, "tp=5 does not divide"),
        ({"tp": 8, "pp": 4, "dp": 3}, 8, "have 32"),
        ({"tp": 1, "pp": 1, "cp": 1}, 8, "does not divide by dp x micro_batch = 32"),
        ({"schedule": "interleaved", "pp": 1, "tp": 32}, 8, "interleaved needs"),
        ({"pp": 8, "tp": 1}, 8, "is more than 4 layers"),
        ({"ep": 2}, 8, "the model has no experts"),
    ],
)
def test_where_nothing_is_legal_the_reasons_are_in_words(fixed, batch, word):
    result = search(question("tiny-gpt", "trn1.32xlarge", batch=batch, fixed=fixed))
    assert result.legal == 0
    assert result.best is None
    assert adds_up(result.tally)
    assert any(word in reason for reason in result.reasons)


def test_ranks_of_a_single_node_may_stay_idle_if_that_is_asked_for():
    asked = question("tiny-gpt", "trn1.32xlarge", fixed={"tp": 8, "cp": 1, "dp": 1})
    # Only pp = 4 fills the node, one layer a stage: recompute or not, 4 sizes of micro-batch.
    assert search(asked).legal == 2 * 4
    result, found = everything(replace(asked, whole_nodes=False))
    assert {(one.tp, one.pp, one.dp) for _, one in found} == {(8, 1, 1), (8, 2, 1), (8, 4, 1)}
    assert adds_up(result.tally)


def test_a_cluster_that_cannot_be_is_rejected_and_others_are_not():
    result = search(question("tiny-gpt", "trn1.2xlarge", nodes=(1, 2), fixed={"cp": 1}))
    assert result.by_nodes[1].best is not None
    assert result.by_nodes[2].best is None
    assert set(result.by_nodes[2].tally.rejected_by_reason) == {"cluster"}


def test_a_format_that_the_chip_lacks_rejects_what_fits():
    result = search(question("tiny-gpt", "p4d.24xlarge", precision="fp8"))
    assert result.best is None
    assert result.feasible == result.tally.rejected_by_reason["format"] > 0
    assert adds_up(result.tally)
    assert any("fp8" in reason for reason in result.reasons)


def test_malformed_questions_are_input_errors():
    good = question("tiny-gpt", "trn1.2xlarge")
    changes: tuple[dict[str, Any], ...] = (
        {"nodes": ()},
        {"nodes": (2, 2)},
        {"nodes": (0,)},
        {"headroom": 1.0},
        *(
            {"layout": good.layout.changed(**wrong)}
            for wrong in (
                {"global_batch": 0},
                {"sequence": -1},
                {"sequence": None},
                {"tp": 0},
                {"precision": "no such recipe"},
            )
        ),
    )
    for change in changes:
        with pytest.raises(InputError):
            replace(good, **change)
    with pytest.raises(InputError):
        search(good, top=0)


def test_names_and_records_ask_the_same():
    by_name = search_layouts(
        model="tiny-gpt",
        instance="trn1.2xlarge",
        nodes=1,
        global_batch=8,
        sequence=256,
        precision="bf16-master",
        top=3,
    )
    by_record = search(question("tiny-gpt", "trn1.2xlarge"), top=3)
    assert by_name.ranked == by_record.ranked
    assert len(by_name.ranked) == 3


@pytest.mark.parametrize(("model", "batch"), [("llama2-7b", 96), ("llama3.1-405b", 96)])
def test_a_search_shared_among_processors_finds_what_one_search_finds(model, batch, monkeypatch):
    asked = question(model, "trn1.32xlarge", (3, 1, 4, 2), batch=batch, sequence=2048)
    (whole,) = search_all([("one", asked)], top=5, watch=Watch())
    monkeypatch.setattr("trnbench.predict.search.parts.BLOCK", 1)
    (shared,) = search_all([("one", asked)], top=5, watch=Watch(workers=2))
    assert whole is not None
    assert shared is not None
    assert replace(shared, elapsed_s=0.0) == replace(whole, elapsed_s=0.0)
    assert list(shared.by_nodes) == [3, 1, 4, 2]
    assert bool(whole.ranked) == (model == "llama2-7b")


def test_only_searches_of_many_points_go_side_by_side(monkeypatch):
    small = [
        (name, question("llama2-7b", name, (1, 2))) for name in ("trn1.32xlarge", "trn1.2xlarge")
    ]
    found = search_all(small, top=5, watch=Watch(workers=2))
    shared = []
    monkeypatch.setattr(
        "trnbench.verbs.quotes.searching._side_by_side", lambda *of: shared.append(of)
    )
    assert [one and one.ranked for one in search_all(small, top=5, watch=Watch(workers=2))] == [
        one and one.ranked for one in found
    ]
    assert not shared
    monkeypatch.setattr("trnbench.verbs.quotes.searching.WORTH_SHARING", 0)
    search_all(small, top=5, watch=Watch(workers=2))
    assert len(shared) == 1


def test_a_shard_group_is_searched_with_the_stages_that_share_something():
    asked: dict[str, Any] = {
        **{"model": "llama3.1-8b", "instance": "p5.48xlarge", "nodes": 4, "shard": 8},
        **{"global_batch": 256, "sequence": 8192, "precision": "bf16-master"},
    }
    found = search_layouts(**asked, tp=1, pp=1, cp=1, top=1000)
    assert found.ranked
    assert {one.layout.zero for one in found.ranked} == {1}
    assert not search_layouts(**asked, zero=0).ranked

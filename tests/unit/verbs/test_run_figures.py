"""The same configuration has the same figures in train, compare and plan; the best is the best."""

from __future__ import annotations

import datetime
import itertools
import math
import pickle
from typing import Any

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance, load_platform, load_reliability
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.weights import parameter_count
from trnbench.money.billing import Bill, bill
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.money.cost import RunPhase, TrainingJob, training_cost
from trnbench.money.failures import Compiling, Stated, derived
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import load_offers
from trnbench.predict.compile_time import compile_s, warm_time_s
from trnbench.predict.setup import train_setup
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.plan.run import plan_run
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import run

CATALOG = open_catalog(environment={})
TODAY = datetime.date(2026, 11, 21)
DAY_S = 86400.0
RUN = RunRequest(
    model="llama2-7b",
    parts=(Part(tokens=3e11),),
    instances=("trn1.32xlarge", "trn2.48xlarge"),
    bought=Buying(price_date=TODAY),
    nodes=(4, 8),
    layout=PartialLayout(tp=8, global_batch=256, sequence=4096),
)
TINY = RunRequest(
    model="tiny-gpt",
    parts=(Part(tokens=1e12),),
    instances=("trn1.2xlarge", "trn1.32xlarge"),
    bought=Buying(price_date=TODAY),
    nodes=(1, 2),
    layout=PartialLayout(
        pp=2, cp=1, ep=1, vpp=1, zero=1, schedule="1f1b", recompute="none", global_batch=16
    ),
)


@pytest.fixture(scope="module")
def compared():
    return compare_run(CATALOG, CompareQuestion(run=RUN))


@pytest.mark.slow
def test_a_row_has_the_figures_of_the_train_verb(compared):
    """Of what the search chose, and of the same left open to the train verb's own search."""
    shared = ("step_time_s", "tokens_per_s", "mfu", "memory_bytes", "tp", "pp", "dp", "micro_batch")
    for one in compared.compared:
        quote = one.quote
        row = quote.row()
        for layout in (quote.step.layout, RUN.layout):
            places = ((quote.instance, quote.nodes),)
            asked = TrainQuestion(model=RUN.model, places=places, layout=layout)
            (answer,) = run(CATALOG, asked)
            trained = answer.row()
            for key in (*shared, "low_step_time_s", "high_tokens_per_s", "exposed_matrix_s"):
                assert row[key] == trained[key], key


@pytest.mark.slow
def test_a_plan_has_the_figures_of_the_comparison(compared):
    answer: Any = plan_run(CATALOG, PlanQuestion(run=RUN, objective="pareto"))
    rows: dict[Any, Any] = {
        (q.instance, q.nodes): q.row() for q in (one.quote for one in compared.compared)
    }
    assert answer.front
    for quote in answer.front:
        # The cheapest way to buy a cluster is the comparison's; others may be on the front, too.
        row = rows[quote.instance, quote.nodes]
        mine = quote.row()
        assert mine["step_time_s"] == row["step_time_s"]
        if mine["purchase"] == row["purchase"]:
            # Which row is the cheapest depends on what it stands beside.
            for relative in ("cheapest_probability", "regret_usd"):
                del mine[relative], row[relative]
            assert mine == row
    cheapest = min(row["cost_usd"] for row in rows.values())
    assert answer.best.row()["cost_usd"] == cheapest


def test_money_is_that_of_the_cost_chain(compared):
    """Tokens over the speed of the train verb, through goodput and bill, by hand again."""
    quote = compared.compared[0].quote
    step = quote.step.step
    instance = load_instance(CATALOG, quote.instance)
    size = checkpoint_bytes(
        load_model(CATALOG, RUN.model), PartialLayout(precision="bf16-master", sequence=4096)
    )
    speed, slowest = 256 * 4096 / step.step_time_s, 256 * 4096 / step.high_step_time_s
    cost = training_cost(
        TrainingJob(
            phases=[RunPhase(tokens=3e11, tokens_per_s=speed, low_tokens_per_s=slowest)],
            nodes=quote.nodes,
            checkpoint_bytes=size,
        ),
        load_offers(CATALOG, instance, PriceTerms(on=TODAY)),
        load_reliability(CATALOG, instance.chip),
        stated=compiled(RUN.model, quote.step),
    )
    assert quote.cost_usd.value == float(cost.cost_usd)
    assert quote.cost_usd.high == float(cost.high_cost_usd)
    assert quote.elapsed_s.value == float(cost.elapsed_s)
    assert quote.wall.work_s == pytest.approx(3e11 / speed)
    assert quote.usd_per_million_tokens.value == pytest.approx(float(cost.cost_usd) / 3e5)


def test_a_checkpoint_holds_weights_and_optimizer_once():
    # bf16 weights, fp32 master and two fp32 moments: 14 bytes a parameter
    model = load_model(CATALOG, "llama2-7b")
    layout = PartialLayout(precision="bf16-master", sequence=4096)
    assert checkpoint_bytes(model, layout) == pytest.approx(14 * parameter_count(model))
    adapters = checkpoint_bytes(model, layout.changed(job="lora", adapter_rank=8))
    # Each of 7 projections of 32 layers: rank x (inputs + outputs)
    widths = 4 * (4096 + 4096) + 3 * (4096 + 11008)
    assert adapters == pytest.approx(14 * 32 * 8 * widths)


def compiled(model, step):
    """The compilation of a step's layout, cold at first and then from its cache."""
    setup = train_setup(CATALOG, model, step.instance, step.nodes)
    cold = compile_s(setup, [step.layout.complete()])
    assert cold is not None
    assert setup.graph_compiler is not None
    warm = warm_time_s(setup.graph_compiler)
    return Stated(compiling=Compiling(first=derived(*cold), again=derived(*warm)))


def brute_force(request):
    """Every layout left open, each timed alone and bought in every way: (usd, s) pairs."""
    found = []
    for name, nodes in itertools.product(request.instances, request.nodes):
        instance, platform = load_instance(CATALOG, name), load_platform(CATALOG, name)
        offers = load_offers(CATALOG, instance, PriceTerms(on=TODAY))
        for tp, micro_batch in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16)):
            ranks = nodes * instance.chips * platform.chip.ranks(None)
            pp = request.layout.degree("pp")
            if ranks % (tp * pp) or (name == "trn1.2xlarge" and nodes > 1):
                continue
            layout = request.layout.changed(
                tp=tp,
                dp=ranks // (tp * pp),
                micro_batch=micro_batch,
                sequence_parallel=tp > 1,
            )
            asked = TrainQuestion(model=request.model, places=((name, nodes),), layout=layout)
            answer: Any = run(CATALOG, asked)[0]
            if answer.step is None:
                continue
            speed = answer.per_s(answer.step.step_time_s, answer.layout.degree("sequence"))
            size = checkpoint_bytes(load_model(CATALOG, request.model), answer.layout)
            cost = training_cost(
                TrainingJob(
                    phases=[RunPhase(tokens=request.parts[0].tokens, tokens_per_s=speed)],
                    nodes=nodes,
                    checkpoint_bytes=size,
                ),
                offers,
                load_reliability(CATALOG, instance.chip),
                stated=compiled(request.model, answer),
                ranges=False,
            )
            for priced in cost.priced:
                paid = bill(
                    offers,
                    priced.tariff,
                    wall_s=float(priced.goodput.wall_s),
                    nodes=nodes,
                    seam_s=float(priced.goodput.seam_s),
                )
                if isinstance(paid, Bill):
                    found.append((paid.charged.cost_usd, paid.charged.elapsed_s))
    return found


@pytest.mark.slow
def test_the_plan_is_the_best_of_all_configurations_one_by_one():
    every = brute_force(TINY)
    assert len(every) > 50
    days = [elapsed / DAY_S for _, elapsed in every]
    limits = (None, sorted(days)[len(days) // 2])
    for deadline in limits:
        kept = [one for one in every if deadline is None or one[1] <= deadline * DAY_S]
        budget = sorted(usd for usd, _ in kept)[len(kept) // 3]
        cheapest: Any = plan_run(
            CATALOG,
            PlanQuestion(
                run=TINY,
                deadline_s=1e12 if deadline is None else deadline * DAY_S,
                objective="cost",
            ),
        )
        assert cheapest.best.cost_usd.value == pytest.approx(min(usd for usd, _ in kept))
        fastest: Any = plan_run(
            CATALOG,
            PlanQuestion(
                run=TINY,
                deadline_s=None if deadline is None else deadline * DAY_S,
                budget_usd=budget,
                objective="time",
            ),
        )
        assert fastest.best.elapsed_s.value == pytest.approx(
            min(elapsed for usd, elapsed in kept if usd <= budget * (1 + 1e-12))
        )


@pytest.fixture
def sharing(monkeypatch):
    """Another process is worth its while for any question."""
    monkeypatch.setattr("trnbench.verbs.quotes.searching.WORTH_SHARING", 0)
    monkeypatch.setattr("trnbench.verbs.compare.run.ROWS_TO_SHARE", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("sharing")
def test_searches_side_by_side_find_the_same():
    alone = plan_run(CATALOG, PlanQuestion(run=RUN))
    together = plan_run(CATALOG, PlanQuestion(run=RUN), watch=Watch(workers=2))
    assert together == alone


@pytest.mark.slow
@pytest.mark.usefixtures("sharing")
@pytest.mark.parametrize("equal_cost", [False, True])
def test_rows_made_side_by_side_are_the_same(equal_cost):
    run = RUN.but(nodes=(4,)) if equal_cost else RUN
    request = CompareQuestion(
        run=run, equal_cost=equal_cost, baseline_nodes=4 if equal_cost else None
    )
    alone = compare_run(CATALOG, request)
    assert compare_run(CATALOG, request, watch=Watch(workers=2)) == alone
    assert len(alone.compared) == len(run.nodes) * len(run.instances)


@pytest.mark.parametrize(("nodes", "workers"), [((1,), 1), ((*range(1, 17),), 2)])
def test_another_process_is_started_for_many_rows_only(nodes, workers, monkeypatch):
    asked = []

    def each(work, things, workers):
        asked.append(workers)
        return [work(one) for one in things]

    monkeypatch.setattr("trnbench.verbs.compare.run.each", each)
    compare_run(CATALOG, CompareQuestion(run=RUN.but(nodes=nodes)), watch=Watch(workers=2))
    assert max(asked) == workers


def test_requests_and_answers_travel_between_processes(compared):
    request = PlanQuestion(run=RUN)
    assert pickle.loads(pickle.dumps(request)) == request
    assert pickle.loads(pickle.dumps(compared)) == compared


@pytest.mark.slow
@pytest.mark.usefixtures("sharing")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_cancelled_comparison_keeps_what_it_has(workers):
    calls: list[int] = []

    def counted(most):
        def cancel():
            calls.append(1)
            return len(calls) > most

        return cancel

    question = CompareQuestion(run=RUN)
    full = compare_run(CATALOG, question, watch=Watch(cancel=counted(math.inf)))
    most = len(calls) // 2 if workers == 1 else 0
    calls.clear()
    answer = compare_run(CATALOG, question, watch=Watch(cancel=counted(most), workers=workers))
    assert full.complete
    assert not answer.complete
    assert len(answer.compared) + 2 * len(answer.unseen) <= 4


def test_progress_counts_layouts():
    told = []
    compare_run(
        CATALOG, CompareQuestion(run=RUN), watch=Watch(progress=lambda *one: told.append(one))
    )
    done, total, what = told[-1]
    assert done == total > 0
    assert what == "layouts of trn2.48xlarge (2 of 2)"

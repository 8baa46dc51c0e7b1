"""Command lines that requests are written as: read back, they are the same requests."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnbench.cli.main import main
from trnbench.engines.emulate.schedule.times import Straggler
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.parsing import (
    count,
    count_text,
    duration,
    place,
    place_text,
    share,
    share_text,
    size,
    size_text,
    time_text,
)
from trnbench.facts.workload.library import Place, Product
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.fabric import LinkFault
from trnbench.verbs.asking.command_lines import (
    command_question,
)
from trnbench.verbs.asking.given_run import GivenPlace, GivenRun
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.calibrate.question import CalibrateQuestion
from trnbench.verbs.claims.question import ClaimsQuestion
from trnbench.verbs.collective.question import CollectiveQuestion, Neighbour
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.explain.question import ExplainQuestion
from trnbench.verbs.matrix.question import MatrixQuestion
from trnbench.verbs.measure.question import MeasureQuestion
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import RunRequest, StackChoice
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.validate.question import ValidateQuestion

DAY = datetime.date(2026, 11, 21)
AMOUNT = st.floats(1e-3, 1e18) | st.integers(1, 10**15).map(float)
SECONDS = st.floats(1e-3, 1e11) | st.integers(1, 1000).map(lambda days: days * 86400.0)
LEAST_SHARE = 1e-9
"""Less is refused as nonsense, unless it is 0."""
USE_CASES = {
    "matrix": "trnbench.verbs.matrix.run.run",
    "collective": "trnbench.verbs.collective.run.run",
    "claims": "trnbench.verbs.claims.run.run",
    "calibrate": "trnbench.verbs.calibrate.run.run",
    "measure": "trnbench.verbs.measure.run.run",
    "validate": "trnbench.verbs.validate.run.run",
    "explain": "trnbench.verbs.explain.run.run",
    "train": "trnbench.verbs.train.run.run",
    "compare": "trnbench.verbs.compare.run.compare_run",
    "plan": "trnbench.verbs.plan.run.plan_run",
}


class Asked(Exception):
    """Carries what a use case was asked."""


@pytest.fixture(scope="module")
def asked_by():
    """Return what the use case of a command line is asked."""

    def heard(catalog, request, **_):
        raise Asked(request)

    def asked(line):
        program, verb, *words = shlex.split(line)
        assert program == "trnbench"
        patch = pytest.MonkeyPatch()
        with patch.context() as patched:
            patched.setattr(USE_CASES[verb], heard)
            patched.setattr("trnbench.cli.main.guarded", lambda action, debug: action())
            with pytest.raises(Asked) as found:
                main([verb, *words])
        return found.value.args[0]

    return asked


@pytest.mark.parametrize(
    ("text", "parse", "values"),
    [
        (count_text, count("n"), AMOUNT),
        (time_text, duration("n"), SECONDS),
        (share_text, share("n"), st.just(0.0) | st.floats(LEAST_SHARE, 1, exclude_max=True)),
        (size_text, size("n"), st.integers(1, 2**60).map(float) | st.sampled_from([2.0**30])),
    ],
)
def test_numbers_are_written_to_the_last_digit(text, parse, values):
    @given(values)
    def check(value):
        assert parse(text(value)) == value

    check()


@pytest.mark.parametrize(
    ("value", "text"),
    [(2e12, "2T"), (1.5e12, "1.5T"), (5e11, "500B"), (5e4, "50K"), (123.0, "123"), (0.5, "0.5")],
)
def test_counts_are_written_as_people_do(value, text):
    assert count_text(value) == text


def test_other_numbers_are_written_as_people_do():
    assert time_text(60 * 86400.0) == "60d"
    assert time_text(1800.0) == "1800s"
    assert share_text(0.18) == "18%"
    assert size_text(2.0**10) == "1KiB"
    assert size_text(1000.0) == "1000"
    assert place("on")(place_text("p5.48xlarge", 4)) == ("p5.48xlarge", 4)


LAYOUTS = st.builds(
    PartialLayout,
    tp=st.none() | st.integers(1, 64),
    micro_batch=st.none() | st.integers(1, 64),
    sequence=st.none() | st.integers(1, 10**6),
    zero=st.sampled_from((None, 0, 1, 2, 3)),
    sequence_parallel=st.none() | st.booleans(),
    context_parallel=st.sampled_from((None, "ring", "all-to-all")),
    recompute=st.sampled_from((None, "none", "selective", "full")),
    schedule=st.sampled_from((None, "1f1b", "zb-h1")),
    capacity_factor=st.none() | st.floats(0.5, 8),
    precision=st.sampled_from((None, "bf16-master", "fp8")),
)
PARTS = st.one_of(
    st.builds(Part, tokens=AMOUNT).map(lambda part: (part,)),
    st.builds(Part, samples=AMOUNT).map(lambda part: (part,)),
    st.lists(
        st.builds(Part, tokens=AMOUNT, sequence=st.integers(1, 10**6)), min_size=1, max_size=3
    ).map(tuple),
)
SHARES = st.just(0.0) | st.floats(LEAST_SHARE, 0.99)
RUNS = st.builds(
    RunRequest,
    model=st.just("llama2-7b"),
    parts=PARTS,
    instances=st.sampled_from([("trn1.32xlarge",), ("trn1.32xlarge", "p5.48xlarge")]),
    layout=LAYOUTS,
    max_nodes=st.integers(1, 10**4),
    headroom=SHARES,
    software=st.builds(
        StackChoice,
        stack=st.sampled_from((None, "nxd-trn1")),
        logical_size=st.sampled_from((None, 2)),
    ),
    bought=st.builds(
        Buying,
        purchase=st.sampled_from([(), ("spot",), ("on-demand", "reserved")]),
        region=st.sampled_from((None, "us-east-1")),
        price_date=st.dates(),
        discount=SHARES,
        prices=st.sampled_from([(), ("trn1.32xlarge=12.5",)]),
        assumed_prices=st.sampled_from([(), ("trn1.32xlarge=2x p5.48xlarge",)]),
    ),
    term_years=st.sampled_from((None, 1, 3)),
    commitment=st.sampled_from(("whole", "share")),
    keep_checkpoints=st.sampled_from((None, "3@s3-standard")),
    max_price_age_s=st.none() | st.floats(1, 1e8),
    failures_per_node_day=st.none() | st.just(0.0) | st.floats(1e-9, 10),
    checkpoint_interval_s=st.none() | st.floats(1, 1e6),
)
LIMIT = st.none() | st.floats(1, 1e9)
PLAIN = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def some_nodes(run, nodes):
    """Return a run on numbers of nodes that say it all."""
    return run.but(nodes=nodes, max_nodes=512) if nodes else run


@PLAIN
@given(run=RUNS, nodes=st.sampled_from([(), (4,), (2, 7)]), deadline=LIMIT, budget=LIMIT)
def test_a_plan_is_asked_again(asked_by, run, nodes, deadline, budget):
    request = PlanQuestion(
        run=some_nodes(run, nodes), deadline_s=deadline, budget_usd=budget, confirm=2
    )
    again = asked_by(command_question("plan", request).line)
    assert (again.run, again.goal, again.confirm) == (request.run, request.goal, 2)


@PLAIN
@given(
    run=RUNS,
    nodes=st.sampled_from([(), (4,), (2, 7)]),
    deadline=LIMIT,
    equal_cost=st.booleans(),
    baseline=st.sampled_from((None, "trn1.32xlarge")),
)
def test_a_comparison_is_asked_again(asked_by, run, nodes, deadline, equal_cost, baseline):
    request = CompareQuestion(
        run=some_nodes(run, nodes),
        deadline_s=deadline if deadline or not (equal_cost and nodes) else 1.0,
        equal_cost=equal_cost,
        baseline=baseline,
    )
    assert asked_by(command_question("compare", request).line) == request


def test_a_baseline_on_so_many_nodes_is_asked_again(asked_by):
    line = "trnbench compare llama2-7b --tokens 1T --on p5.48xlarge --nodes 5 --equal-cost"
    request = asked_by(line + f" --price-date {DAY}")
    assert request.baseline_nodes == 5
    assert asked_by(command_question("compare", request).line) == request


@PLAIN
@given(
    layout=LAYOUTS,
    nodes=st.lists(st.integers(1, 999), min_size=1, max_size=2, unique=True),
    engines=st.sampled_from([("analytic",), ("emulate",), ("analytic", "emulate")]),
    seed=st.none() | st.integers(0, 99),
    factor=st.floats(0.5, 4),
)
def test_a_step_is_asked_again(asked_by, layout, nodes, engines, seed, factor):
    played = "emulate" in engines
    question = TrainQuestion(
        model="llama2-7b",
        places=tuple(("trn1.32xlarge", count) for count in nodes),
        layout=layout,
        engines=engines,
        software=StackChoice(stack="nxd-trn1"),
        seed=seed if played else None,
        stragglers=(Straggler(stage=1, factor=factor),) if played else (),
    )
    assert asked_by(command_question("train", question).line) == question


def test_products_are_asked_again(asked_by):
    question = MatrixQuestion(
        products=(Product(m=8, k=16, n=32), Product(m=8, k=16, n=32, batch=4)),
        chips=("trainium1", "trainium2"),
        formats=("bf16", "fp8"),
        kernel="hoisted",
        cores="all",
        pattern="4:16",
    )
    assert asked_by(command_question("matrix", question).line) == question
    suite = asked_by("trnbench matrix --suite llama --on trainium2 --dtype bf16")
    assert asked_by(command_question("matrix", suite).line) == suite


@PLAIN
@given(
    smallest=st.floats(1, 1e6),
    larger=st.floats(1, 1e6),
    factor=st.floats(1.5, 64),
    algorithm=st.sampled_from(("auto", "ring")),
)
def test_a_sweep_is_asked_again(asked_by, smallest, larger, factor, algorithm):
    question = CollectiveQuestion(
        op="all-gather",
        places=(Place(instance="trn1.32xlarge"), Place(instance="p5.48xlarge", nodes=4)),
        smallest_bytes=smallest,
        largest_bytes=smallest * larger,
        factor=factor,
        algorithm=algorithm,
    ).settled(open_catalog())
    assert asked_by(command_question("collective", question).line) == question


def test_faults_neighbours_and_a_suite_are_asked_again(asked_by):
    question = CollectiveQuestion(
        op="all-reduce",
        places=(Place(instance="trn2.48xlarge"),),
        ranks=32,
        groups="16@2",
        logical_size=1,
        number_format="bf16",
        engines=("analytic", "emulate"),
        faults=(LinkFault(source=0, target=1, factor=0.5), LinkFault(source=3, target=None)),
        beside=(Neighbour(op="all-to-all", size_bytes=3000.0, groups="8"),),
        links=True,
        check=True,
        seed=0,
    ).settled(open_catalog())
    assert asked_by(command_question("collective", question).line) == question
    suite = CollectiveQuestion(suite="trn3", algorithm="ring").settled(open_catalog())
    line = command_question("collective", suite).line
    assert line == "trnbench collective --suite trn3 --algorithm ring"
    assert asked_by(line) == suite


RAN = GivenPlace(model="llama3.1-8b", on="trn1.32xlarge:4")
LOG = (Path("a b.log"),)


@pytest.mark.parametrize(
    ("verb", "question"),
    [
        ("validate", ValidateQuestion(sets=("gpu", "kernels"))),
        ("validate", ValidateQuestion(sets=("kernels",), engine="emulate")),
        (
            "validate",
            ValidateQuestion(evidence=LOG, place=RAN, layout=PartialLayout(tp=8), stack="nxdt"),
        ),
        ("explain", ExplainQuestion(measurements=LOG, stack="nxdt")),
        (
            "explain",
            ExplainQuestion(
                measurements=LOG,
                given=GivenRun(model=RAN.model, on=RAN.on, layout=PartialLayout(recompute="full")),
            ),
        ),
    ],
)
def test_evidence_is_asked_again(asked_by, verb, question):
    assert asked_by(command_question(verb, question).line) == question


def test_a_measurement_is_asked_again(asked_by):
    sizes: dict[str, int | str] = {"layers": 2, "micro_batch": 4, "precision": "fp32"}
    question = MeasureQuestion(
        kind="train", suite="full", device="cpu", host_devices=4, budget_s=90.0, decoders=(sizes,)
    )
    line = command_question("measure", question).line
    assert line == (
        "trnbench measure train --suite full --device cpu --host-devices 4 --budget 90s "
        "--decoder layers=2,micro-batch=4,precision=fp32"
    )
    assert asked_by(line) == question


def test_a_calibration_is_asked_again(asked_by, tmp_path):
    question = CalibrateQuestion(
        measurements=(tmp_path / "a,b.csv", tmp_path / "run.log"),
        stack="mine",
        start="eager",
        also=("a", "b"),
        date=DAY,
        given=GivenRun(
            model="llama3.1-8b",
            on="trn1.32xlarge:2",
            layout=PartialLayout(tp=8, sequence_parallel=False, precision="bf16-master"),
        ),
    )
    line = command_question("calibrate", question).line
    assert " --stack mine --from eager --also a,b --date 2026-11-21 " in line
    assert asked_by(line) == question


def test_claims_are_asked_again(asked_by):
    question = ClaimsQuestion(
        claims=("trn1-bf16", "trn3-compute"), price_date=DAY, region="us-west-2"
    )
    line = command_question("claims", question).line
    assert line == (
        "trnbench claims trn1-bf16 trn3-compute --price-date 2026-11-21 --region us-west-2"
    )
    assert asked_by(line) == question

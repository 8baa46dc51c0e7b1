"""Numbers of memory fitted to rows: found again where rows tell them, else left where they were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trnbench.evidence.fit.memory import HeldRow, fit_memory, fits_by_stack
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.catalog.provenance import Evidence
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout, ZeroStage
from trnbench.predict.fit import LayoutMemory
from trnbench.predict.setup import train_setup
from trnbench.program.step import training_step

SETUP = train_setup(open_catalog(environment={}), "llama2-7b", "p5.48xlarge", 1)
PLAIN = replace(
    SETUP.stack.provenance,
    evidence={
        key: one
        for key, one in SETUP.stack.provenance.evidence.items()
        if not key.startswith("memory.")
    },
)
RANGES = {"whole": (1.0, 0.85, 1.2), "states": (1.0, 0.9, 1.3), "activations": (1.2, 0.9, 1.8)}
STAGES: tuple[ZeroStage, ...] = (0, 1)
LAYOUTS = [
    Layout(
        tp=tp,
        dp=8 // tp,
        micro_batch=micro_batch,
        global_batch=64,
        sequence=4096,
        precision="bf16-master",
        sequence_parallel=tp > 1,
        zero=zero,
    )
    for tp in (2, 4, 8)
    for zero in STAGES
    for micro_batch in (1, 2, 4)
]


def stack_with(**changes):
    """The stack with ranges of its memory; `changes` are other values within them."""
    known: Evidence = SETUP.stack.provenance.evidence["fragmentation"]
    evidence = dict(PLAIN.evidence)
    for name, (_, low, high) in RANGES.items():
        evidence[f"memory.{name}"] = replace(known, low=low, high=high)
    values = {name: value for name, (value, _, _) in RANGES.items()} | changes
    return replace(
        SETUP.stack,
        memory=MemoryOverheads(**values),
        provenance=replace(SETUP.stack.provenance, evidence=evidence),
    )


def rows_of(truth, factors=1.0):
    """Rows of a stack whose software truly holds what `truth` says, times some factors."""
    made = []
    for number, (layout, factor) in enumerate(
        zip(LAYOUTS, np.broadcast_to(factors, len(LAYOUTS)), strict=True)
    ):
        program = training_step(SETUP.model, layout)
        memory = LayoutMemory(program=program, platform=SETUP.platform, stack=stack_with())
        measured = float(memory.bytes_by(truth, "first")) * float(factor)
        made.append(
            HeldRow(
                id=f"row-{number}",
                configuration=f"row-{number}",
                memory=memory,
                of="first",
                measured_bytes=measured,
            )
        )
    return made


TRUTH = {"memory.states": 1.15, "memory.activations": 1.6}


def test_what_rows_tell_is_found():
    found = fit_memory(rows_of(TRUTH))
    assert found.error < 0.02 < 0.1 < found.prior
    assert found.without_configuration < 0.03
    # What is of all numbers together is told apart from the others by no row.
    whole = found.moved["memory.whole"].value
    for key, value in TRUTH.items():
        one, (_, low, high) = found.moved[key], RANGES[key.removeprefix("memory.")]
        assert whole * one.value == pytest.approx(value, rel=0.03)
        assert one.low < one.value < one.high
        assert one.high / one.low < high / low


def test_an_outlier_moves_little():
    factors = np.ones(len(LAYOUTS))
    factors[4] = 0.4
    plain, odd = fit_memory(rows_of(TRUTH)), fit_memory(rows_of(TRUTH, factors))
    for key in TRUTH:
        assert odd.moved[key].value == pytest.approx(plain.moved[key].value, rel=0.04)


def test_each_side_of_the_whole_is_as_wide_as_left_out_rows_ask():
    # Every fourth row holds half as much again, none less: the interval reaches up alone.
    factors = np.where(np.arange(len(LAYOUTS)) % 4 == 0, 1.5, 1.0)
    found = fit_memory(rows_of({}, factors))
    one = found.moved["memory.whole"]
    assert one.high / one.value > 1.25
    assert one.value / one.low < 1.25


def test_the_interval_of_a_row_left_out_is_as_wide_as_rows_scatter():
    scatter = np.exp(0.2 * np.random.default_rng(1).standard_normal(len(LAYOUTS)))
    wide, narrow = fit_memory(rows_of({}, scatter)), fit_memory(rows_of(TRUTH))
    one = narrow.moved["memory.whole"]
    assert one.high / one.low < 1.2 / 0.85
    # Half the interval of 0.2 is 0.26 in the logarithm.
    for known in wide.left_out.values():
        assert known.low is not None
        assert known.high is not None
        assert 0.18 < math.log(known.high / known.low) / 2 < 0.4


def test_a_fit_that_is_no_better_on_rows_left_out_moves_no_number():
    # One of two holds much more, the other much less: each tells a lie about the other.
    found = fit_memory(
        rows_of({}, [1.5, *([1.0] * (len(LAYOUTS) - 2)), 1 / 1.5])[:: len(LAYOUTS) - 1]
    )
    assert found.rows == 2
    assert found.without_configuration > found.prior
    assert {*found.moved} == {"memory.whole"}
    assert found.moved["memory.whole"].value == 1.0
    assert found.error == found.prior
    assert {one.ratio for one in found.left_out.values()} == {1.0}


def test_stacks_that_say_nothing_of_their_software_are_left_alone():
    rows = rows_of({})
    plain = [replace(row.memory.stack, memory=MemoryOverheads()) for row in rows]
    silent = replace(plain[0], provenance=PLAIN)
    unsaid = [
        HeldRow(
            id=row.id,
            configuration=row.configuration,
            memory=LayoutMemory(program=row.memory.program, platform=SETUP.platform, stack=silent),
            of="first",
            measured_bytes=row.measured_bytes,
        )
        for row in rows
    ]
    assert fits_by_stack(unsaid) == {}
    assert set(fits_by_stack(rows)) == {SETUP.stack.name}

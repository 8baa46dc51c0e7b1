"""What is new is refused by name until it has a price, a rule and an arithmetic of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from trnbench.engines.analytic.matrix.time import matrix_time
from trnbench.engines.analytic.step.compute import compute_time
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.engines.execute.operations import runner
from trnbench.errors import GapError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ComputeEfficiency
from trnbench.facts.calibration.training_stack import load_chip_efficiency, training_stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.figures import figures
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.machine.fabric import build_fabric
from trnbench.machine.tiling.legality import format_reasons
from trnbench.program.backward import derive
from trnbench.program.collective import bus_factor
from trnbench.program.matrix import matrix_product
from trnbench.program.ops import Elementwise, Operation
from trnbench.program.schedule import slot_order
from trnbench.program.slots import purpose_of, slot_of
from trnbench.program.step import StepProgram, training_step
from trnbench.program.tensor import Tensor, one

CATALOG = open_catalog()
TRN1 = load_platform(CATALOG, "trn1.32xlarge")
EFFICIENCY = ComputeEfficiency(
    chip=load_chip_efficiency(CATALOG, "trainium1"),
    kernels=training_stack_of(CATALOG, "trn1.32xlarge").kernels,
)
LAYOUT = Layout(tp=8, global_batch=8, sequence=4096, precision="bf16-master")


class Scan(Record, eq=False):
    """A new operation: a recurrence along the sequence, which nobody has taught the engines."""

    name: str = "mixer.scan"
    phase: str = "F"
    region: str = ""
    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] = ()
    count: FloatArray = field(default_factory=one)


SCAN = cast(Operation, Scan())


def program_with_scan() -> StepProgram:
    program = training_step(load_model(CATALOG, "llama3.1-8b"), LAYOUT)
    block = program.blocks["dense"]
    passes = replace(block.passes, forward=(*block.passes.forward, SCAN))
    return replace(program, blocks={**program.blocks, "dense": replace(block, passes=passes)})


def test_a_new_operation_needs_a_price():
    with pytest.raises(GapError, match=r"Scan 'mixer\.scan' has no price"):
        compute_time(program_with_scan(), TRN1.chip, EFFICIENCY)


def test_a_new_operation_needs_a_backward_rule():
    program = training_step(load_model(CATALOG, "llama3.1-8b"), LAYOUT)
    with pytest.raises(GapError, match=r"Scan 'mixer\.scan' has no backward rule"):
        derive(program.grid, [SCAN], outputs=())


def test_a_new_operation_needs_its_flop_counted():
    with pytest.raises(GapError, match=r"Scan 'mixer\.scan' has no count of its FLOP"):
        _ = program_with_scan().blocks["dense"].model_flop


def test_a_new_operation_needs_an_arithmetic():
    with pytest.raises(GapError, match=r"Scan 'mixer\.scan' has no arithmetic"):
        runner(cast(Any, None), SCAN)


def test_a_new_function_needs_a_derivative():
    program = training_step(load_model(CATALOG, "llama3.1-8b"), LAYOUT)
    block = program.blocks["dense"]
    known = next(op for op in block.ops if isinstance(op, Elementwise))
    unknown = replace(known, function="swish9")
    with pytest.raises(GapError, match="'swish9' has no derivative"):
        derive(program.grid, [unknown], outputs=())


def test_a_new_level_of_fabric_needs_links_and_a_figure():
    dragonfly = SimpleNamespace(name="dragonfly", chips=16)
    instance = replace(TRN1.instance, fabric=(cast(Any, dragonfly),))
    with pytest.raises(GapError, match="'dragonfly' has no number of units"):
        build_fabric(instance)
    platform = replace(TRN1, instance=instance)
    with pytest.raises(GapError, match="'dragonfly' has no bandwidth"):
        figures(platform)


class TensorProcessors:
    """A new kind of compute unit: it answers what every kind does, and has no prices."""

    clock_hz = 1e9
    formats = ("bf16",)
    fast_formats = logical_sizes = ()
    separate_cores = 1
    has_kernels = False

    def cores_per_rank(self, logical_size: int | None) -> int:
        return 1

    def peak_flop_per_s(self, number_format: str) -> float:
        return 1e15

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        return ("tensor_processors.rate",)


def test_a_new_kind_of_compute_unit_needs_prices_and_a_machine():
    unit = cast(Any, TensorProcessors())
    chip = replace(TRN1.chip, name="new", cores=None, multiprocessors=unit)
    product = matrix_product(64, 64, 64)
    with pytest.raises(GapError, match="TensorProcessors has no time of a matrix product"):
        matrix_time(product, chip)
    with pytest.raises(GapError, match="TensorProcessors has no machine"):
        run_matrix(product, chip)
    with pytest.raises(GapError, match="TensorProcessors has no rule for two formats"):
        format_reasons(matrix_product(1, 1, 1, format_b="fp32"), chip, "native")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: slot_of(cast(Any, "B_norm"), split=False), "'B_norm' has no slot"),
        (lambda: purpose_of("hsdp"), "'hsdp' has no purpose"),
        (lambda: bus_factor(cast(Any, "scan"), 8), "'scan' has no bus factor"),
        (
            lambda: slot_order(cast(Any, "dualpipe"), pp=4, micro_batches=8),
            "'dualpipe' has no number of forward slots",
        ),
    ],
)
def test_a_new_phase_axis_collective_or_schedule_is_refused_by_name(ask, message):
    with pytest.raises(GapError, match=message):
        ask()


def test_nothing_of_this_stands_in_the_way_of_the_known():
    program = training_step(load_model(CATALOG, "llama3.1-8b"), LAYOUT)
    computed = compute_time(program, TRN1.chip, EFFICIENCY)
    assert np.all(computed.blocks["dense"].seconds() > 0)

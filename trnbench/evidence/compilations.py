"""Compilations that worked or were refused, beside the size of their graph and its time.

A row with all shapes of a model is lowered and counted; one that states only its parameters counts
the products of these. Training on a machine of the catalogue must fit in memory too, as the
compiler refuses what does not. A row that went through and failed later counts as compiled.
"""

from __future__ import annotations

from typing import TypeAlias

from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison, Contrast
from trnbench.evidence.model_of import Models, shape_of
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet, RowFault
from trnbench.facts.calibration.compiler import Compiler, compiler_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.compile_time import compile_time_s
from trnbench.predict.graph_size import (
    MICRO_BATCH_PHASES,
    GraphSize,
    graph_of_parameters,
    graph_size,
)
from trnbench.predict.prices import program_of
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.predict.step import fit_probability

COMPILATIONS: EvidenceSet = "neuron_compile"
_CHIPS = {"trn1": "trainium1", "trn2": "trainium2", "trn3": "trainium3"}
_OUTCOMES = {"compiled": "measured", "refused": "crashed_or_oom"}
_OPERATOR = "failed: operator instructions"
MachineSetups: TypeAlias = Memo[tuple[str, int | None], TrainSetup | None]
"""Set-ups by instance and logical size, which rows share but for their model."""


def compare_compilations(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Every row of a file of compilations beside its prediction."""
    models, machines = Models(catalog), MachineSetups()
    return tuple(_compared(models, machines, file, row) for row in file.rows)


def _compared(
    models: Models, machines: MachineSetups, file: EvidenceFile, row: EvidenceRow
) -> Comparison:
    blank = Comparison.of_row(file, row, model="model", system="instance")
    if blank.reason is not None:
        return blank
    blank = replace(blank, family=row.text("pass"), precision="bf16", fitted=blank.use == "fit")
    try:
        return _predicted(models, machines, row, blank)
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _predicted(
    models: Models, machines: MachineSetups, row: EvidenceRow, blank: Comparison
) -> Comparison:
    outcome = _OUTCOMES.get(row.needed("outcome"))
    if outcome is None:
        raise RowFault(f"outcome: {row.text('outcome')} tells neither")
    chip, compiler = _compiler(models.catalog, row.needed("chip"))
    sequence, training = row.whole("seq"), row.text("pass") == "training"
    sequences = row.whole_if_said("mbs") or 1
    tp, pp = row.whole_if_said("tp") or 1, row.whole_if_said("pp") or 1
    layout = Layout(
        tp=tp,
        pp=pp,
        micro_batch=sequences,
        global_batch=sequences,
        sequence=sequence,
        precision="bf16",
        job=row.text("job") or "pretrain",  # type: ignore[arg-type]
        adapter_rank=row.whole_if_said("adapter_rank"),
        adapter_on=row.text("adapter_on") or None,  # type: ignore[arg-type]
        recompute=row.text("recompute") or "none",
    )
    shape, chance = shape_of(row), 1.0
    if shape.missing:
        size = graph_of_parameters(row.positive("parameters") / (tp * pp), layout, chip, compiler)
        if training:
            raise RowFault(f"{', '.join(shape.missing)}: not given")
    else:
        model = models.of(row.needed("model"), shape, sequence).model
        setup = None
        if training:
            where = row.text("instance"), row.whole_if_said("lnc")
            setup = machines.of(where, lambda: _machine(models.catalog, model, *where))
        # A graph is the same on any number of replicas: one program tells its size and its memory.
        whole = layout if setup is None else _on_all_ranks(layout, setup)
        program = program_of(model, whole)
        if refused := program.refusals():
            raise RowFault("; ".join(refused))
        size = graph_size(program, chip, compiler, MICRO_BATCH_PHASES if training else ("F",))
        if setup is not None:
            fits = fit_probability(replace(setup, model=model), whole)
            chance = 1.0 if fits is None else fits
    found = replace(
        blank,
        layout=f"tp {tp} pp {pp} micro-batch {sequences} sequence {sequence}",
        outcome=outcome,
        fit_probability=size.passes(compiler) * chance,
        instructions=_sizes(row, size),
    )
    if not training or not row.said("compile_s") or outcome != "measured":
        return found
    centre, low, high = compile_time_s(compiler, size.instructions)
    return replace(
        found, measured_s=row.positive("compile_s"), predicted_s=centre, low_s=low, high_s=high
    )


def _compiler(catalog: Catalog, generation: str) -> tuple[Chip, Compiler]:
    name = _CHIPS.get(generation, "")
    compiler = compiler_of(catalog, name)
    if compiler is None:
        raise RowFault(f"chip: no compiler is known for {generation}")
    return load_chip(catalog, name), compiler


def _sizes(row: EvidenceRow, size: GraphSize) -> Contrast:
    """The published count beside that of the operation or the graph it is of."""
    measured = row.positive_if_said("instructions")
    if row.text("said") == _OPERATOR:
        size = replace(size, instructions=size.operator_instructions)
    return Contrast(measured, size.instructions, *size.interval())


def _machine(catalog: Catalog, model: Model, name: str, lnc: int | None) -> TrainSetup | None:
    """One instance of a name with a model; None where the catalogue lacks it."""
    instance = load_published(catalog, name, "")
    if instance is None:
        return None
    return train_setup(catalog, model, instance.name, 1, logical_size=lnc)


def _on_all_ranks(layout: Layout, setup: TrainSetup) -> Layout:
    assert isinstance(setup.platform.chip.unit, NeuronCores)
    dp = max(1, setup.ranks // (layout.tp * layout.pp))
    return replace(layout, dp=dp, global_batch=dp * layout.micro_batch)

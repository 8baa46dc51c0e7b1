"""Compilations that worked or were refused, beside the size of their graph and its time.

A row with all shapes of a model is lowered and counted; one that states only its parameters counts
the products of these. Training on a machine of the catalogue must fit in memory too, as the
compiler refuses what does not. A row that went through and failed later counts as compiled.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.analytic.step.memory import stage_parts
from trnbench.engines.analytic.step.memory_parts import StageParts
from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison, Contrast
from trnbench.evidence.lowered import LoweredLayout, lowered_alike
from trnbench.evidence.model_of import Models, shape_of
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, EvidenceSet, RowFault
from trnbench.evidence.step_row import RunOutcome
from trnbench.facts.calibration.compiler import Compiler, compiler_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Model
from trnbench.predict.compile_time import compile_time_s
from trnbench.predict.graph_size import (
    MICRO_BATCH_PHASES,
    GraphSize,
    StepGraphs,
    graph_of_parameters,
)
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.predict.step import layout_memory, refusals
from trnbench.program.grid import grid_of
from trnbench.program.job_phases import phases_of
from trnbench.program.step import StepProgram

COMPILATIONS: EvidenceSet = "neuron_compile"
_CHIPS = {"trn1": "trainium1", "trn2": "trainium2", "trn3": "trainium3"}
_OUTCOMES: Mapping[str, RunOutcome] = {"compiled": "measured", "refused": "crashed_or_oom"}
_OPERATOR = "failed: operator instructions"


def compare_compilations(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    """Every row of a file of compilations beside its prediction."""
    reader = _Reader(Models(catalog))
    read = [reader.graph_or_reason(row) for row in file.rows]
    whole = [one for one in read if not isinstance(one, str) and one.model is not None]
    lowered = lowered_alike((one.model, one.on_all_ranks) for one in whole if one.model)
    graphs = _Graphs(dict(zip(whole, lowered, strict=True)))
    return tuple(
        _compared(graphs, file, row, one) for row, one in zip(file.rows, read, strict=True)
    )


class _RowGraph(Record, eq=False):
    """What a row compiled."""

    outcome: RunOutcome
    training: bool
    chip: Chip
    compiler: Compiler
    layout: Layout
    parameters: float | None = None
    """Of the model, where its shapes are not known; else there is a `model`."""
    model: Model | None = None
    setup: TrainSetup | None = None
    """Machine of a training; None where the catalogue lacks it."""

    @property
    def on_all_ranks(self) -> Layout:
        # A graph is the same on any number of replicas: one program tells its size and its memory.
        if self.setup is None:
            return self.layout
        dp = max(1, self.setup.ranks // int(self.layout.tp * self.layout.pp))
        return replace(self.layout, dp=dp, global_batch=dp * self.layout.micro_batch)


class _Reader(State, kw_only=False):
    """Converter of rows into graphs."""

    models: Models
    machines: Memo[tuple[str, int | None], TrainSetup | None] = field(default_factory=Memo)
    """Set-ups by instance and logical size, which rows share but for their model."""
    compilers: Memo[str, tuple[Chip, Compiler]] = field(default_factory=Memo)

    def graph_or_reason(self, row: EvidenceRow) -> _RowGraph | str:
        try:
            return self._graph(row)
        except (RowFault, InputError) as fault:
            return str(fault)

    def _graph(self, row: EvidenceRow) -> _RowGraph:
        if row.fault is not None:
            raise RowFault(row.fault)
        outcome = _OUTCOMES.get(row.needed("outcome"))
        if outcome is None:
            raise RowFault(f"outcome: {row.text('outcome')} tells neither")
        generation = row.needed("chip")
        chip, compiler = self.compilers.of(
            generation, lambda: _compiler(self.models.catalog, generation)
        )
        sequence, training = row.whole("seq"), row.text("pass") == "training"
        sequences = row.whole_if_said("mbs") or 1
        layout = Layout(
            tp=row.whole_if_said("tp") or 1,
            pp=row.whole_if_said("pp") or 1,
            micro_batch=sequences,
            global_batch=sequences,
            sequence=sequence,
            precision="bf16",
            job=row.text("job") or "pretrain",  # type: ignore[arg-type]
            adapter_rank=row.whole_if_said("adapter_rank"),
            adapter_on=row.text("adapter_on") or None,  # type: ignore[arg-type]
            recompute=row.text("recompute") or "none",
        )
        read = _RowGraph(
            outcome=outcome, training=training, chip=chip, compiler=compiler, layout=layout
        )
        shape = shape_of(row)
        if shape.missing:
            parameters = row.positive("parameters")
            if training:
                raise RowFault(f"{', '.join(shape.missing)}: not given")
            return replace(read, parameters=parameters)
        model, setup = self.models.of(row.needed("model"), shape, sequence).model, None
        if training:
            where = row.text("instance"), row.whole_if_said("lnc")
            setup = self.machines.of(where, lambda: _machine(self.models.catalog, model, *where))
        return replace(read, model=model, setup=setup and replace(setup, model=model))


class _Graphs(State, kw_only=False):
    """Sizes and memory of the graphs of rows; those that are lowered together are counted so."""

    lowered: Mapping[_RowGraph, LoweredLayout]
    _counted: Memo[tuple[StepProgram, bool, str], StepGraphs] = field(default_factory=Memo)
    _parts: Memo[StepProgram, tuple[StageParts, ...]] = field(default_factory=Memo)

    def size(self, read: _RowGraph) -> GraphSize:
        """Size of the largest graph of a row; RowFault where the layout does not divide."""
        layout, chip, compiler = read.layout, read.chip, read.compiler
        if read.model is None:
            assert read.parameters is not None
            return graph_of_parameters(
                read.parameters / int(layout.tp * layout.pp), layout, chip, compiler
            )
        one = self.lowered[read]
        if refused := one.refusals(read.model):
            raise RowFault("; ".join(refused))
        program, phases = one.program, MICRO_BATCH_PHASES if read.training else ("F",)
        return self._counted.of(
            (program, read.training, chip.name),
            lambda: StepGraphs(program=program, chip=chip, compiler=compiler, phases=phases),
        ).largest(one.index)

    def fit_probability(self, read: _RowGraph) -> float:
        """Probability that a training fits in memory; 1 where nothing tells."""
        setup, layout = read.setup, read.on_all_ranks
        if setup is None:
            return 1.0
        one = self.lowered[read]
        alone = replace(one.program, layout=layout, grid=grid_of(layout), reasons=())
        if refusals(setup, alone):
            return 1.0
        return min(self._fits(setup, one, of.program) for of in phases_of(one.program))

    def _fits(self, setup: TrainSetup, one: LoweredLayout, program: StepProgram) -> float:
        known = layout_memory(setup, program)
        parts = self._parts.of(program, lambda: stage_parts(program))
        return replace(known, index=one.index, parts=parts).fit_probability


def _compared(
    graphs: _Graphs, file: EvidenceFile, row: EvidenceRow, read: _RowGraph | str
) -> Comparison:
    blank = Comparison.of_row(file, row, model="model", system="instance")
    if blank.reason is not None:
        return blank
    blank = replace(blank, family=row.text("pass"), precision="bf16", fitted=blank.use == "fit")
    if isinstance(read, str):
        return replace(blank, reason=read)
    try:
        return _predicted(graphs, row, read, blank)
    except (RowFault, InputError) as fault:
        return replace(blank, reason=str(fault))


def _predicted(graphs: _Graphs, row: EvidenceRow, read: _RowGraph, blank: Comparison) -> Comparison:
    size, layout, compiler = graphs.size(read), read.layout, read.compiler
    found = replace(
        blank,
        layout=f"tp {layout.tp} pp {layout.pp} micro-batch {layout.micro_batch} "
        f"sequence {layout.sequence}",
        outcome=read.outcome,
        fit_probability=size.passes(compiler) * graphs.fit_probability(read),
        instructions=_sizes(row, size),
    )
    if not read.training or not row.said("compile_s") or read.outcome != "measured":
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

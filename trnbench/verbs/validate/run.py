"""The validation use case: published or own measurements beside what the models say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from trnbench.engines.analytic.step.kept_forms import keep_all_forms
from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.collectives import compare_collectives
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.compilations import COMPILATIONS, compare_compilations
from trnbench.evidence.fit.left_out import without_its_configuration, without_its_family
from trnbench.evidence.gpu_kernels import compare_gpu_kernels
from trnbench.evidence.kernels import ATTENTION, compare_kernels, compare_measured_kernels
from trnbench.evidence.model_of import refuse_unknown_model
from trnbench.evidence.rows import (
    COLLECTIVES,
    GPU_KERNELS,
    KERNELS,
    STEPS,
    STEPS_BY_MACHINE,
    EvidenceFile,
    EvidenceSet,
    parts_of,
    read_evidence,
)
from trnbench.evidence.statistics import summarise
from trnbench.evidence.step_comparison import compare_files
from trnbench.evidence.training_cases import Reader
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.calibration.population import Population, load_population, transfer_named
from trnbench.facts.calibration.stack_of import refuse_unknown_stack
from trnbench.facts.calibration.training_stack import (
    FitErrors,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
)
from trnbench.facts.catalog.search import Catalog, UnchangingCatalog, built_in_folder
from trnbench.facts.hardware.library import load_instance, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.parsing import names
from trnbench.facts.records import State, field
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.measured_files import measured_files
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.measure.machine import with_machines
from trnbench.verbs.validate.answer import ScoredSet
from trnbench.verbs.validate.question import ValidateQuestion

SETS: Mapping[str, tuple[EvidenceSet, ...]] = {
    "trainium": ("trainium_training",),
    "gpu": ("gpu_training",),
    "collectives": COLLECTIVES,
    "kernels": ("trainium_kernels", "measured_kernels"),
    "attention": (ATTENTION,),
    "gpu-kernels": (GPU_KERNELS,),
    "compile": (COMPILATIONS,),
}
"""What users choose from -> the kinds of rows in it."""
FAMILIES = ("families_2026", "hf_one_gpu", "nanotron_steps", "rl_steps")
"""Files of software that few rows or none are fitted to."""
SHIPPED: Mapping[str, tuple[str, ...]] = {
    "trainium": ("trainium_steps", "trainium_steps_2026", "torchneuron_steps", "trainium_refusals"),
    "gpu": ("gpu_steps", "mlperf_lora", "bridge_steps", "bridge_efa", *FAMILIES),
    "collectives": ("trainium_collectives", "gpu_collectives"),
    "kernels": ("trainium_kernels", "trainium_products_2026", "attention_kernels"),
    "attention": ("attention_kernels", "trainium_kernels"),
    "gpu-kernels": ("gpu_kernels",),
    "compile": ("neuron_compile",),
}
"""What users choose from -> the published files with rows of it."""

PLAYED = ("kernels", "attention")
"""The sets that the emulator plays."""
_COMPARE: Mapping[EvidenceSet, Callable[[Catalog, EvidenceFile], tuple[Comparison, ...]]] = {
    **dict.fromkeys(COLLECTIVES, compare_collectives),
    "trainium_kernels": compare_kernels,
    "measured_kernels": compare_measured_kernels,
    GPU_KERNELS: compare_gpu_kernels,
    COMPILATIONS: compare_compilations,
}


def run(
    catalog: Catalog, question: ValidateQuestion, *, progress: Progress = quiet
) -> tuple[ScoredSet, ...]:
    """Return measured and predicted figures, row by row, with statistics of the errors of each set.

    `evidence`: CSV files of measurements, output of nccom-test and nccl-tests, logs of steps with
    `model`, place (`on`) and layout, or folders. Default: the shipped ones. `set`: only these sets,
    of trainium, gpu, collectives, kernels, attention, gpu-kernels and compile. `model` and `on`
    (INSTANCE[:NODES]) fill columns that files of steps lack; `stack` is that of rows whose software
    no stack names. `engine` "emulate" simulates kernels, of the sets kernels and attention alone.

    >>> from trnbench import validate
    >>> (kernels,) = validate(set="kernels")
    >>> kernels.name, len(kernels.rows)
    ('kernels', 124)
    """
    played, given, stack = question.engine == "emulate", question.given, question.stack
    sets: tuple[str, ...] = PLAYED if played else ()
    if question.sets:
        sets = names("--set", ",".join(question.sets))
    for name in sets:
        if name not in SETS:
            raise UnknownNameError("set of measurements", name, SETS)
    wanted = [name for name in SETS if not sets or name in sets]
    if played and {*wanted} - {*PLAYED}:
        raise InputError("--engine emulate plays kernels: take --set kernels or --set attention")
    if given.instance is not None and load_published(catalog, given.instance, "") is None:
        load_instance(catalog, given.instance)  # says that there is none of this name
    if given.model is not None:
        refuse_unknown_model(catalog, given.model)
    if question.evidence:
        read = measured_files(catalog, question.evidence, given)
    else:
        read = shipped_evidence(wanted)
    catalog = with_machines(UnchangingCatalog(catalog.folders), read)
    files = [part for file in read for part in parts_of(file)]
    otherwise = None if stack is None else refuse_unknown_stack(catalog, stack)
    reader = Reader(catalog, otherwise=otherwise)
    steps = compare_files(reader, [file for file in files if file.set == STEPS])
    fits, compared = _Fits(catalog), dict[str, list[Comparison]]()
    sources: dict[str, list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for i, file in enumerate(files):
        progress(i, len(files), file.name)
        if file.set == STEPS and not played:
            rows = next(steps)
        else:
            rows = _compared(catalog, file, played=played)
        for row in rows:
            if not question.evidence and not played:
                row = fits.without(row)
            compared.setdefault(_name_of(row), []).append(row)
            named = sources.setdefault(_name_of(row), [])
            if file.name not in named:
                named.append(file.name)
                remarks.setdefault(_name_of(row), []).extend(file.remarks)
    keep_all_forms()
    if not any(name in compared for name in wanted):
        raise InputError(f"none of the files belongs to the set {' or '.join(sets)}")
    return tuple(
        ScoredSet(
            name=name,
            files=tuple(sources[name]),
            rows=tuple(compared[name]),
            remarks=tuple(remarks.get(name, ())),
            summary=summarise(compared[name]),
            fits=_fits(catalog, compared[name]),
        )
        for name in wanted
        if name in compared
    )


validate = verb_of("validate", ValidateQuestion, run)


def _fits(catalog: Catalog, rows: Sequence[Comparison]) -> Mapping[str, FitErrors]:
    """Return the quality of the fits behind fitted rows, by the stacks' names."""
    steps = (row for row in rows if row.set in STEPS_BY_MACHINE)
    names = dict.fromkeys(row.stack for row in steps if row.fitted and row.stack)
    found = {name: load_training_stack(catalog, name).fit for name in names}
    return {name: fit for name, fit in found.items() if fit is not None}


class _Fits(State, kw_only=False):
    """Numbers set from shipped rows, each read once for all rows."""

    catalog: Catalog
    _stacks: Memo[str, TrainingStack] = field(default_factory=Memo)
    _chips: Memo[str, str] = field(default_factory=Memo)
    _kernels: Memo[str, ChipEfficiency] = field(default_factory=Memo)

    @cached_property
    def _population(self) -> Population | None:
        return load_population(self.catalog)

    def without(self, row: Comparison) -> Comparison:
        """A shipped row as it is predicted where no number was set from its configuration."""
        if row.set in STEPS_BY_MACHINE and row.stack is not None:
            return self._step_without(row, row.stack)
        if row.fitted and row.platform in self.catalog.names("chips"):
            return without_its_configuration(row, self._efficiency(row.platform).left_out)
        return row

    def _step_without(self, row: Comparison, name: str) -> Comparison:
        stack = self._stacks.of(name, lambda: load_training_stack(self.catalog, name))
        population = self._population
        if row.rests_on == "population" and population is not None:
            return without_its_family(row, population.of(row.kind), row.software)
        if row.rests_on == "carried over" and stack.inherits_from and population is not None:
            chip = self._chip_of(row.platform or "")
            transfer = transfer_named(row.software, stack.inherits_from, chip)
            return without_its_family(row, population.carried, transfer)
        return without_its_configuration(row, stack.left_out, stack.memory_left_out)

    def _chip_of(self, instance: str) -> str:
        return self._chips.of(instance, lambda: load_instance(self.catalog, instance).chip)

    def _efficiency(self, chip: str) -> ChipEfficiency:
        return self._kernels.of(chip, lambda: load_chip_efficiency(self.catalog, chip))


def _compared(catalog: Catalog, file: EvidenceFile, *, played: bool) -> tuple[Comparison, ...]:
    if played:
        return compare_kernels(catalog, file, played=True) if file.set == KERNELS else ()
    return _COMPARE[file.set](catalog, file)


def shipped_evidence(wanted: Sequence[str]) -> list[EvidenceFile]:
    """Return the published files with rows of some sets."""
    folder = built_in_folder() / "workloads" / "published"
    kinds = dict.fromkeys(kind for name in wanted for kind in SHIPPED[name])
    return [read_evidence(folder / f"{kind}.csv") for kind in kinds]


def _name_of(row: Comparison) -> str:
    return next(name for name, kinds in SETS.items() if row.set in kinds)

"""Kinds of models that run with a training stack on an instance, with the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.calibration.training_stack import TrainingStack, load_training_stack
from trnbench.facts.calibration.transfer import entries_of
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.workload.choices import JOBS, Job
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.setup import beyond, family_of, support_of
from trnbench.program.features import feature_of
from trnbench.verbs.info.text import SupportCell, SupportStatus
from trnbench.verbs.validate.run import shipped_evidence

_OPEN = PartialLayout()


def support(*, catalog: Catalog | None = None) -> tuple[SupportCell, ...]:
    """Return a cell for every kind of model, training stack and instance that the stack names.

    A kind is as well supported as the best supported of its models.

    >>> from trnbench.verbs.info.support import support
    >>> next(cell.status for cell in support() if cell.measured_rows)
    'fitted'
    """
    catalog = catalog or open_catalog()
    kinds: dict[str, list[Model]] = {}
    for name in catalog.names("models"):
        model = load_model(catalog, name)
        kinds.setdefault(family_of(model), []).append(model)
    counts = _measured(catalog)
    return tuple(
        _cell(stack, instance, models, counts[stack.name, instance, family])
        for stack in (load_training_stack(catalog, name) for name in _stacks(catalog))
        for instance in stack.instances
        for family, models in sorted(kinds.items())
    )


def jobs_supported(*, catalog: Catalog | None = None) -> tuple[SupportCell, ...]:
    """Return a cell for every training stack and job.

    >>> from trnbench.verbs.info.support import jobs_supported
    >>> next(cell.status for cell in jobs_supported() if cell.job == "pretrain")
    'fitted'
    """
    catalog = catalog or open_catalog()
    ran = Counter[tuple[str, str]]()
    fitted = set()
    for case in _ran(catalog):
        key = case.setup.stack.name, case.layout.job
        ran[key] += 1
        if case.step.use == "fit":
            fitted.add(key)
    stacks = [load_training_stack(catalog, name) for name in _stacks(catalog)]
    return tuple(
        _job_cell(stack, job, ran[stack.name, job], fitted=(stack.name, job) in fitted)
        for stack in stacks
        for job in JOBS
    )


def _job_cell(stack: TrainingStack, job: Job, measured_rows: int, *, fitted: bool) -> SupportCell:
    of_job = support_of(stack, feature_of(KNOBS["job"], job))
    status: SupportStatus = "modelled" if of_job.status == "runs" else of_job.status
    if fitted and status != "refused":
        status = "fitted"
    return SupportCell(
        job=job,
        stack=stack.short_name,
        status=status,
        measured_rows=measured_rows,
        reason=of_job.words or None,
    )


def _stacks(catalog: Catalog) -> Sequence[str]:
    return sorted({entry.name for entry in entries_of(catalog, "training-")})


def _cell(
    stack: TrainingStack, instance: str, models: Sequence[Model], measured_rows: int
) -> SupportCell:
    family = family_of(models[0])
    status, reason = min(
        (_status(stack, model) for model in models),
        key=lambda pair: get_args(SupportStatus).index(pair[0]),
    )
    if measured_rows and status != "refused" and stack.basis_on(instance, family) == "measured":
        status = "fitted"
    return SupportCell(
        family=family,
        stack=stack.short_name,
        instance=instance,
        status=status,
        measured_rows=measured_rows,
        reason=reason,
    )


def _status(stack: TrainingStack, model: Model) -> tuple[SupportStatus, str | None]:
    supports = beyond(stack, model, _OPEN)
    refused = [each for each in supports if each.status == "refused"]
    if refused:
        return "refused", f"{refused[0].feature}: {refused[0].words}".rstrip(": ")
    return ("untested", supports[0].feature) if supports else ("modelled", None)


def _measured(catalog: Catalog) -> Mapping[tuple[str, str, str], int]:
    """Return numbers of shipped rows by stack, instance and kind of model."""
    counts = Counter[tuple[str, str, str]]()
    for setup in (case.setup for case in _ran(catalog)):
        counts[setup.stack.name, setup.platform.instance.name, family_of(setup.model)] += 1
    return counts


def _ran(catalog: Catalog) -> Iterator[EvidenceCase]:
    """Yield the shipped rows that ran with a stack of their own."""
    reader = Reader(catalog)
    for file in shipped_evidence(("trainium", "gpu")):
        for case in reader.cases(file):
            if isinstance(case, EvidenceCase) and case.setup.own_stack and case.step.ran:
                yield case

"""The validation use case: published or own measurements beside what the models say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trnbench.answers.evidence import ScoredSet
from trnbench.app.use_case import Progress, quiet
from trnbench.catalog.search import Catalog, built_in_folder, open_catalog
from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.collectives import compare_collectives
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernels import compare_kernels
from trnbench.evidence.predict import compare_training
from trnbench.evidence.rows import EvidenceFile, EvidenceSet, read_evidence
from trnbench.evidence.statistics import summarise
from trnbench.parsing import names

SETS: Mapping[str, tuple[EvidenceSet, ...]] = {
    "trainium": ("trainium_training",),
    "gpu": ("gpu_training",),
    "collectives": ("trainium_collectives", "gpu_collectives"),
    "kernels": ("trainium_kernels",),
}
"""What users choose from -> the kinds of files in it."""

_COMPARE: Mapping[EvidenceSet, Callable[[Catalog, EvidenceFile], tuple[Comparison, ...]]] = {
    "trainium_training": compare_training,
    "gpu_training": compare_training,
    "trainium_collectives": compare_collectives,
    "gpu_collectives": compare_collectives,
    "trainium_kernels": compare_kernels,
}


def validate(
    *,
    evidence: str | Path | Sequence[str | Path] = (),
    set: str | Sequence[str] = (),
    catalog: Catalog | None = None,
    progress: Progress = quiet,
) -> tuple[ScoredSet, ...]:
    """Return measured beside predicted, row by row, with statistics of the errors of each set.

    `evidence`: CSV files of measurements; the shipped ones where none is given. `set`: only these
    sets, of trainium, gpu, collectives and kernels.

    >>> from trnbench.app import validate
    >>> (kernels,) = validate(set="kernels")
    >>> kernels.name, len(kernels.rows)
    ('kernels', 84)
    """
    catalog = catalog or open_catalog()
    sets = names("--set", set) if set else ()
    files = [evidence] if isinstance(evidence, str | Path) else evidence
    for name in sets:
        if name not in SETS:
            raise UnknownNameError("set of measurements", name, SETS)
    wanted = [name for name in SETS if not sets or name in sets]
    given = [read_evidence(Path(path)) for path in files] if files else _shipped(wanted)
    chosen = [file for file in given if any(file.set in SETS[name] for name in wanted)]
    if not chosen:
        raise InputError(f"none of the files belongs to the set {' or '.join(sets)}")
    compared: dict[str, list[Comparison]] = {}
    for i, file in enumerate(chosen):
        progress(i, len(chosen), file.name)
        compared.setdefault(_name_of(file), []).extend(_COMPARE[file.set](catalog, file))
    return tuple(
        ScoredSet(
            name=name,
            files=tuple(file.name for file in chosen if _name_of(file) == name),
            rows=tuple(compared[name]),
            summary=summarise(compared[name]),
        )
        for name in wanted
        if name in compared
    )


def _shipped(wanted: Sequence[str]) -> list[EvidenceFile]:
    folder = built_in_folder() / "workloads" / "published"
    return [read_evidence(folder / f"{kind}.csv") for name in wanted for kind in SETS[name]]


def _name_of(file: EvidenceFile) -> str:
    return next(name for name, kinds in SETS.items() if file.set in kinds)

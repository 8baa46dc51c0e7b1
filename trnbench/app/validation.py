"""The validation use case: published or own measurements beside what the models say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trnbench.answers.evidence import ScoredSet
from trnbench.catalog.search import Catalog, built_in_folder
from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.collectives import compare_collectives
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernels import compare_kernels
from trnbench.evidence.predict import compare_training
from trnbench.evidence.rows import EvidenceFile, EvidenceSet, read_evidence
from trnbench.evidence.statistics import summarise

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


def validate_evidence(
    catalog: Catalog,
    *,
    files: Sequence[Path] = (),
    sets: Sequence[str] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[ScoredSet, ...]:
    """Return what the files, or the shipped measurements where none is given, say of the models.

    With `sets`, of those only.
    """
    for name in sets:
        if name not in SETS:
            raise UnknownNameError("set of measurements", name, SETS)
    wanted = [name for name in SETS if not sets or name in sets]
    read = [read_evidence(path) for path in files] if files else _shipped(wanted)
    chosen = [file for file in read if any(file.set in SETS[name] for name in wanted)]
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

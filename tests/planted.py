"""Clusters with planted causes: rows that somebody measured where something was wrong.

Truth is a prediction with a changed set-up, times 3 % noise. A kind of cause is planted at up to
five magnitudes, or in all its alternatives, wherever it moves a row by enough to be seen.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnbench.evidence.explain.causes import CauseList, CauseWay, load_causes
from trnbench.evidence.explain.change import Magnitude, Ran
from trnbench.evidence.explain.effects import Effect, Pricer
from trnbench.evidence.explain.observed import ObservedStep, StepFigure
from trnbench.evidence.explain.score import Suspect, scored
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace, tag_of
from trnbench.facts.workload.layout import Layout
from trnbench.predict.setup import train_setup

NOISE = 0.03
VISIBLE = 0.08
"""A cause that moves no row by this share is not there to be found beside the noise."""

_GPU = {"precision": "bf16-master", "zero": 1, "sequence_parallel": True, "recompute": "none"}
_TRN = {"precision": "bf16-sr", "zero": 1, "sequence_parallel": True, "recompute": "full"}
_COLUMNS = ("nodes", "tp", "pp", "dp", "micro_batch", "global_batch", "sequence")
CLUSTERS: Mapping[str, tuple[str, str, Mapping[str, Any], Sequence[tuple[Any, ...]]]] = {
    "h100": (
        *("llama3.1-8b", "p5.48xlarge", _GPU),
        (
            (1, 2, 1, 4, 1, 32, 8192),
            (8, 1, 1, 64, 1, 64, 8192, {"zero": 3, "recompute": "full"}),
            (8, 8, 1, 8, 1, 256, 4096),
            (8, 2, 1, 32, 4, 512, 2048),
            (4, 4, 2, 4, 1, 64, 32768, {"recompute": "full"}),
            (8, 4, 1, 16, 1, 128, 4096),
            (8, 4, 4, 4, 1, 64, 4096, {"vpp": 4, "schedule": "interleaved"}),
        ),
    ),
    "a100": (
        *("llama2-13b", "p4d.24xlarge", _GPU),
        (
            (1, 4, 1, 2, 1, 32, 4096),
            (8, 1, 1, 64, 1, 64, 4096, {"zero": 3, "recompute": "full"}),
            (8, 8, 1, 8, 1, 256, 2048),
            (8, 4, 1, 16, 2, 512, 2048),
            (4, 4, 2, 4, 1, 64, 8192, {"recompute": "full"}),
        ),
    ),
    "trn1": (
        *("llama2-7b", "trn1.32xlarge", _TRN),
        (
            (1, 8, 1, 4, 1, 64, 4096),
            (8, 8, 1, 32, 1, 256, 4096),
            (8, 8, 4, 8, 1, 512, 4096),
            (4, 32, 1, 4, 1, 256, 4096, {"recompute": "selective"}),
            (8, 8, 1, 32, 4, 1024, 2048),
            (8, 8, 1, 32, 1, 64, 8192),
        ),
    ),
    "trn2": (
        *("llama3.1-8b", "trn2.48xlarge", _TRN),
        (
            (1, 8, 1, 8, 1, 64, 4096),
            (8, 8, 1, 64, 1, 256, 4096),
            (8, 4, 4, 32, 1, 512, 4096),
            (4, 32, 1, 8, 1, 256, 4096, {"recompute": "selective"}),
            (8, 8, 1, 64, 4, 1024, 2048),
            (8, 8, 1, 64, 1, 128, 16384),
        ),
    ),
}
"""Model, instance, knobs of all rows; then nodes and knobs of each: a handful, as users have."""

_DOWN = (0.7, 0.55, 0.42, 0.32, 0.25)
_TIMES = (("x", 0.25), ("x", 0.5), ("x", 2), ("x", 4), ("x", 8))
_OVERLAP = (0.0, 0.1, 0.2, 0.3, 0.45)
PLANTED: Sequence[tuple[str, str, Sequence[Magnitude]]] = (
    ("network-bandwidth", "link", (0.65, 0.5, 0.4, 0.3, 0.2)),
    ("network-latency", "link", (3.0, 5.0, 8.0, 12.0, 16.0)),
    ("node-links", "link", _DOWN),
    ("tensor-across-nodes", "order", ("dp-tp-pp", "dp-pp-tp", "pp-tp-dp")),
    ("tensor-across-nodes", "apart", (2, 4, 8)),
    ("host-launch", "launch", (0.5e-3, 0.8e-3, 1.2e-3, 2e-3, 3.5e-3)),
    ("host-launch", "added", (8e-3, 15e-3, 25e-3, 40e-3, 60e-3)),
    ("tensor-clock", "scaled", (0.85, 0.75, 0.65, 0.58, 0.5)),
    ("memory-bandwidth", "scaled", _DOWN),
    ("unfused-element-wise", "scaled", (1.5, 2.0, 2.5, 3.2, 4.0)),
    ("attention-kernel", "scaled", _DOWN),
    ("recompute", "setting", ("none", "selective", "full")),
    ("micro-batch", "setting", _TIMES),
    ("global-batch", "setting", _TIMES),
    ("sequence", "setting", _TIMES[:4]),
    ("zero-stage", "setting", ("0", "1", "2", "3")),
    ("sequence-parallel", "setting", ("on", "off")),
    ("interleaving", "setting", ("1",)),
    ("precision", "setting", ("tf32", "fp32", "bf16-master", "fp8")),
    ("straggler", "straggler", (1.12, 1.2, 1.3, 1.45, 1.7)),
    ("node-jitter", "scatter", (0.04, 0.06, 0.08, 0.11, 0.15)),
    ("data-loading", "added", (5e-3, 10e-3, 20e-3, 35e-3, 60e-3)),
    ("data-loading", "least", (60e-3, 100e-3, 150e-3, 250e-3, 400e-3)),
    ("fixed-cost", "added", (0.3, 0.5, 0.8, 1.3, 2.2)),
    ("gradient-overlap", "scaled", _OVERLAP),
    ("exchange-overlap", "scaled", _OVERLAP),
    ("pipeline-overlap", "scaled", _OVERLAP),
    ("collective-library", "scaled", (1.3, 1.6, 2.0, 2.6, 3.4)),
    ("software", "scaled", (1.1, 1.2, 1.35, 1.5, 1.7)),
    ("utilization-convention", "counted", ("attention in full", "recompute", ("x", 2))),
    ("timer", "timed", (0.85, 0.75, 0.65, 0.55, 0.45)),
)
NAMED = (
    *("network-bandwidth", "node-links", "memory-bandwidth", "tensor-across-nodes", "host-launch"),
    *("recompute", "micro-batch", "global-batch", "straggler", "data-loading"),
    *("utilization-convention", "tensor-clock", "precision"),
)
"""What people meet most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planted:
    """A cause at work on a cluster, and by how much it moves each row, as logarithms."""

    cause: str
    magnitude: Magnitude
    shift: np.ndarray


class Cluster:
    """The rows of a cluster, what every cause would do to them, and planted causes."""

    def __init__(self, name: str) -> None:
        catalog = open_catalog()
        self.causes: CauseList = load_causes(catalog)
        self.pricer = Pricer()
        model, instance, shared, rows = CLUSTERS[name]
        setup = train_setup(catalog, model, instance, 1)
        steps = []
        for number, row in enumerate(rows):
            knobs = dict(zip(_COLUMNS[1:], row[1:], strict=False))
            layout = Layout(**{**shared, **knobs, **dict(*row[len(_COLUMNS) :])})
            ran = Ran(setup=replace(setup, nodes=row[0]), parts=((1.0, layout),))
            steps.append(ObservedStep(id=f"{name}-{number}", ran=ran, measured={"step": 1.0}))
        self.figures: tuple[StepFigure, ...] = self.pricer.figures(steps)
        assert len(self.figures) == len(rows)
        self.effects: tuple[Effect, ...] = self.pricer.effects(self.causes, self.figures)

    def planted(self) -> Sequence[Planted]:
        """Return every kind of cause at every magnitude that can be seen here."""
        listed = [
            (cause, self._way(cause, kind), magnitude)
            for cause, kind, magnitudes in PLANTED
            for magnitude in magnitudes
        ]
        shifts = self.pricer.shifts(self.figures, [(way, by) for _, way, by in listed])
        return [
            Planted(cause=cause, magnitude=magnitude, shift=shift)
            for (cause, _, magnitude), shift in zip(listed, np.nan_to_num(shifts), strict=True)
            if np.abs(shift).max() >= VISIBLE
        ]

    def suspects(self, shift: np.ndarray, random: np.random.Generator) -> tuple[Suspect, ...]:
        """Return what is found where something moves the rows, and noise does too."""
        noisy = shift + NOISE * random.standard_normal(len(shift))
        figures = [
            replace(figure, measured=figure.predicted * float(np.exp(moved)))
            for figure, moved in zip(self.figures, noisy, strict=True)
        ]
        return scored(self.causes, figures, self.effects)[1]

    def only(self, row: int) -> Cluster:
        """Return the cluster with one of its rows."""
        one = object.__new__(Cluster)
        one.causes, one.pricer = self.causes, self.pricer
        one.figures = self.figures[row : row + 1]
        one.effects = tuple(
            replace(effect, shift=effect.shift[row : row + 1]) for effect in self.effects
        )
        return one

    def _way(self, cause: str, kind: str) -> CauseWay:
        (listed,) = [one for one in self.causes.cause if one.id == cause]
        return next(way for way in listed.ways if tag_of(way) == kind)


@functools.cache
def cluster(name: str) -> Cluster:
    """Return a cluster, made once."""
    return Cluster(name)


def rank(suspects: Sequence[Suspect], cause: str) -> int:
    """Return the place of a cause, from 0."""
    return next((i for i, one in enumerate(suspects) if one.cause.id == cause), len(suspects))

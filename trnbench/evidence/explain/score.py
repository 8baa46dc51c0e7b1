"""Posterior probability of each cause, by all measured figures together.

Model: the log of measured over predicted is the effect of the causes at work, plus errors: the
calibration's and the stack's uncertainty, common to all rows, and each row's scatter, of unknown
size. Only a share of the calibration's deviations counts, also of unknown size: all of them would
explain away any cause that changes the same numbers. Priors come from the table of causes; none,
one or two causes may be at work, and two add up in seconds. A cause is integrated over its
magnitudes; the best-fitting one represents it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from trnbench.evidence.explain.causes import Cause, CauseList
from trnbench.evidence.explain.effects import Effect
from trnbench.evidence.explain.observed import StepFigure
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.predict.common_draws import residual_of
from trnbench.predict.ranges import END

_SCATTERS = 6
_EVERY = 3
"""Stride of the magnitudes in pairs of causes."""
_AT_ONCE = 4_000_000
"""Numbers in memory at once."""


_Errors: TypeAlias = tuple[FloatArray, FloatArray]
"""Inverse square roots of the error covariance, side by side, and their logarithmic scales.

One for each share of a calibration's deviations and each size of the row scatter.
"""


class Suspect(Record, eq=False):
    """A cause: its probability, best-fitting effect, and share of the gap."""

    cause: Cause
    probability: float
    best: Effect
    beside: Effect | None
    """Effect of the other cause where a pair fits best."""
    explained: float
    """Share of the gap removed, by both if there is a pair; `alone`: by this one only."""
    alone: float


def scored(
    causes: CauseList, figures: Sequence[StepFigure], effects: Sequence[Effect]
) -> tuple[float, tuple[Suspect, ...]]:
    """Probability of no cause, and each cause with an effect on these figures, likeliest first."""
    ids = list(dict.fromkeys(effect.cause.id for effect in effects))
    if not ids:
        return 1.0, ()
    gaps = np.array([figure.gap for figure in figures])
    errors = _errors(causes, figures)
    shift = np.stack([effect.shift for effect in effects])
    prior = _prior(effects)
    none = math.log(causes.nothing) + float(_likelihood(gaps[None], errors)[0])
    some = math.log(1 - causes.nothing)
    one = some + math.log(1 - causes.second) + prior + _likelihood(gaps - shift, errors)
    coarse = _coarse(effects)
    first, second = _pairs(effects, coarse)
    together = _together(shift[first], shift[second])
    rough = _prior(effects, coarse)
    both = some + math.log(2 * causes.second) + rough[first] + rough[second]
    both = both + _likelihood(gaps - together, errors)
    owner = np.array([ids.index(effect.cause.id) for effect in effects])
    alone = np.full(len(ids), -np.inf)
    np.logaddexp.at(alone, owner, one)
    beside = np.full((len(ids), len(ids)), -np.inf)
    ends = np.sort(np.stack([owner[first], owner[second]]), axis=0)
    np.logaddexp.at(beside, (ends[0], ends[1]), both)
    # Pairs were summed into the upper triangle only.
    beside = np.maximum(beside, beside.T)
    total = np.logaddexp.reduce([none, *alone, *beside[np.triu_indices(len(ids), k=1)]])
    suspects = []
    for number in range(len(ids)):
        found = np.logaddexp.reduce([alone[number], *np.delete(beside[number], number)])
        best = int(np.flatnonzero(owner == number)[np.argmax(one[owner == number])])
        other, left = None, shift[best]
        if beside[number].max() > alone[number]:
            mine = np.flatnonzero((ends == number).any(axis=0))
            pair = int(mine[np.argmax(both[mine])])
            # The pair is likelier than the cause alone: report both.
            left = together[pair]
            best, other = int(first[pair]), int(second[pair])
            if owner[best] != number:
                best, other = other, best
        suspects.append(
            Suspect(
                cause=effects[best].cause,
                probability=float(np.exp(found - total)),
                best=effects[best],
                beside=None if other is None else effects[other],
                explained=_explained(gaps, left),
                alone=_explained(gaps, shift[best]),
            )
        )
    ranked = sorted(suspects, key=lambda one: (-one.probability, one.cause.id))
    return float(np.exp(none - total)), tuple(ranked)


def _prior(effects: Sequence[Effect], kept: Sequence[int] | None = None) -> FloatArray:
    """Log prior of each effect; of those `kept`.

    A cause's weight is divided among its magnitudes.
    """
    places = range(len(effects)) if kept is None else kept
    weights = {effect.cause.id: effect.cause.weight for effect in effects}
    shares: dict[str, float] = {}
    for place in places:
        one = effects[place]
        shares[one.cause.id] = shares.get(one.cause.id, 0.0) + one.share
    whole = sum(weights.values())
    return np.asarray(
        [
            math.log(weights[e.cause.id] / whole * e.share / shares.get(e.cause.id, 1.0))
            for e in effects
        ]
    )


def _coarse(effects: Sequence[Effect]) -> list[int]:
    """Indices of the effects tried in pairs."""
    coarse: list[int] = []
    way, count = None, 0
    for place, effect in enumerate(effects):
        # Effects of a way follow one another.
        way, count = effect.way, count + 1 if effect.way is way else 0
        listed = not isinstance(effect.magnitude, float)
        if listed or count % _EVERY == _EVERY // 2:
            coarse.append(place)
    return coarse


def _pairs(effects: Sequence[Effect], coarse: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Indices of two effects of different causes, every pair once."""
    places = np.array(coarse, dtype=int)
    names = np.array([effects[place].cause.id for place in coarse])
    first, second = np.triu_indices(len(places), k=1)
    apart = names[first] != names[second]
    return places[first[apart]], places[second[apart]]


def _together(first: FloatArray, second: FloatArray) -> FloatArray:
    sum_ = np.exp(first) + np.exp(second) - 1
    return np.asarray(np.log(np.maximum(sum_, np.exp(np.minimum(first, second)) / 2)))


def _explained(gaps: FloatArray, shift: FloatArray) -> float:
    whole = float(np.abs(gaps).sum())
    return 0.0 if whole == 0 else max(0.0, 1 - float(np.abs(gaps - shift).sum()) / whole)


def _errors(causes: CauseList, figures: Sequence[StepFigure]) -> _Errors:
    """Errors of the figures without any cause."""
    samples = np.stack([figure.samples for figure in figures])
    centred = samples - samples.mean(axis=1, keepdims=True)
    calibrated = centred @ centred.T / max(samples.shape[1] - 1, 1)
    stacks = np.array([figure.step.ran.setup.stack.name for figure in figures])
    residuals = [
        residual_of(setup.stack, setup.measured or setup.stack, setup.spread)
        for setup in (figure.step.ran.setup for figure in figures)
    ]
    shared = np.array([_deviation(one.common.low, one.common.high) for one in residuals])
    stack = np.outer(shared, shared) * (stacks[:, None] == stacks[None, :])
    own = max(_deviation(one.own.low, one.own.high) for one in residuals)
    memory = np.array([figure.quantity == "memory" for figure in figures])
    whiten, scales = [], []
    usual = causes.part_of_calibration
    for part in (usual.low, usual.value, usual.high):
        for scatter in np.geomspace(causes.repeat, 2 * max(own, causes.repeat), _SCATTERS):
            diagonal = np.where(memory, causes.memory, scatter) ** 2
            root = np.linalg.cholesky(part**2 * (calibrated + stack) + np.diag(diagonal))
            whiten.append(np.linalg.inv(root).T)
            scales.append(-float(np.log(np.diag(root)).sum()))
    return np.concatenate(whiten, axis=1), np.array(scales)


def _likelihood(left: FloatArray, errors: _Errors) -> FloatArray:
    """Log likelihood of the remaining gaps, one row each."""
    whiten, log_scale = errors
    found = []
    for rows in np.array_split(left, 1 + left.shape[0] * whiten.shape[1] // _AT_ONCE):
        # One product whitens by all error models at once.
        white = (rows @ whiten).reshape(len(rows), len(log_scale), -1)
        each = log_scale - np.einsum("ref,ref->re", white, white) / 2
        most = each.max(axis=1)
        found.append(most + np.log(np.exp(each - most[:, None]).mean(axis=1)))
    return np.concatenate(found)


def _deviation(low: float, high: float) -> float:
    return (math.log(high) - math.log(low)) / (2 * END)

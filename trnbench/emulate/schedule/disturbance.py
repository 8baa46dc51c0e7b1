"""Ranks that are slower than planned: random jitter, and stages that are known to lag.

Model: each rank's compute time carries two log-normal factors of median 1, one drawn anew for each
slot, one for the whole step. Ranks that meet in every slot wait for the slowest of them, so a
slot's factor is the maximum over `ranks_per_stage`; a rank's step factor slows its whole pipeline,
and replicas meet at the gradients, so that maximum runs over all `ranks_per_stage * replicas`.
The maximum of n equal draws has the distribution F(x)^n and is drawn as F^-1(u^(1/n)), u uniform.
Slot jitter that differs between replicas averages out over a step's slots and is left out; that the
slowest ranks of all stages belong to one pipeline is a small overestimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Relative scatter of compute times, and how many equal ranks wait for one another.

    So many `stages_together` share what is drawn for a step, because they share a node.
    """

    slot_sigma: float
    step_sigma: float
    ranks_per_stage: int
    replicas: int
    stages_together: int = 1
    seed: int

    def __post_init__(self) -> None:
        """Refuse scatter and counts that mean nothing."""
        if not (0 <= self.slot_sigma < np.inf and 0 <= self.step_sigma < np.inf):
            raise InputError("jitter: expected a relative scatter of 0 or more")
        if min(self.ranks_per_stage, self.replicas, self.stages_together) < 1:
            raise InputError("jitter: expected at least 1 rank of each stage and 1 replica")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A stage whose compute takes `factor` times as long."""

    stage: int
    factor: float

    def __post_init__(self) -> None:
        """Refuse factors that mean nothing."""
        if not 0 < self.factor < np.inf:
            raise InputError(f"straggler: expected a positive factor, found {self.factor}")


def slowdown(
    jitter: Jitter | None, stragglers: tuple[Straggler, ...], *, pp: int, slots: int
) -> FloatArray:
    """Return the factor on compute time [stage, slot]; [stage, 1] where all slots are alike."""
    factor = np.ones((pp, 1))
    for straggler in stragglers:
        if not 0 <= straggler.stage < pp:
            raise InputError(f"straggler: stage {straggler.stage} of a pipeline of {pp} stages")
        factor[straggler.stage] *= straggler.factor
    if jitter is None:
        return factor
    random = np.random.default_rng(jitter.seed)
    ranks = jitter.ranks_per_stage
    together = jitter.stages_together
    step = _slowest(random, (-(-pp // together), 1), ranks * jitter.replicas)
    step = np.repeat(step, together, axis=0)[:pp]
    slot = _slowest(random, (pp, slots), ranks)
    return np.asarray(factor * np.exp(jitter.step_sigma * step + jitter.slot_sigma * slot))


def _slowest(random: np.random.Generator, shape: tuple[int, int], count: int) -> FloatArray:
    """Return maxima of `count` standard normal draws each.

    By the upper tail 1 - u^(1/n), because u^(1/n) of many ranks is too close to 1 for a double.
    """
    tail = -np.expm1(-random.standard_exponential(shape) / count)
    inside = np.clip(tail, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).eps)
    quantile = NormalDist().inv_cdf
    return -np.array([quantile(share) for share in inside.ravel().tolist()]).reshape(shape)

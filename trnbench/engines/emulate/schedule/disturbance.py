"""Ranks that are slower than planned: random jitter, and stages that are known to lag.

Model: each rank's compute time carries a log-normal factor of median 1, drawn once for a step.
Ranks that meet in every slot wait for the slowest of them, so a stage's factor is the maximum over
`ranks_per_stage`. The maximum of n equal draws has the distribution F(x)^n and is drawn as
F^-1(u^(1/n)), u uniform. That the slowest ranks of all stages belong to one pipeline is a small
overestimate.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record


class Jitter(Record):
    """Scatter of compute times."""

    sigma: float
    """Relative scatter."""
    ranks_per_stage: int
    """Equal ranks that wait for one another."""
    stages_together: int = 1
    """Stages of a node, which share their draws."""
    seed: int

    def __post_init__(self) -> None:
        """Refuse scatter and counts that mean nothing."""
        if not 0 <= self.sigma < np.inf:
            raise InputError("jitter: expected a relative scatter of 0 or more")
        if min(self.ranks_per_stage, self.stages_together) < 1:
            raise InputError("jitter: expected at least 1 rank of each stage")


class Straggler(Record):
    """A stage whose compute takes `factor` times as long."""

    stage: int
    factor: float

    def __post_init__(self) -> None:
        """Refuse factors that mean nothing."""
        if not 0 < self.factor < np.inf:
            raise InputError(f"straggler: expected a positive factor, found {self.factor}")


def slowdown(jitter: Jitter | None, stragglers: tuple[Straggler, ...], *, pp: int) -> FloatArray:
    """Factor on the compute time of each stage."""
    factor = np.ones(pp)
    for straggler in stragglers:
        if not 0 <= straggler.stage < pp:
            raise InputError(f"straggler: stage {straggler.stage} of a pipeline of {pp} stages")
        factor[straggler.stage] *= straggler.factor
    if jitter is None:
        return factor
    random = np.random.default_rng(jitter.seed)
    together = jitter.stages_together
    drawn = _slowest(random, -(-pp // together), jitter.ranks_per_stage)
    return np.asarray(factor * np.exp(jitter.sigma * np.repeat(drawn, together)[:pp]))


def _slowest(random: np.random.Generator, draws: int, count: int) -> FloatArray:
    # u^(1/n) is close to 1 for many ranks: its distance from 1 keeps the digits.
    tail = -np.expm1(-random.standard_exponential(draws) / count)
    inside = np.clip(tail, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).eps)
    return -np.array([NormalDist().inv_cdf(share) for share in inside.tolist()])

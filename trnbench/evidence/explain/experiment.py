"""The run that separates causes best: a changed layout with the most different times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trnbench.evidence.explain.change import Ran
from trnbench.evidence.explain.effects import Effect, Pricer
from trnbench.evidence.explain.observed import ObservedStep
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.step import predict

_APART = 0.04
"""Least relative difference of times that one run can separate."""
_LIKELY = 0.5
"""Least probability of fitting in memory of a proposed run."""


class TellingRun(Record):
    """A changed layout of a measured step, and its time in seconds if each cause is at work."""

    of: str
    change: str
    predicted_s: float
    by_cause: tuple[tuple[str, float], ...]

    @property
    def apart(self) -> float:
        """The share by which the slowest of the times exceeds the fastest."""
        times = [time_s for _, time_s in self.by_cause]
        return max(times) / min(times) - 1


def telling_run(
    pricer: Pricer, steps: Sequence[ObservedStep], effects: Sequence[Effect]
) -> TellingRun | None:
    """The run that separates the causes best; None if no candidate does."""
    found: list[TellingRun] = []
    for step in steps:
        if len(step.ran.parts) > 1:
            continue
        for words, ran in _candidates(step.ran):
            if not _fits(ran):
                continue
            # Only the step's time would be measured in the proposed run.
            tried = replace(step, ran=ran, measured={"step": 1.0})
            rans = [pricer.sites.changed(ran, one.way, one.magnitude) for one in effects]
            times = pricer.priced(tried, [ran, *rans])["step"]
            if np.isnan(times[0]):
                continue
            # What cannot be at work in a run leaves it as predicted.
            times = np.where(np.isnan(times), times[0], times)
            found.append(
                TellingRun(
                    of=step.id,
                    change=words,
                    predicted_s=float(times[0]),
                    by_cause=tuple(
                        (one.cause.id, float(time_s))
                        for one, time_s in zip(effects, times[1:], strict=True)
                    ),
                )
            )
    best = max(found, key=lambda one: one.apart, default=None)
    return best if best is not None and best.apart >= _APART else None


def _candidates(ran: Ran) -> Iterator[tuple[str, Ran]]:
    """Yield changed layouts of the same model on the same cluster, or on one node of it."""
    layout = ran.parts[0][1]
    for words, changed, nodes in _layouts(layout, ran.setup.nodes):
        setup = ran.setup if nodes == ran.setup.nodes else replace(ran.setup, nodes=nodes)
        yield words, replace(ran, setup=setup, parts=((1.0, changed),))


def _layouts(layout: Layout, nodes: int) -> Iterator[tuple[str, Layout, int]]:
    if layout.tp % 2 == 0:
        half = replace(layout, tp=layout.tp // 2, dp=layout.dp * 2)
        yield f"tp {half.tp} and dp {half.dp}", half, nodes
    yield (
        f"micro-batch {2 * layout.micro_batch}",
        replace(layout, micro_batch=2 * layout.micro_batch),
        nodes,
    )
    for times in (2, 4):
        more = replace(layout, global_batch=times * layout.global_batch)
        yield f"global batch {more.global_batch}", more, nodes
    if layout.dp % nodes == 0 and layout.global_batch % nodes == 0 and nodes > 1:
        alone = replace(layout, dp=layout.dp // nodes, global_batch=layout.global_batch // nodes)
        yield f"one node, dp {alone.dp} and global batch {alone.global_batch}", alone, 1
    if layout.sequence % 2 == 0:
        short = replace(layout, sequence=layout.sequence // 2, global_batch=2 * layout.global_batch)
        yield f"sequence {short.sequence} and global batch {short.global_batch}", short, nodes
    for mode in ("none", "full"):
        if layout.recompute != mode:
            yield f"recompute {mode}", replace(layout, recompute=mode), nodes


def _fits(ran: Ran) -> bool:
    found = predict(ran.setup, ran.parts[0][1])
    return found.step is not None and (
        found.memory is None or found.memory.fit_probability >= _LIKELY
    )

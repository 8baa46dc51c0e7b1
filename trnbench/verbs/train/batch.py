"""What a batch means for speed: one that was fitted to the ranks, or one that does not fit them."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.search.question import question_of
from trnbench.predict.search.result import Found
from trnbench.predict.search.search import search
from trnbench.predict.settled import DEFAULT_BATCH, batch_step, fitted_batch, free_ranks
from trnbench.predict.setup import TrainSetup

WORTH = 1.02
"""A batch that gains less speed than this is not worth a word."""


def batch_words(
    setup: TrainSetup,
    layout: PartialLayout,
    assumed: Sequence[str],
    best: Found,
    *,
    headroom: float | None = None,
) -> tuple[str, ...]:
    """Return a note on the batch of a run whose fastest layout is `best`.

    That an open one was raised, or by which one a given one would be faster.
    """
    batch = layout.degree("global_batch")
    ranks = f"{setup.ranks:,} ranks divide well"
    if "global_batch" in assumed:
        if batch == DEFAULT_BATCH:
            return ()
        return (f"global batch {batch:,}: the next above {DEFAULT_BATCH:,} that {ranks}",)
    better = fitted_batch(batch, free_ranks(layout, setup.ranks), step=batch_step(layout))
    if better == batch:
        return ()
    other = layout.changed(global_batch=better)
    found = search(question_of(setup, other, (setup.nodes,), headroom=headroom), top=1).best
    gain = 0.0 if found is None else found.sequences_per_s / best.sequences_per_s
    if gain < WORTH:
        return ()
    return (f"--global-batch {better} would train {gain:.3g}x as fast: {better:,} is what {ranks}",)

"""Several searches, one after the other or side by side on processors of their own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from math import prod
from typing import Any

from trnbench.errors import EnvironmentFault
from trnbench.facts.processes.children import forked_pool
from trnbench.predict.search.parts import is_large
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult, reunited
from trnbench.predict.search.runs import SharedPrograms
from trnbench.predict.search.search import SearchHooks, Share, search
from trnbench.predict.search.space import space_of
from trnbench.verbs.asking.use_case import Progress, Watch

LISTEN_S = 0.05
"""How often searches in other processes are asked how far they are."""
WORTH_SHARING = 64_000_000
"""Points of several searches, those of each program apart, above which they go side by side. One
process looks at fewer in less than a second; to start others, and to learn in each what one had
learned once, takes a quarter of that."""


def search_all(
    questions: Sequence[tuple[str, SearchQuestion]], *, top: int, watch: Watch
) -> tuple[SearchResult | None, ...]:
    """Return the results of named questions, None for those that a cancel left unasked.

    A large one of few is shared among processors by its clusters, which no answer depends on.
    """
    forks = hasattr(os, "fork")
    if forks and len(questions) < watch.workers:
        shares = [_shares(question, watch.workers) for _, question in questions]
        if any(len(share) > 1 for share in shares):
            parts = [
                (question, part)
                for (_, question), share in zip(questions, shares, strict=True)
                for part in share
            ]
            results = iter(_side_by_side(parts, top, watch, min(watch.workers, len(parts))))
            return tuple(_whole([next(results) for _ in share], top) for share in shares)
    together = min(watch.workers, len(questions))
    asked = [question for _, question in questions]
    if together > 1 and forks and sum(map(_points, asked)) > WORTH_SHARING:
        parts = [(question, Share()) for _, question in questions]
        return _side_by_side(parts, top, watch, together)
    found: list[SearchResult | None] = []
    lowered = SharedPrograms()
    for number, (name, question) in enumerate(questions, start=1):
        if watch.cancel():
            found.append(None)
            continue
        hooks = SearchHooks(
            progress=_told(watch.progress, name, number, len(questions)),
            cancel=watch.cancel,
            lowered=lowered,
        )
        found.append(search(question, top=top, hooks=hooks, best="of each"))
    return tuple(found)


def _points(question: SearchQuestion) -> int:
    """Points of a search's grid, legal or not, in all its programs."""
    space = space_of(question)
    return prod(space.shape) * prod(map(len, space.modes.values()))


def _shares(question: SearchQuestion, workers: int) -> list[Share]:
    """Return all of a question as one share, or if it is large several."""
    if not is_large(question):
        return [Share()]
    return [Share(number=number, of=workers) for number in range(workers)]


def _whole(parts: Sequence[SearchResult | None], top: int) -> SearchResult | None:
    found = [part for part in parts if part is not None]
    return reunited(found, top) if len(found) == len(parts) else None


def _told(progress: Progress, name: str, number: int, count: int) -> Progress:
    def tell(done: int, total: int, what: str) -> None:
        progress(done, total, f"{what} of {name} ({number} of {count})")

    return tell


def _side_by_side(
    questions: Sequence[tuple[SearchQuestion, Share]], top: int, watch: Watch, together: int
) -> tuple[SearchResult | None, ...]:
    # Most questions come alone, and answer at once without these.
    from concurrent.futures import FIRST_COMPLETED, Future, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing.sharedctypes import RawArray, RawValue

    stop = RawValue("b", 0)
    counts = RawArray("q", 2 * len(questions))
    with warnings.catch_warnings(), forked_pool(together, _begin, stop, counts) as pool:
        # Threads of numerical libraries, of which a fork is warned, take part in no search.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            futures = [
                pool.submit(_search, number, question, share, top)
                for number, (question, share) in enumerate(questions)
            ]
            waiting: set[Future[SearchResult | None]] = set(futures)
            while waiting:
                _, waiting = wait(waiting, timeout=LISTEN_S, return_when=FIRST_COMPLETED)
                if watch.cancel():
                    stop.value = 1
                done = len(futures) - len(waiting)
                what = f"layouts ({done} of {len(futures)} searches done)"
                watch.progress(sum(counts[::2]), sum(counts[1::2]), what)
            return tuple(future.result() for future in futures)
        except BrokenProcessPool:
            raise EnvironmentFault("a search was ended from outside, for want of memory?") from None
        finally:
            # Whatever ends this early, the others need not run to their ends.
            stop.value = 1


_shared: dict[str, Any] = {}
"""What a forked process shares with its parent."""


def _begin(stop: object, counts: object) -> None:
    _shared.update(stop=stop, counts=counts)


def _search(number: int, question: SearchQuestion, share: Share, top: int) -> SearchResult | None:
    stop, counts = _shared["stop"], _shared["counts"]
    if stop.value:
        return None

    def tell(done: int, total: int, what: str) -> None:
        counts[2 * number], counts[2 * number + 1] = done, total

    hooks = SearchHooks(progress=tell, cancel=lambda: bool(stop.value))
    return search(question, top=top, hooks=hooks, share=share, best="of each")

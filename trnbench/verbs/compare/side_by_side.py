"""The same work for several things, on as many processors as there are, in processes of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from trnbench.errors import EnvironmentFault
from trnbench.facts.processes.children import forked

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def each(work: Callable[[Thing], Found], things: Sequence[Thing], workers: int) -> list[Found]:
    """Return what `work` makes of each thing, in their order.

    This process does its share; the others are forked from it, know what it knows, and send what
    they found. More than one worker is only for a process that has no threads of its own.
    """
    together = min(workers, len(things))
    if together < 2 or not hasattr(os, "fork"):
        return [work(one) for one in things]
    from multiprocessing import Pipe

    others = []
    found: list[Found] = [*things]  # type: ignore[list-item]
    try:
        for number in range(1, together):
            mine, its = Pipe(duplex=False)
            with closing(its):
                child = forked(_send, its, work, things[number::together])
            others.append((child, mine))
        found[::together] = [work(one) for one in things[::together]]
        for number, (_, mine) in enumerate(others, start=1):
            found[number::together] = _received(mine)
        return found
    finally:
        for child, mine in others:
            mine.close()
            child.kill()
            child.join()


def _send(its: Connection, work: Callable[[Thing], Found], things: Sequence[Thing]) -> None:
    try:
        its.send([work(one) for one in things])
    except Exception as error:  # whatever it is, it is raised where its answer is waited for
        its.send(error)


def _received(mine: Connection) -> list[Found]:
    try:
        told = mine.recv()
    except EOFError:
        raise EnvironmentFault("a part was ended from outside, for want of memory?") from None
    if isinstance(told, Exception):
        raise told
    return told  # type: ignore[no-any-return]

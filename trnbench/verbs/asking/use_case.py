"""A verb of the Python API: a function whose arguments make a request, which is then answered.

    @answered_by(run)
    def matrix(shapes=(), *, on=None, catalog=None, progress=quiet) -> MatrixRequest: ...

    matrix("512x512x512", on="trainium2")            what `run` answers
    matrix.request("512x512x512", on="trainium2")    the request itself, for fronts that repeat it

So every option is written once, with its type and the default that it has on the command line.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.search import open_catalog

Progress: TypeAlias = Callable[[int, int, str], None]
"""Hears how many steps are done, of how many, and what comes next."""
Cancel: TypeAlias = Callable[[], bool]
"""Says whether a job is to stop with what it has."""

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)

HOOKS = ("progress", "cancel", "workers")


def quiet(done: int, total: int, what: str) -> None:
    """Hear of progress, and say nothing."""


def never() -> bool:
    """Let a job run to its end."""
    return False


class Verb(Protocol[P, R_co, A_co]):
    """A function that answers; `request` returns what it would be asked."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> A_co:
        """Answer."""

    @property
    def request(self) -> Callable[P, R_co]:
        """The request that the arguments make."""


def answered_by(
    run: Callable[..., A_co],
) -> Callable[[Callable[P, R_co]], Verb[P, R_co, A_co]]:
    """Return a decorator that turns a maker of requests into a verb.

    `run` takes a catalogue, the request, and those of `HOOKS` by name that the maker takes.
    """

    def decorate(make: Callable[P, R_co]) -> Verb[P, R_co, A_co]:
        known = inspect.signature(make).parameters

        @functools.wraps(make)
        def verb(*args: P.args, **kwargs: P.kwargs) -> A_co:
            options: dict[str, Any] = dict(kwargs)
            for name in options:
                if name not in known:
                    raise UnknownNameError("option", name, known)
            options["catalog"] = options.get("catalog") or open_catalog()
            request = cast("Callable[..., R_co]", make)(*args, **options)
            hooks = {name: options[name] for name in HOOKS if name in options}
            return run(options["catalog"], request, **hooks)

        answer = inspect.signature(run).return_annotation
        verb.__signature__ = inspect.signature(make).replace(  # type: ignore[attr-defined]
            return_annotation=answer
        )
        verb.__annotations__ = {**make.__annotations__, "return": answer}
        verb.request = make  # type: ignore[attr-defined]
        return cast("Verb[P, R_co, A_co]", verb)

    return decorate


def takes_options_of(
    *others: Callable[..., object],
) -> Callable[[Callable[P, R_co]], Callable[P, R_co]]:
    """Return a decorator: `**options` stand for the keyword arguments of other functions.

    They are spelled out in the signature, so that `help` shows every option with its default.
    """

    def decorate(make: Callable[P, R_co]) -> Callable[P, R_co]:
        own = inspect.signature(make)
        named = {
            name: one
            for other in others
            for name, one in inspect.signature(other).parameters.items()
            if one.kind is one.KEYWORD_ONLY and name not in own.parameters
        }
        front = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        first = [one for one in front if one.kind is not one.KEYWORD_ONLY]
        rest = [one for one in front if one.kind is one.KEYWORD_ONLY]
        make.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*first, *named.values(), *rest]
        )
        return make

    return decorate

"""Defaults of `trnbench.toml` applied to a command line, in this one place for every verb."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

Defaults = dict[str, Any]
_SHOWN = ("--help", "-h", "--version")


@contextmanager
def configured(words: Sequence[str], verbs: Mapping[str, object]) -> Iterator[Defaults]:
    """Yield the defaults of a command line's verb, as Typer takes them; set variables meanwhile."""
    verb = next((word for word in words if word in verbs), "")
    if not verb or any(word in _SHOWN for word in words):
        yield {}
        return
    from trnbench.verbs.asking.configuration import CURRENT, configuration

    settings = configuration()
    before = {name: os.environ.get(name) for name in settings.environment}
    token = CURRENT.set(settings)
    os.environ.update(settings.environment)
    try:
        options = settings.options(verb)
        yield {verb: options} if options else {}
    finally:
        CURRENT.reset(token)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def money_origins(context: typer.Context) -> tuple[str, ...]:
    """Return where own prices and a discount come from that the working folder's file sets.

    Who works in a folder of somebody else has not said them, and answers differ by them.
    """
    from trnbench.verbs.asking.configuration import CURRENT, SETTINGS

    settings = CURRENT.get()
    if settings is None or not settings.files:
        return ()
    file = str(settings.files[-1])
    subjects = {"prices": "own prices are", "discount": "a discount is"}
    return tuple(
        f"{words} set by {file}"
        for key, words in subjects.items()
        if (setting := settings.values.get(key)) is not None
        and setting.origin == file
        and _is_default(context, SETTINGS[key].option)
    )


def _is_default(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "DEFAULT_MAP"

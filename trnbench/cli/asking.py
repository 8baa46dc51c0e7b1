"""Questions as plain data: options read back from a command line, and asked again unseen.

A question is a verb and the options that were given, by name and as they were written. What only
says how an answer is printed is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trnbench.errors import InputError

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report

Options = Mapping[str, Any]
NOT_ASKED = frozenset(
    (
        *("format", "json", "output", "quiet", "spec_dir", "no_keep", "tag"),
        *(
            "plot",
            "details",
            "plot_file",
            "report",
            "redact_prices",
            "trace",
            "force",
            "resume",
            "against",
            "fail_over",
            "scenario",
        ),
    )
)
"""Options that say where an answer goes, not what is asked."""
_NO_QUESTION = frozenset(("context", "help"))
_READ = (".toml", ".csv", ".json", ".jsonl", ".log", ".txt")


class AskedAgain:
    """A question whose answer is caught before it is printed."""

    def __init__(self, catalog: Catalog | None) -> None:
        self.catalog = catalog
        self.reports: list[Report] = []


WORDS: ContextVar[tuple[str, ...]] = ContextVar("words", default=())
"""The command line that is being answered."""
AGAIN: ContextVar[AskedAgain | None] = ContextVar("again", default=None)


_Ask = Callable[[str, Options, "Catalog | None"], "tuple[Report | None, int]"]
ASK: ContextVar[_Ask] = ContextVar("ask")
"""Asks a question of the command line again; the function itself can be sent to other processes."""


@contextmanager
def answering(words: Sequence[str], ask: _Ask) -> Iterator[None]:
    """Say for the block which command line is answered, and how another question is asked."""
    tokens = WORDS.set(tuple(words)), ASK.set(ask)
    try:
        yield
    finally:
        WORDS.reset(tokens[0])
        ASK.reset(tokens[1])


def given_options(context: typer.Context) -> dict[str, Any]:
    """Return the options of the question that is being answered, as they were written."""
    words = [word for word in WORDS.get() if word != "--debug"]
    while words and words[0] != context.info_name:
        words = words[1:]
    given, _, _ = context.command.make_parser(context).parse_args(args=words[1:])
    for parameter in context.command.params:
        name = str(parameter.name)
        if given.get(name) is None:
            given[name] = parameter.value_from_envvar(context) or context.lookup_default(name)
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, (), []) and name not in NOT_ASKED and isinstance(value, _PLAIN)
    }


def files_read(options: Options, converted: Mapping[str, object]) -> list[Path]:
    """Return the files that options of a question name."""
    paths: list[Path] = []
    for name, value in options.items():
        typed = converted.get(name)
        is_path = any(
            isinstance(item, Path) for item in (typed if isinstance(typed, list) else [typed])
        )
        texts = value if isinstance(value, list) else [value]
        paths += [Path(str(text)) for text in texts if is_path or str(text).endswith(_READ)]
    return paths


def question_options(group: Any, verb: str) -> frozenset[str]:  # noqa: ANN401
    parameters = frozenset(str(parameter.name) for parameter in group.commands[verb].params)
    return parameters - NOT_ASKED - _NO_QUESTION


def words_of(group: Any, verb: str, options: Options) -> list[str]:  # noqa: ANN401
    """Return the command line that asks a question."""
    command = group.commands.get(verb)
    if command is None:
        raise InputError(f"no verb {verb!r} any more")
    words, arguments = [verb], []
    parameters = {parameter.name: parameter for parameter in command.params}
    for name, value in options.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise InputError(f"{verb} has no option {name!r} any more")
        texts = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        if parameter.param_type_name == "argument":
            arguments += texts
        elif isinstance(value, bool):
            words.append(_flag(parameter, value))
        else:
            words += [f"{max(parameter.opts, key=len)}={text}" for text in texts]
    return [*words, "--", *arguments] if arguments else words


def asked(
    group: Any,  # noqa: ANN401 - a type of Typer's that it does not export
    verb: str,
    options: Options,
    catalog: Catalog | None = None,
) -> tuple[Report | None, int]:
    """Answer a question with these data files, printing and keeping nothing; return the exit code.

    What cannot be asked raises as it does on the command line.
    """
    again = AskedAgain(catalog)
    words = words_of(group, verb, options)
    token = AGAIN.set(again)
    try:
        with answering(words, ASK.get()):
            code = group.main(args=words, prog_name="trnbench", standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(" ".join(error.format_message().split())) from error
    finally:
        AGAIN.reset(token)
    return (again.reports[-1] if again.reports else None), code if isinstance(code, int) else 0


_PLAIN = (str, int, float, bool, list, tuple)


def _flag(parameter: Any, value: bool) -> str:  # noqa: ANN401
    if value:
        return str(max(parameter.opts, key=len))
    if not parameter.secondary_opts:
        raise InputError(f"{parameter.opts[0]} cannot be refused")
    return str(max(parameter.secondary_opts, key=len))

"""The options every printing verb shares, given to a command by one decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import typer

from trnbench.cli.output import STDOUT, OutputFormat, chosen_output

Command = Callable[..., int | None]


def printing(command: Command) -> Command:
    """Return the command as Typer shall see it.

    `command` takes `out: Output` and `catalog: Catalog` first; Typer sees `--format`, `--json`,
    `--output`, `--quiet` and `--spec-dir` in their place.
    """
    own = list(inspect.signature(command).parameters.values())[2:]
    hints = hints_of(command, [parameter.name for parameter in own])
    parameters = [
        *(p.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
        *SHARED,
    ]

    @functools.wraps(command)
    def run(
        *,
        output_format: OutputFormat | None,
        json: bool,
        output: str,
        quiet: bool,
        spec_dir: list[Path] | None,
        **options: object,
    ) -> int | None:
        from trnbench.catalog.search import open_catalog

        out = chosen_output(output_format, json, output, quiet)
        return command(out, open_catalog(spec_dir or ()), **options)

    return with_signature(run, parameters)


def with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    """Return the command with the parameters that Typer shall see."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def hints_of(command: Command, names: Sequence[str]) -> dict[str, Any]:
    """Return the types of some of a command's parameters.

    Others may have types that are imported for the type checker alone, to start up fast.
    """
    own = SimpleNamespace(__annotations__={name: command.__annotations__[name] for name in names})
    return get_type_hints(own, globalns=command.__globals__, include_extras=True)


def typed_option(name: str, kind: Any, option: Any, default: object = None) -> Parameter:  # noqa: ANN401
    """Return a parameter that Typer makes this option (or argument) of."""
    form = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=form)


SHARED = [
    typed_option(
        "output_format",
        OutputFormat | None,
        typer.Option("--format", help="How to print the rows; default: table."),
    ),
    typed_option("json", bool, typer.Option("--json", help="Short for --format json."), False),
    typed_option(
        "output",
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is stdout."),
        STDOUT,
    ),
    typed_option(
        "quiet", bool, typer.Option("--quiet", "-q", help="No narration on stderr."), False
    ),
    typed_option(
        "spec_dir",
        list[Path] | None,
        typer.Option("--spec-dir", metavar="DIR", help="Look here first for specs and workloads."),
    ),
]

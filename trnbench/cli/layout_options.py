"""The options of a layout, one for each knob, given to a command in place of its `layout`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import typer

from trnbench.cli.derived_options import Command, typed_option, with_signature
from trnbench.cli.printing import hints_of
from trnbench.facts.workload.layout import KNOBS, Knob
from trnbench.facts.workload.partial_layout import knob_parser, value_parser


def layout_options(about: str = "") -> list[Parameter]:
    """Return the parameters that Typer makes options of.

    `about` comes before every help text, for options that have no defaults.
    """
    return [
        typed_option(knob.name, knob.kind | None, _option(knob, about)) for knob in KNOBS.values()
    ]


def _option(knob: Knob, about: str) -> Any:  # noqa: ANN401
    text = knob.help
    if about:
        told = text.partition("; default:")[0].partition("; any:")[0]
        text = f"{about}{told.rstrip('.')}."
    if knob.kind is bool:
        return typer.Option(f"{knob.option}/{knob.option.replace('--', '--no-', 1)}", help=text)
    if knob.kind is int and knob.choices:
        numbers = [one for one in knob.choices if isinstance(one, int)]
        return typer.Option(min=min(numbers), max=max(numbers), help=text)
    # A name of few is named without dashes, a number by its option.
    what = knob.option if knob.kind is not str else knob.option.strip("-").replace("-", " ")
    parser = value_parser(knob, what) if about else knob_parser(knob, what)
    return typer.Option(parser=parser, metavar=knob.metavar or "N", help=text)


def takes_layout(about: str = "") -> Callable[[Command], Command]:
    """Return a decorator: a command takes the options of a layout in place of `layout`.

    The command takes `out` and `catalog` first, and `layout: PartialLayout` by name; `about` comes
    before every help text.
    """

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())
        hints = hints_of(command, [p.name for p in own[2:] if p.name != "layout"])
        parameters = []
        for parameter in own:
            if parameter.name == "layout":
                parameters += layout_options(about)
            else:
                parameters.append(parameter.replace(annotation=hints.get(parameter.name)))

        @functools.wraps(command)
        def with_layout(out: object, catalog: object, **options: Any) -> int | None:  # noqa: ANN401
            from trnbench.verbs.asking.knobs import layout_of

            layout = layout_of(**{name: options.pop(name) for name in KNOBS})
            return command(out, catalog, layout=layout, **options)

        return with_signature(with_layout, parameters)

    return decorate

"""The options that say what run is to be bought, given to `compare` and `plan` by one decorator."""

from __future__ import annotations

import datetime
import functools
import inspect
from inspect import Parameter
from typing import Any

import typer

from trnbench.cli.layout_options import layout_options
from trnbench.cli.names import completes
from trnbench.cli.printing import Command, hints_of, typed_option, with_signature
from trnbench.parsing import confidence, count, date, duration, share, whole

MODEL = typed_option(
    "model",
    str,
    typer.Argument(metavar="MODEL", help="A model by name.", autocompletion=completes(("models",))),
    Parameter.empty,
)
RUN = (
    typed_option(
        "tokens",
        float | None,
        typer.Option(parser=count("--tokens"), metavar="N", help="Tokens to train on: 2T, 300B."),
    ),
    typed_option(
        "samples",
        float | None,
        typer.Option(parser=count("--samples"), metavar="N", help="Or samples: 50K."),
    ),
    typed_option(
        "phase",
        list[str] | None,
        typer.Option(
            metavar="TOKENS@SEQUENCE",
            help="Or parts of the run with contexts of their own: 1.9T@8192 (repeatable).",
        ),
    ),
    typed_option(
        "on",
        str | None,
        typer.Option(
            metavar="INSTANCE,...",
            help="Instance types to choose from.",
            autocompletion=completes(("instances",)),
        ),
    ),
    typed_option("nodes", str | None, typer.Option(metavar="N,...", help="Numbers of nodes.")),
    typed_option(
        "max_nodes",
        int | None,
        typer.Option(
            parser=whole("--max-nodes"),
            metavar="N",
            help="Without --nodes: powers of two up to this; default: 512.",
        ),
    ),
)
CLUSTER = (
    typed_option(
        "headroom",
        float | None,
        typer.Option(
            parser=share("--headroom"),
            metavar="SHARE",
            help="Of a rank's memory to leave free: 10%; else what may be lost at most.",
        ),
    ),
    typed_option(
        "confidence",
        float | None,
        typer.Option(
            parser=confidence("--confidence"),
            metavar="SHARE",
            help="Keep deadline and budget in so many of the draws, 50% to 99%.",
        ),
    ),
    typed_option(
        "stack",
        str | None,
        typer.Option(
            help="Calibration of a training stack; default: the instance's.",
            autocompletion=completes(("calibration",)),
        ),
    ),
    typed_option(
        "lnc",
        int | None,
        typer.Option(
            parser=whole("--lnc"), metavar="N", help="Logical core size on Trainium2 and 3."
        ),
    ),
)
MONEY = (
    typed_option(
        "purchase",
        str | None,
        typer.Option(
            metavar="OPTION,...",
            help="on-demand, capacity-block, reserved, savings-plan, spot, quote; default: the "
            "cheapest of the first three.",
        ),
    ),
    typed_option(
        "region", str | None, typer.Option(help="Default: the cheapest of the seller's main ones.")
    ),
    typed_option(
        "price_date",
        datetime.date | None,
        typer.Option(
            parser=date("--price-date"),
            metavar="YYYY-MM-DD",
            help="Prices as known on this day; default: today.",
        ),
    ),
    typed_option(
        "discount",
        float | None,
        typer.Option(
            parser=share("--discount"),
            metavar="SHARE",
            help="Off published rates, as negotiated: 18%.",
        ),
    ),
    typed_option(
        "price",
        list[str] | None,
        typer.Option(metavar="NAME=USD", help="Your own USD per instance-hour (repeatable)."),
    ),
    typed_option(
        "assume_price",
        list[str] | None,
        typer.Option(metavar="'A=4x B'", help="A price as a multiple of another's (repeatable)."),
    ),
    typed_option(
        "term_years",
        int | None,
        typer.Option(
            parser=whole("--term-years"), metavar="N", help="Years of a reservation: 1 or 3."
        ),
    ),
    typed_option(
        "commitment",
        str,
        typer.Option(
            metavar="whole|share",
            help="Charge a term whole, or by the run's share of it; default: whole.",
        ),
        "whole",
    ),
    typed_option(
        "keep_checkpoints",
        str | None,
        typer.Option(
            metavar="N@STORE",
            help="Bill the store of the last N checkpoints too: 3@s3-standard or 3@fsx-lustre.",
        ),
    ),
    typed_option(
        "failures_per_node_day",
        float | None,
        typer.Option(metavar="RATE", help="Failures of a node in a day; default: as known."),
    ),
    typed_option(
        "checkpoint_interval",
        float | None,
        typer.Option(
            parser=duration("--checkpoint-interval"),
            metavar="TIME",
            help="Between checkpoints: 30 min; default: the best.",
        ),
    ),
)
SHARED = (MODEL, *RUN, *layout_options(), *CLUSTER, *MONEY)


def takes_run(command: Command) -> Command:
    """Return a command that takes the options of a run in place of `run`, those that are given.

    `command` takes `out`, `catalog` and `run` first, then what is its own.
    """
    own = list(inspect.signature(command).parameters.values())[3:]
    names = [parameter.name for parameter in own]
    hints = hints_of(command, names)
    parameters = [
        Parameter("out", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("catalog", Parameter.POSITIONAL_OR_KEYWORD),
        *SHARED,
        *(p.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
    ]

    @functools.wraps(command)
    def with_run(out: object, catalog: object, **options: Any) -> int | None:  # noqa: ANN401
        mine = {name: options.pop(name) for name in names}
        given = {name: value for name, value in options.items() if value is not None}
        return command(out, catalog, given, **mine)

    return with_signature(with_run, parameters)

"""The options that say what run is to be bought, given to `compare` and `plan` by one decorator."""

from __future__ import annotations

import datetime
import functools
import inspect
from inspect import Parameter
from typing import Annotated, Any

import typer

from trnbench.cli.layout_options import layout_options
from trnbench.cli.names import completes, completes_stacks
from trnbench.cli.printing import Command, hints_of, typed_option, with_signature
from trnbench.facts.parsing import confidence, count, date, duration, share, whole

MAX_AGE_VARIABLE = "TRNBENCH_PRICES_MAX_AGE"
STACK = (
    "Training stack, e.g. nxd-trn1 (trnbench spec list calibration), or framework: nxdt, "
    "torchtitan, ...; default: the instance's."
)
ASSUME = "Predict layouts that the stack's software refuses as if they ran."
Stack = Annotated[str | None, typer.Option(help=STACK, autocompletion=completes_stacks())]
LogicalSize = Annotated[
    int | None,
    typer.Option(
        parser=whole("--lnc"),
        metavar="N",
        help="Logical core size on Trainium2 and 3: 1 or 2; default: 2.",
    ),
]
AssumeSupported = Annotated[bool, typer.Option("--assume-supported", help=ASSUME)]
Details = Annotated[
    bool,
    typer.Option("--details", help="Show layouts, rates, remarks and counts too."),
]
MODEL = typed_option(
    "model",
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Model name (trnbench workload list models), or FLEET:JOB.",
        autocompletion=completes(("models",)),
    ),
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
        typer.Option(
            parser=count("--samples"),
            metavar="N",
            help="Or samples of --sequence tokens each: 50K.",
        ),
    ),
    typed_option(
        "phase",
        list[str] | None,
        typer.Option(
            metavar="TOKENS@SEQUENCE",
            help="Or parts of the run, each with its own sequence length, and knobs of its own if "
            "need be: 1.9T@8192, or in % of --tokens: 10%@128k,cp=8,global-batch=256 "
            "(repeatable).",
        ),
    ),
    typed_option(
        "on",
        str | None,
        typer.Option(
            metavar="INSTANCE,...",
            help="Instance types to compare, e.g. trn2.48xlarge,p5.48xlarge (trnbench spec list "
            "instances).",
            autocompletion=completes(("instances",), several=True),
        ),
    ),
    typed_option(
        "nodes",
        str | None,
        typer.Option(metavar="N,...", help="Cluster sizes to try, in nodes, e.g. 16,32."),
    ),
    typed_option(
        "max_nodes",
        int | None,
        typer.Option(
            parser=whole("--max-nodes"),
            metavar="N",
            help="Without --nodes: try 1, 2, 4 ... up to N nodes; default: 512.",
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
            help="Memory per rank to leave free, e.g. 10%; default: the most that reserve and "
            "fragmentation may take.",
        ),
    ),
    typed_option(
        "confidence",
        float | None,
        typer.Option(
            parser=confidence("--confidence"),
            metavar="SHARE",
            help="Keep deadline and budget with this probability, 50% to 99%; default: by the "
            "estimate.",
        ),
    ),
    Parameter("stack", Parameter.KEYWORD_ONLY, default=None, annotation=Stack),
    Parameter("lnc", Parameter.KEYWORD_ONLY, default=None, annotation=LogicalSize),
    Parameter(
        "assume_supported", Parameter.KEYWORD_ONLY, default=False, annotation=AssumeSupported
    ),
)
MONEY = (
    typed_option(
        "purchase",
        str | None,
        typer.Option(
            metavar="OPTION,...",
            help="on-demand, capacity-block, reserved, savings-plan, spot (interruptible), quote; "
            "default: the cheapest of the first three.",
        ),
    ),
    typed_option(
        "region",
        str | None,
        typer.Option(help="Region, e.g. us-east-2; default: the cheapest main one."),
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
            help="Negotiated discount off published rates: 18%.",
        ),
    ),
    typed_option(
        "price",
        list[str] | None,
        typer.Option(
            metavar="NAME=USD",
            help="Own price, USD per instance-hour: trn2.48xlarge=30 (repeatable); with a ? behind "
            "it, only where that instance is asked about.",
        ),
    ),
    typed_option(
        "assume_price",
        list[str] | None,
        typer.Option(
            metavar="'A=4x B'", help="Assumed price, a multiple of another instance's (repeatable)."
        ),
    ),
    typed_option(
        "term_years",
        int | None,
        typer.Option(
            parser=whole("--term-years"),
            metavar="N",
            help="Years of a reservation or savings plan: 1 or 3.",
        ),
    ),
    typed_option(
        "commitment",
        str,
        typer.Option(
            metavar="whole|share",
            help="Charge a term whole, or only the run's share of it.",
        ),
        "whole",
    ),
    typed_option(
        "keep_checkpoints",
        str | None,
        typer.Option(
            metavar="N@STORE",
            help="Bill the storage of the last N checkpoints: 3@s3-standard or 3@fsx-lustre.",
        ),
    ),
    typed_option(
        "max_price_age",
        float | None,
        typer.Option(
            parser=duration("--max-price-age"),
            envvar=MAX_AGE_VARIABLE,
            metavar="TIME",
            help="Warn of rates older than this at the price date: 90d.",
        ),
    ),
    typed_option(
        "failures_per_node_day",
        float | None,
        typer.Option(
            metavar="RATE", help="Failures per node per day, e.g. 0.005; default: the chip's rate."
        ),
    ),
    typed_option(
        "checkpoint_interval",
        float | None,
        typer.Option(
            parser=duration("--checkpoint-interval"),
            metavar="TIME",
            help="Time between checkpoints: 30min; default: the optimum.",
        ),
    ),
)
LENGTH = RUN[:3]
"""How long a run is whose cluster is given."""
PRICES = MONEY[:6]
"""How it is bought: from `purchase` to `assume_price`."""
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

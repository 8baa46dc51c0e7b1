"""The options of `train` that say how long a run is and how it is bought."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from trnbench.cli.names import completes_stacks
from trnbench.cli.printing import typed_option
from trnbench.facts.parsing import count, date, share, whole

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
LENGTH = (
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
)
"""How long a run is whose cluster is given."""
PRICES = (
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
)
"""How it is bought: from `purchase` to `assume_price`."""

"""The options that say what run is to be bought, given to `compare` and `plan` by one decorator."""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trnbench.cli.layout_options import layout_options, partial_layout
from trnbench.cli.names import completes
from trnbench.cli.printing import hints_of
from trnbench.cli.values import literal
from trnbench.errors import InputError
from trnbench.parsing import count, date, duration, sequence, several, share, whole

if TYPE_CHECKING:
    from trnbench.app.run_request import Part, RunRequest
    from trnbench.catalog.search import Catalog

Command = Callable[..., int | None]


def _option(name: str, kind: Any, option: Any, default: object = None) -> Parameter:  # noqa: ANN401
    form = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=form)


MODEL = _option(
    "model",
    str,
    typer.Argument(metavar="MODEL", help="A model by name.", autocompletion=completes(("models",))),
    Parameter.empty,
)
RUN = (
    _option(
        "tokens",
        float | None,
        typer.Option(parser=count("--tokens"), metavar="N", help="Tokens to train on: 2T, 300B."),
    ),
    _option(
        "samples",
        float | None,
        typer.Option(parser=count("--samples"), metavar="N", help="Or samples: 50K."),
    ),
    _option(
        "phase",
        list[str] | None,
        typer.Option(
            metavar="TOKENS@SEQUENCE",
            help="Or parts of the run with contexts of their own: 1.9T@8192 (repeatable).",
        ),
    ),
    _option(
        "on",
        str | None,
        typer.Option(
            metavar="INSTANCE,...",
            help="Instance types to choose from.",
            autocompletion=completes(("instances",)),
        ),
    ),
    _option("nodes", str | None, typer.Option(metavar="N,...", help="Numbers of nodes.")),
    _option(
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
    _option(
        "headroom",
        float | None,
        typer.Option(
            parser=share("--headroom"),
            metavar="SHARE",
            help="Of a rank's memory to leave free: 10%.",
        ),
    ),
    _option(
        "stack",
        str | None,
        typer.Option(
            help="Calibration of a training stack; default: the instance's.",
            autocompletion=completes(("calibration",)),
        ),
    ),
    _option(
        "lnc",
        int | None,
        typer.Option(
            parser=whole("--lnc"), metavar="N", help="Logical core size on Trainium2 and 3."
        ),
    ),
)
MONEY = (
    _option(
        "purchase",
        str | None,
        typer.Option(
            metavar="OPTION,...",
            help="on-demand, capacity-block, reserved, savings-plan, spot, quote; default: the "
            "cheapest of the first three.",
        ),
    ),
    _option(
        "region", str | None, typer.Option(help="Default: the cheapest of the seller's main ones.")
    ),
    _option(
        "price_date",
        datetime.date | None,
        typer.Option(
            parser=date("--price-date"),
            metavar="YYYY-MM-DD",
            help="Prices as known on this day; default: today.",
        ),
    ),
    _option(
        "discount",
        float | None,
        typer.Option(
            parser=share("--discount"),
            metavar="SHARE",
            help="Off published rates, as negotiated: 18%.",
        ),
    ),
    _option(
        "price",
        list[str] | None,
        typer.Option(metavar="NAME=USD", help="Your own USD per instance-hour (repeatable)."),
    ),
    _option(
        "assume_price",
        list[str] | None,
        typer.Option(metavar="'A=4x B'", help="A price as a multiple of another's (repeatable)."),
    ),
    _option(
        "term_years",
        int | None,
        typer.Option(
            parser=whole("--term-years"), metavar="N", help="Years of a reservation: 1 or 3."
        ),
    ),
    _option(
        "commitment",
        str,
        typer.Option(
            metavar="whole|share",
            help="Charge a term whole, or by the run's share of it; default: whole.",
        ),
        "whole",
    ),
    _option(
        "keep_checkpoints",
        str | None,
        typer.Option(
            metavar="N@STORE",
            help="Bill the store of the last N checkpoints too: 3@s3-standard or 3@fsx-lustre.",
        ),
    ),
    _option(
        "failures_per_node_day",
        float | None,
        typer.Option(metavar="RATE", help="Failures of a node in a day; default: as known."),
    ),
    _option(
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
    """Return a command that takes the options of a run in place of `run: RunRequest`.

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
        request = _request(**options)
        _refuse_unused_prices(cast("Catalog", catalog), request)
        return command(out, catalog, request, **mine)

    with_run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_run


def _request(
    *,
    model: str,
    tokens: float | None,
    samples: float | None,
    phase: list[str] | None,
    on: str | None,
    nodes: str | None,
    max_nodes: int | None,
    headroom: float | None,
    stack: str | None,
    lnc: int | None,
    purchase: str | None,
    region: str | None,
    price_date: datetime.date | None,
    discount: float | None,
    price: list[str] | None,
    assume_price: list[str] | None,
    term_years: int | None,
    commitment: str,
    keep_checkpoints: str | None,
    failures_per_node_day: float | None,
    checkpoint_interval: float | None,
    **layout: Any,  # noqa: ANN401
) -> RunRequest:
    from trnbench.app.run_request import MAX_NODES, RunRequest
    from trnbench.plan.price_terms import Commitment

    if on is None:
        raise InputError("on which instances? e.g. --on trn2.48xlarge,p5.48xlarge")
    if ":" in on:
        raise InputError("--on takes instance types only; give numbers of nodes with --nodes")
    if nodes is not None and max_nodes is not None:
        raise InputError("--nodes says it all; leave out --max-nodes")
    return RunRequest(
        model=model,
        parts=_parts(tokens, samples, phase or []),
        instances=several("--on", str)(on),
        price_date=price_date or datetime.datetime.now(tz=datetime.UTC).date(),
        layout=partial_layout(layout),
        nodes=several("--nodes", whole("--nodes"))(nodes) if nodes else (),
        max_nodes=max_nodes or MAX_NODES,
        headroom=headroom or 0.0,
        stack=stack,
        logical_size=lnc,
        purchase=several("--purchase", str)(purchase) if purchase else (),
        region=region,
        discount=discount or 0.0,
        prices=tuple(price or ()),
        assumed_prices=tuple(assume_price or ()),
        term_years=term_years,
        commitment=cast("Commitment", literal("commitment", commitment, Commitment)),
        keep_checkpoints=keep_checkpoints,
        failures_per_node_day=failures_per_node_day,
        checkpoint_interval_s=checkpoint_interval,
    )


def _refuse_unused_prices(catalog: Catalog, run: RunRequest) -> None:
    from trnbench.plan.price_terms import parse_assumption, parse_own_price

    compared = {catalog.find("instances", name).name for name in run.instances}
    given = [("--price", parse_own_price(text)[0]) for text in run.prices]
    given += [("--assume-price", parse_assumption(text)[0]) for text in run.assumed_prices]
    for option, name in given:
        if catalog.find("instances", name).name not in compared:
            raise InputError(f"{option} names {name}, which is not among --on")


def _parts(tokens: float | None, samples: float | None, phases: list[str]) -> tuple[Part, ...]:
    from trnbench.app.run_request import Part

    if sum((tokens is not None, samples is not None, bool(phases))) != 1:
        raise InputError(
            "say how long the run is: --tokens 2T, --samples 50K, or --phase 1.9T@8192 parts, "
            "one of these"
        )
    if tokens is not None:
        return (Part(tokens=tokens),)
    if samples is not None:
        return (Part(samples=samples),)
    return tuple(_phase(text) for text in phases)


def _phase(text: str) -> Part:
    from trnbench.app.run_request import Part

    tokens, found, length = text.partition("@")
    if not found:
        raise InputError(f"--phase: {text!r} is not TOKENS@SEQUENCE, e.g. 1.9T@8192")
    return Part(tokens=count("--phase")(tokens), sequence=sequence("--phase")(length))

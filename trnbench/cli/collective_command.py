"""`trnbench collective`: collectives on instances and clusters, over message sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import Engine
from trnbench.cli.names import completes
from trnbench.cli.output import Format, write_whole
from trnbench.cli.printing import printing
from trnbench.cli.progress import Progress
from trnbench.errors import InputError, UnitError
from trnbench.parsing import count, place, several, size, whole
from trnbench.units import Dimension, parse

if TYPE_CHECKING:
    from trnbench.app.collective import CollectiveRequest, Neighbour
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output
    from trnbench.mapping.fabric import LinkFault

_FAULT = re.compile(r"(\d{1,9})-(\d{1,9}|net)(?:=(.+))?")


@printing
def collective(
    out: Output,
    catalog: Catalog,
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, permute or "
            "send-receive.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="INSTANCE[:NODES],...",
            help="Where.",
            autocompletion=completes(("instances",)),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", help="A collective suite.", autocompletion=completes(("collective",))
        ),
    ] = None,
    min_size: Annotated[
        float | None,
        typer.Option(
            parser=size("--min-size"), metavar="SIZE", help="Smallest size; default: 1KiB."
        ),
    ] = None,
    max_size: Annotated[
        float | None,
        typer.Option(
            parser=size("--max-size"), metavar="SIZE", help="Largest size; default: 1GiB."
        ),
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option(
            parser=count("--factor"),
            metavar="NUMBER",
            help="Each size is so many times the one before; default: 4.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="FORMAT", help="Format of elements.")] = "fp32",
    ranks: Annotated[
        int | None,
        typer.Option(
            parser=whole("--ranks"), metavar="N", help="Use only the first ranks; default: all."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="GROUPS",
            help="16: groups of 16 ranks; 16@32: 16 ranks, 32 apart; or lists: 0-7;8-15.",
        ),
    ] = None,
    lnc: Annotated[
        int | None,
        typer.Option(
            parser=whole("--lnc"), metavar="N", help="Logical core size on Trainium2 and 3."
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(help="auto, or ring, kangaring, halving, mesh, ... hierarchical:INNER:OUTER."),
    ] = "auto",
    stack: Annotated[
        str | None,
        typer.Option(
            help="Calibration of a communication stack; default: the instance's.",
            autocompletion=completes(("calibration",)),
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Closed form, message by message.")] = (
        Engine.ANALYTIC
    ),
    fail_link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A-B[=SHARE]",
            help="The link between chips A and B (or A-net) is dead, or keeps a share of speed.",
        ),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP:SIZE[:GROUPS]",
            help="Play another collective at the same time (repeatable; --engine emulate).",
        ),
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Show how busy links are.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Move real data and check every rank.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="With --check: seed of the data.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace of the messages.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw bus bandwidth over size.")] = False,
) -> int:
    """Time a collective over message sizes, as nccl-tests and nccom-test print it.

    Sizes count as nccl-tests does; KiB is 1024 bytes, KB is 1000. algbw is size over time; busbw
    is algbw x 2(r-1)/r for all-reduce, x (r-1)/r for all-gather, reduce-scatter and all-to-all.
    """
    from trnbench.app import collective as use_case
    from trnbench.report.collective import collective_report, collective_trace

    if plot and out.format is not Format.TABLE:
        raise InputError("--plot draws for people; it needs --format table")
    if seed is not None and not check:
        raise InputError("--seed acts on the data of --check")
    if seed is not None and seed < 0:
        raise InputError("--seed must not be negative")
    if beside and engine is Engine.ANALYTIC:
        raise InputError("--beside plays collectives at once; it needs --engine emulate or both")
    sizes = (min_size, max_size, factor)
    request = replace(
        _what(catalog, op, on, suite, sizes),
        engines=engine.engines,
        ranks=ranks,
        groups=groups,
        algorithm=None if algorithm == "auto" else algorithm,
        stack=stack,
        logical_size=lnc,
        number_format=dtype,
        faults=tuple(_fault(text) for text in fail_link or ()),
        links=links,
        check=check,
        seed=seed or 0,
        trace=trace is not None,
        beside=tuple(_neighbour(text) for text in beside or ()),
    )
    with Progress(quiet=out.quiet) as progress:
        answers = use_case.run(catalog, request, progress=progress)
    if trace is not None:
        write_whole(trace, collective_trace(answers))
        out.narrate(f"trace: {trace} (open it at ui.perfetto.dev)")
    inputs = use_case.inputs_of(request)
    out.write(collective_report(answers, inputs, links=links, plot=plot))
    good = all(a.feasible and not (a.check or "").startswith("FAILED") for a in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _what(
    catalog: Catalog,
    op: str | None,
    on: str | None,
    suite: str | None,
    sizes: tuple[float | None, float | None, float | None],
) -> CollectiveRequest:
    from trnbench.app import collective as use_case
    from trnbench.program.collective import op_named

    if (op is None) == (suite is None):
        raise InputError("give an operation (such as all-reduce) or --suite NAME, one of the two")
    if suite is not None:
        if on is not None or any(size is not None for size in sizes):
            raise InputError("a suite brings its own places and sizes; leave out --on and sizes")
        return use_case.suite_requests(catalog, suite)
    if on is None:
        raise InputError("on which instance? e.g. --on trn2.48xlarge or trn2.48xlarge:4")
    smallest, largest, factor = sizes
    return use_case.CollectiveRequest(
        ops=(op_named(op or ""),),
        places=tuple(
            use_case.Place(instance=name, nodes=nodes)
            for name, nodes in several("--on", place("--on"))(on)
        ),
        sizes_bytes=use_case.sizes_between(
            2.0**10 if smallest is None else smallest,
            2.0**30 if largest is None else largest,
            4.0 if factor is None else factor,
        ),
    )


def _neighbour(text: str) -> Neighbour:
    from trnbench.app.collective import Neighbour
    from trnbench.program.collective import op_named

    op, _, rest = text.partition(":")
    size_text, _, groups = rest.partition(":")
    return Neighbour(op=op_named(op), size_bytes=size("--beside")(size_text), groups=groups or None)


def _fault(text: str) -> LinkFault:
    from trnbench.mapping.fabric import LinkFault

    match = _FAULT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail-link: cannot read {text!r}; write A-B, A-net, or A-B=0.5")
    try:
        factor = parse(match[3], Dimension.RATIO) if match[3] else 0.0
    except UnitError as error:
        raise InputError(f"--fail-link: {error.message}") from None
    target = None if match[2] == "net" else int(match[2])
    return LinkFault(source=int(match[1]), target=target, factor=factor)

"""`trnbench collective`: collectives on instances and clusters, over message sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.engine import EngineChoice
from trnbench.cli.names import completes
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.parsing import count, size, whole

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping(plots=True)
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
            help="Cluster, e.g. trn2.48xlarge:4.",
            autocompletion=completes(("instances",), several=True),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            help="Collective suite (trnbench workload list collective).",
            autocompletion=completes(("collective",)),
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
            help="Factor from one size to the next; default: 4.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="FORMAT", help="Format of the elements, e.g. bf16.")
    ] = "fp32",
    ranks: Annotated[
        int | None,
        typer.Option(
            parser=whole("--ranks"), metavar="N", help="Use only the first N ranks; default: all."
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
            parser=whole("--lnc"),
            metavar="N",
            help="Logical core size on Trainium2 and 3: 1 or 2; default: 2.",
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(help="auto, or ring, kangaring, halving, mesh, ... hierarchical:INNER:OUTER."),
    ] = "auto",
    stack: Annotated[
        str | None,
        typer.Option(
            help="Communication stack, e.g. collective-neuron-trn2; default: the instance's.",
            autocompletion=completes(("calibration",), prefix="collective-"),
        ),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="analytic, simulated message by message (emulate), or both."),
    ] = (EngineChoice.ANALYTIC),
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
    from trnbench.app.collective_request import inputs_of
    from trnbench.app.verbs import collective as use_case
    from trnbench.report.collective import collective_report, collective_trace

    if plot:
        out.refuse_plot()
    request = use_case.collective.request(
        op,
        on=on if on is not None else (),
        suite=suite,
        min_size=min_size,
        max_size=max_size,
        factor=factor,
        dtype=dtype,
        ranks=ranks,
        groups=groups,
        lnc=lnc,
        algorithm=algorithm,
        stack=stack,
        engine=engine.value,
        fail_link=fail_link or (),
        beside=beside or (),
        links=links,
        check=check,
        seed=seed,
        trace=trace is not None,
        catalog=catalog,
    )
    with ProgressLine(quiet=out.quiet) as progress:
        answers = use_case.run(catalog, request, progress=progress)
    if trace is not None:
        write_whole(trace, collective_trace(answers))
        out.narrate(f"trace: {trace} (open it at ui.perfetto.dev)")
    inputs = inputs_of(request)
    out.write(collective_report(answers, inputs, links=links, plot=plot))
    good = all(a.feasible and not (a.check or "").startswith("FAILED") for a in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO

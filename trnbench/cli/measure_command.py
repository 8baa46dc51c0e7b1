"""`trnbench measure`: workloads run on this machine, and kept as rows of evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.interrupts import Interrupts
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.records import replace
from trnbench.facts.units import counted

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

_ENDINGS = (".csv", ".json")


@keeping()
def measure(
    out: Output,
    catalog: Catalog,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="all, matrix (products, streams, launches), collective, train (small decoders).",
            autocompletion=lambda: ["all", "matrix", "collective", "train"],
        ),
    ] = "all",
    suite: Annotated[
        str | None,
        typer.Option(
            help="quick: minutes; full: more sizes; default: quick.",
            autocompletion=lambda: ["quick", "full"],
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto, cpu, cuda or neuron: what JAX is to run on.",
            autocompletion=lambda: ["auto", "cpu", "cuda", "neuron"],
        ),
    ] = "auto",
    host_devices: Annotated[
        str, typer.Option(metavar="N", help="Devices that are made of a host without others.")
    ] = "8",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Nothing begins after so long: 90s, 5m.")
    ] = "5m",
    write_spec: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write the machine's chip, instance and calibrations into your own data.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --write-spec: replace your own of that name.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short for --suite quick.")] = False,
    seed: Annotated[str, typer.Option(help="Seed of the numbers.")] = "0",
    decoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Train this in place of the suite's three: layers, hidden, heads, ffn, vocab, "
            "sequence, micro-batch, micro-batches, tp, precision, attention; may be repeated.",
        ),
    ] = None,
) -> int:
    """Measure this machine: every device at work, numbers checked, rows kept with provenance.

    The last line says how near training steps come to what the other rows predict of them. -o
    FILE.csv or FILE.json writes the rows, which validate and calibrate read. It needs JAX: pip
    install 'trnbench[measure]'.
    """
    from trnbench.app.measured_machine import refuse_taken, write_machine
    from trnbench.app.verbs import measure as use_case
    from trnbench.evidence.measured_columns import measured_text
    from trnbench.report.measure import measure_report

    path = None if out.destination == STDOUT else Path(out.destination)
    if path is not None and path.suffix not in _ENDINGS:
        raise InputError(f"-o {path}: measured rows are written to {' or '.join(_ENDINGS)}")
    if quick and suite not in (None, "quick"):
        raise InputError(f"--quick contradicts --suite {suite}; give one of them")
    if decoder and kind not in ("all", "train"):
        raise InputError(f"--decoder says what is trained: measure all or train, not {kind}")
    if write_spec is not None:
        if kind != "all":
            raise InputError(f"--write-spec needs rows of all kinds: measure all, not {kind}")
        refuse_taken(catalog, write_spec, force=force)
    elif force:
        raise InputError("--force goes with --write-spec")
    request = use_case.measure.request(
        kind,  # type: ignore[arg-type]
        suite=suite or "quick",  # type: ignore[arg-type]
        device=device,  # type: ignore[arg-type]
        host_devices=host_devices,
        budget=budget,
        name=write_spec,
        seed=seed,
        decoder=decoder or (),
    )
    with ProgressLine(quiet=out.quiet) as progress, Interrupts() as interrupts:
        answer = use_case.run(catalog, request, progress=progress, cancel=interrupts.asked)
    if path is not None:
        text = measured_text([row.cells for row in answer.rows], as_json=path.suffix == ".json")
        out.write_bytes(text.encode())
        out.narrate(f"{counted(len(answer.rows), 'row')} written to {path}")
    replace(out, destination=STDOUT).write(measure_report(answer, use_case.inputs_of(request)))
    if write_spec is not None and (answer.stopped or answer.failed or answer.missing):
        out.narrate(f"--write-spec {write_spec}: nothing is written, as rows are missing or wrong")
    if answer.stopped == "interrupt":
        return ExitCode.INTERRUPTED
    if answer.failed or answer.missing:
        return ExitCode.ANSWER_IS_NO
    if write_spec is not None:
        for path in write_machine(catalog, answer.rows):
            out.narrate(f"written: {path}")
    return ExitCode.DONE

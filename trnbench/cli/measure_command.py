"""`trnbench measure`: workloads run on this machine, and kept as rows of evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import keeping
from trnbench.cli.watching import Interrupts, ProgressLine
from trnbench.errors import InputError
from trnbench.facts.records import replace
from trnbench.facts.units import counted
from trnbench.verbs.measure.question import MeasureQuestion, MeasureShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

_ENDINGS = (".csv", ".json")


@keeping()
@asks(MeasureQuestion, MeasureShowing, ahead_of="seed")
def measure(
    out: Output, catalog: Catalog, question: MeasureQuestion, showing: MeasureShowing
) -> int:
    """Measure this machine: every device at work, numbers checked, rows kept with provenance.

    The last line says how near training steps come to what the other rows predict of them. -o
    FILE.csv or FILE.json writes the rows, which validate and calibrate read. It needs JAX: pip
    install 'trnbench[measure]'; measure steps needs trnbench[torch].
    """
    from trnbench.evidence.columns import measured_text
    from trnbench.verbs.measure.answer import measure_report
    from trnbench.verbs.measure.run import SCRIPT, run, write_machine

    path = None if out.destination == STDOUT else Path(out.destination)
    if path is not None and path.suffix not in _ENDINGS:
        raise InputError(f"-o {path}: measured rows are written to {' or '.join(_ENDINGS)}")
    _check(catalog, question, showing)
    if showing.script:
        out.write_bytes(SCRIPT.read_bytes())
        return ExitCode.DONE
    name = showing.write_spec
    question = question if name is None else question.but(name=name)
    with ProgressLine(quiet=out.quiet) as progress, Interrupts() as interrupts:
        answer = run(catalog, question, progress=progress, cancel=interrupts.asked)
    if path is not None:
        text = measured_text([row.cells for row in answer.rows], as_json=path.suffix == ".json")
        out.write_bytes(text.encode())
        out.narrate(f"{counted(len(answer.rows), 'row')} written to {path}")
        if question.kind == "steps":
            kept = path.with_suffix(".py")
            replace(out, destination=str(kept)).write_bytes(SCRIPT.read_bytes())
            out.narrate(f"the script that timed them: {kept}")
    replace(out, destination=STDOUT).write(measure_report(answer, question.inputs()))
    if name is not None:
        try:
            written, inherited = write_machine(catalog, answer.rows)
        except InputError as error:
            out.narrate(f"--write-spec {name}: nothing is written: {error.message}")
            return ExitCode.ANSWER_IS_NO
        for line in (*inherited, *(f"written: {path}" for path in written)):
            out.narrate(line)
    if answer.stopped == "interrupt":
        return ExitCode.INTERRUPTED
    return ExitCode.ANSWER_IS_NO if answer.failed or answer.missing else ExitCode.DONE


def _check(catalog: Catalog, question: MeasureQuestion, showing: MeasureShowing) -> None:
    from trnbench.verbs.measure.machine import refuse_taken

    if showing.quick and question.suite != "quick":
        raise InputError(f"--quick contradicts --suite {question.suite}; give one of them")
    if showing.write_spec is not None:
        if question.kind != "all":
            raise InputError(
                f"--write-spec needs rows of all kinds: measure all, not {question.kind}"
            )
        if question.name not in (None, showing.write_spec):
            raise InputError("--name contradicts --write-spec, which names the machine too")
        refuse_taken(catalog, showing.write_spec, force=showing.force)
    elif showing.script and question.kind != "steps":
        raise InputError("--script goes with measure steps")
    elif showing.force:
        raise InputError("--force goes with --write-spec")

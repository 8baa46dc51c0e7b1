"""`trnbench spec`: the hardware and prices that trnbench knows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode, command_group
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import printing
from trnbench.facts.catalog.search import SPEC_SECTIONS, listed, sections_of
from trnbench.facts.catalog.whole_file import make_folder, write_whole
from trnbench.facts.records import replace
from trnbench.verbs.asking.shared_options import PathsQuestion
from trnbench.verbs.spec.question import (
    SpecDiffQuestion,
    SpecListQuestion,
    SpecNewQuestion,
    SpecShowQuestion,
)

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = command_group(
    "Chips, instances, prices and calibrations: list, show, compare, validate, new."
)


@application.command("list")
@printing
@asks(SpecListQuestion)
def list_specs(out: Output, catalog: Catalog, question: SpecListQuestion) -> None:
    """List chips, instances, price lists and calibrations, and where each comes from."""
    from trnbench.verbs.spec.text import list_report

    sections = sections_of(question.kind, SPEC_SECTIONS)
    out.write(list_report("spec-list", listed(catalog, sections)))


@application.command("show")
@printing
@asks(SpecShowQuestion)
def show_spec(out: Output, catalog: Catalog, question: SpecShowQuestion) -> None:
    """Show one spec: every value with kind and source, the topology, conflicts between sources."""
    from trnbench.show.sheet import sheet_report
    from trnbench.verbs.spec.run import sheet

    sections = ("instances", *(name for name in SPEC_SECTIONS if name != "instances"))
    out.write(sheet_report("spec-show", sheet(catalog, question.name, sections)))


@application.command("diff")
@printing
@asks(SpecDiffQuestion)
def diff_specs(out: Output, catalog: Catalog, question: SpecDiffQuestion) -> None:
    """Line up two or more instances (or chips), with ratios to the first."""
    from trnbench.verbs.spec.run import diff
    from trnbench.verbs.spec.text import diff_report

    out.write(diff_report(*diff(catalog, question.names)))


@application.command("new")
@printing
@asks(SpecNewQuestion)
def new_spec(out: Output, catalog: Catalog, question: SpecNewQuestion) -> None:
    """Write a small file for a cluster of your own, which is like a known one.

    It is written to the folder of your own data files, which is always searched. -o - prints it;
    -o FOLDER/instances/NAME.toml writes it there, for --spec-dir FOLDER. An hourly rate goes into
    prices/, of kind assumed.
    """
    from trnbench.verbs.spec.own_cluster import new_cluster
    from trnbench.verbs.spec.text import new_cluster_report

    file = None if out.destination == STDOUT else Path(out.destination)
    made = new_cluster(catalog, question, file=file, today=datetime.date.today())
    for warning in made.warnings:
        out.narrate(f"trnbench: warning: {warning}")
    if out.said and file is None:
        # A rate is a file of its own, whose place a comment tells.
        texts = [f"# {'/'.join(path.parts[-2:])}\n{text}" for path, text in made.files]
        out.write_bytes("\n".join(texts).encode())
        return
    for path, text in made.files:
        make_folder(path.parent)
        write_whole(path, text.encode())
    paths = [path for path, _ in made.files]
    spec_dir = None if file is None else file.parent.parent
    replace(out, destination=STDOUT).write(
        new_cluster_report(question.name, paths, spec_dir, made.terms, made.usd_per_hour)
    )


@application.command("validate")
@printing
@asks(PathsQuestion)
def validate_specs(out: Output, catalog: Catalog, question: PathsQuestion) -> int:
    """Check spec files and list all their faults; exit code 2 if there are any."""
    from trnbench.verbs.spec.run import check_files
    from trnbench.verbs.spec.text import check_report

    checks = check_files(catalog, question.paths, SPEC_SECTIONS)
    out.write(check_report("spec-validate", checks))
    return ExitCode.MALFORMED if any(check.faults for check in checks) else ExitCode.DONE

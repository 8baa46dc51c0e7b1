"""`trnbench workload`: the models and suites that trnbench knows, and how to add one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode, help_alone, say
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT, OutputFormat, check_outputs, chosen_output
from trnbench.cli.printing import printing
from trnbench.errors import InputError
from trnbench.facts.catalog.search import WORKLOAD_SECTIONS, sections_of

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = typer.Typer(
    help="Models and benchmark suites: list, show, validate, import.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)

_COMPLETES = completes(("models", "matrix", "collective", "training"))


def _kinds(incomplete: str) -> list[str]:
    return [name for name in WORKLOAD_SECTIONS if name.startswith(incomplete)]


@application.command("list")
@printing
def list_workloads(
    out: Output,
    catalog: Catalog,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(WORKLOAD_SECTIONS)}; default: all.",
            autocompletion=_kinds,
        ),
    ] = None,
) -> None:
    """List models with family, parameters (in all, active for a token) and context, and suites."""
    from trnbench import app
    from trnbench.report.catalog_reports import list_report

    out.write(
        list_report(
            "workload-list",
            app.listed(catalog, sections := sections_of(kind, app.WORKLOAD_SECTIONS)),
            app.model_facts(catalog) if "models" in sections else None,
        )
    )


@application.command("show")
@printing
def show_workload(
    out: Output,
    catalog: Catalog,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=_COMPLETES)],
) -> None:
    """Show one model with its parameter counts, or one suite; models come before suites."""
    from trnbench import app
    from trnbench.show.sheet import sheet_report

    out.write(sheet_report("workload-show", app.sheet(catalog, name, app.WORKLOAD_SECTIONS)))


@application.command("validate")
@printing
def validate_workloads(
    out: Output,
    catalog: Catalog,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders.")],
) -> int:
    """Check workload files and list all their faults; exit code 2 if there are any."""
    from trnbench import app
    from trnbench.cli.main import options_of
    from trnbench.report.catalog_reports import check_report

    checks = app.check_files(catalog, paths, app.WORKLOAD_SECTIONS, options_of)
    out.write(check_report("workload-validate", checks))
    return ExitCode.MALFORMED if any(check.faults for check in checks) else ExitCode.DONE


@application.command("import")
def import_workload(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG_JSON|FOLDER", help="A config.json, or its folder.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the model; default: the output's stem, or the folder."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option("--as", metavar="FAMILY", help="Read it as this family, whatever it says."),
    ] = None,
    depths: Annotated[
        bool, typer.Option("--mtp", help="Take in modules of multi-token prediction.")
    ] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is stdout.")
    ] = STDOUT,
    save: Annotated[
        bool, typer.Option("--save", help="Keep it among your own models, for all verbs.")
    ] = False,
) -> None:
    """Turn a Hugging Face config.json into a model file."""
    from trnbench import app
    from trnbench.facts.catalog.search import user_folder

    if save and output != STDOUT:
        raise InputError("--save and --output both say where the model goes; give one")
    chosen = name or (Path(output).stem if output != STDOUT else None)
    if output.endswith(".toml") and Path(output).stem != chosen:
        raise InputError(
            f"--name {chosen} contradicts --output {output}: a model file has its model's name"
        )
    found = app.import_model(config, chosen, family=family, depths=depths)
    if save:
        output = str(user_folder() / "models" / f"{found.name}.toml")
        if Path(output).exists():
            raise InputError(f"{output} is there already; nothing is overwritten")
        Path(output).parent.mkdir(parents=True, exist_ok=True)
    out = chosen_output(OutputFormat.TABLE, False, output, False)
    if output != STDOUT:
        check_outputs({"--output": Path(output)}, [config], ())
    out.write_bytes(found.text.encode())
    for words in found.ignored:
        say(words)
    if save:
        say(f"written: {output}; try: trnbench workload show {found.name}")

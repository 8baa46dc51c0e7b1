"""`trnbench workload`: the models and suites that trnbench knows, and how to add one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode, command_group, say
from trnbench.cli.output import STDOUT, Printed, check_outputs, chosen_output
from trnbench.cli.printing import printing
from trnbench.errors import InputError
from trnbench.facts.catalog.search import WORKLOAD_SECTIONS, listed, sections_of
from trnbench.verbs.asking.question import Question, option
from trnbench.verbs.asking.shared_options import PathsQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


class WorkloadListQuestion(Question):
    """The models and suites of a kind, or of all kinds."""

    kind: str | None = option(
        f"One of {', '.join(WORKLOAD_SECTIONS)}; default: all.",
        metavar="KIND",
        argument=True,
        completes=("kinds of workloads",),
    )


class WorkloadShowQuestion(Question):
    """A model or suite by its name, or `section/name`."""

    name: str = option(
        "",
        metavar="NAME",
        argument=True,
        required=True,
        completes=("models", "matrix", "collective", "training"),
    )


class ImportQuestion(Question):
    """A Hugging Face configuration, read as a model of a family.

    `depths`: modules that predict further tokens are taken in. `output` is a file, or - for stdout.
    """

    config: Path = option(
        "A config.json, or its folder.", metavar="CONFIG_JSON|FOLDER", argument=True, required=True
    )
    name: str | None = option("Name of the model; default: the output's stem, or the folder.")
    family: str | None = option(
        "Read it as this family, whatever it says.", name="as", metavar="FAMILY"
    )
    depths: bool = option("Take in modules of multi-token prediction.", name="mtp")
    output: str = option("Write to FILE; - is stdout.", default=STDOUT, metavar="FILE", short="-o")
    save: bool = option("Keep it among your own models, for all verbs.")

    def __post_init__(self) -> None:
        """Refuse two places, and a file that is not named for its model."""
        if self.save and self.output != STDOUT:
            raise InputError("--save and --output both say where the model goes; give one")
        if self.output.endswith(".toml") and Path(self.output).stem != self.model:
            raise InputError(
                f"--name {self.model} contradicts --output {self.output}: a model file has its "
                "model's name"
            )

    @property
    def model(self) -> str | None:
        return self.name or (Path(self.output).stem if self.output != STDOUT else None)


application = command_group("Models and benchmark suites: list, show, validate, import.")


@application.command("list")
@printing
@asks(WorkloadListQuestion)
def list_workloads(out: Output, catalog: Catalog, question: WorkloadListQuestion) -> None:
    """List models with family, parameters (in all, active for a token) and context, and suites."""
    from trnbench.verbs.spec.text import list_report
    from trnbench.verbs.workload.run import model_facts

    sections = sections_of(question.kind, WORKLOAD_SECTIONS)
    facts = model_facts(catalog) if "models" in sections else None
    out.write(list_report("workload-list", listed(catalog, sections), facts))


@application.command("show")
@printing
@asks(WorkloadShowQuestion)
def show_workload(out: Output, catalog: Catalog, question: WorkloadShowQuestion) -> None:
    """Show one model with its parameter counts, or one suite; models come before suites."""
    from trnbench.show.sheet import sheet_report
    from trnbench.verbs.spec.run import sheet

    out.write(sheet_report("workload-show", sheet(catalog, question.name, WORKLOAD_SECTIONS)))


@application.command("validate")
@printing
@asks(PathsQuestion)
def validate_workloads(out: Output, catalog: Catalog, question: PathsQuestion) -> int:
    """Check workload files and list all their faults; exit code 2 if there are any."""
    from trnbench.cli.main import options_of
    from trnbench.verbs.spec.run import check_files
    from trnbench.verbs.spec.text import check_report

    checks = check_files(catalog, question.paths, WORKLOAD_SECTIONS, options_of)
    out.write(check_report("workload-validate", checks))
    return ExitCode.MALFORMED if any(check.faults for check in checks) else ExitCode.DONE


@application.command("import")
@asks(ImportQuestion)
def import_workload(question: ImportQuestion) -> None:
    """Turn a Hugging Face config.json into a model file."""
    from trnbench.verbs.workload.run import import_model, own_model_path

    made = import_model(
        question.config, question.model, family=question.family, depths=question.depths
    )
    output = str(own_model_path(made.name)) if question.save else question.output
    out = chosen_output(Printed(destination=output))
    if output != STDOUT:
        check_outputs({"--output": Path(output)}, [question.config], ())
    out.write_bytes(made.text.encode())
    for words in made.ignored:
        say(words)
    if question.save:
        say(f"written: {output}; try: trnbench workload show {made.name}")

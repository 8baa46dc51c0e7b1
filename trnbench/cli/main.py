"""The entry point: one Typer application, run so that every outcome has its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import typer

from trnbench import __version__
from trnbench.cli.asking import Options, answering, asked, question_options
from trnbench.cli.defaults import configured
from trnbench.cli.derived_options import parameter_of, with_signature
from trnbench.cli.diagnostics import DEBUG_VARIABLE, guarded
from trnbench.cli.first_screen import VERB_GROUPS, FewOptions
from trnbench.cli.plain_command import KEPT, plain_command
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report

EPILOG = (
    "Exit codes: 0 done; 1 no (does not fit, no price, check failed); 2 malformed "
    "input; 3 environment; 70 a bug; 130 interrupted."
)

EXAMPLES = """trnbench: does a training job fit AWS Trainium, how fast, how much, how sure?

  trnbench compare llama3.1-70b                     which instance is cheapest
  trnbench plan llama3.1-8b --tokens 1T --on trn2.48xlarge --deadline 30d
  trnbench train llama3.1-8b --on trn2.48xlarge:4   does it fit, how fast
  trnbench calibrate steps.csv --stack mine         predict from your own steps
  trnbench tui                                      all of it on one screen

trnbench --help lists the commands, trnbench help the concepts."""
"""What the bare command shows."""

HELP = """Benchmark and plan training on AWS Trainium: does it fit, how fast, how much, how sure?

\b
Three commands to try:
  trnbench compare llama3.1-70b                     which instance is cheapest
  trnbench train llama3.1-8b --on trn2.48xlarge:4   does it fit, how fast
  trnbench tui                                      all of it on one screen"""
VERBS: Mapping[str, str] = {
    "compare": "Compare instance types for one training run.",
    "plan": "Plan a run: which machines, how many, bought how.",
    "train": "Time one training step: fit, speed, memory.",
    "fleet": "Plan many jobs and one purchase.",
    "launch": "Write the files that start a layout.",
    "verify": "Compare a launched run with its prediction.",
    "matrix": "Time matrix products on a core or a chip.",
    "collective": "Time a collective over message sizes.",
    "measure": "Run workloads on this machine.",
    "validate": "Compare predictions with measurements.",
    "calibrate": "Fit a training stack to your measured steps.",
    "explain": "Explain why measured steps are slower or faster.",
    "claims": "Check published performance and cost claims.",
    "numerics": "Train a small model in several precisions.",
    "tui": "Open the terminal UI.",
    "help": "Explain a concept: layout, calibration, purchase ...",
    "info": "Show versions, data folders and what was found.",
    "spec": "Chips, instances, prices, calibrations.",
    "workload": "Models and benchmark suites.",
    "prices": "Price history and price updates.",
    "runs": "Answers kept: list, show, compare, export.",
    "study": "One verb over many options, resumable.",
}
"""Every verb and its line, in the order of the help.

`cli/VERB_command.py` has its command, unless it is a plain one.
"""


class _AllVerbs(typer.core.TyperGroup):
    """Every verb by its name and line; one becomes a command when words ask for it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        if args and args[0] in VERBS:
            self.commands[args[0]] = _commands(args[0]).commands[args[0]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the verbs under what they are for."""
        for heading, verbs in VERB_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(10), VERBS[verb]) for verb in verbs])


def application(*verbs: str) -> typer.Typer:
    """Return the application with these verbs, or with all: what is not asked is not imported."""
    made = typer.Typer(
        name="trnbench",
        cls=None if verbs else _AllVerbs,
        help=HELP,
        epilog=EPILOG,
        invoke_without_command=True,
        rich_markup_mode=None,  # Rich costs 40 ms, and help has to appear at once
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    version, debug = StartQuestion.options().values()
    parameters = [
        Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
        parameter_of(version, callback=_version, is_eager=True),
        parameter_of(debug),
    ]
    made.callback()(with_signature(_options, parameters))
    for verb in () if verbs else VERBS:
        made.command(verb, short_help=VERBS[verb])(_nothing)
    for verb in verbs:
        if verb in KEPT:
            made.command(verb, cls=FewOptions, short_help=VERBS[verb])(plain_command(verb))
            continue
        module = import_module(f"trnbench.cli.{verb}_command")
        if hasattr(module, "application"):
            for command in module.application.registered_commands:
                command.cls = FewOptions
            made.add_typer(module.application, name=verb, short_help=VERBS[verb])
        else:
            function = module.concepts if verb == "help" else getattr(module, verb)
            # Options are words too: `trnbench help --deadline`.
            settings = {"ignore_unknown_options": verb == "help"}
            made.command(verb, cls=FewOptions, short_help=VERBS[verb], context_settings=settings)(
                function
            )
    return made


def _nothing() -> None:
    """Stand for a verb that was not asked for."""


def _command(verb: str) -> Any:  # noqa: ANN401 - a type of Typer's that it does not export
    return _commands(*({verb} & {*VERBS}))


@cache
def _commands(*verbs: str) -> Any:  # noqa: ANN401
    """Return the command of some verbs; made once, for a study asks a verb again and again."""
    return typer.main.get_command(application(*verbs))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trnbench {__version__}")
        raise typer.Exit


class StartQuestion(Question):
    """Options that stand before the verb."""

    version: bool = option("Show the version.")
    debug: bool = option("Show tracebacks of errors.")


def _options(context: typer.Context, **_: bool) -> None:
    """Take the options that stand before the verb; `main` has acted on --debug already."""
    if context.invoked_subcommand is None:
        typer.echo(EXAMPLES)
        raise typer.Exit


def ask(verb: str, options: Options, catalog: Catalog | None = None) -> tuple[Report | None, int]:
    with answering((), ask):
        return asked(_command(verb), verb, options, catalog)


def options_of(verb: str) -> frozenset[str]:
    return question_options(_command(verb), verb)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = _command(next((word for word in given if word != "--debug"), ""))
    debug = "--debug" in given or bool(os.environ.get(DEBUG_VARIABLE))

    def run() -> Any:  # noqa: ANN401 - what Typer returns
        with configured(given, VERBS) as defaults:
            return command.main(
                args=given, prog_name="trnbench", standalone_mode=False, default_map=defaults
            )

    with answering(given, ask):
        return guarded(run, debug=debug)

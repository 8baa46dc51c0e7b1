"""What `trnbench --help` and `trnbench VERB --help` show first: groups, and few options.

`--help-all` shows every option of a verb.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

VERB_GROUPS: Mapping[str, Sequence[str]] = {
    "Decide": ("compare", "plan", "fleet"),
    "Step": ("train", "matrix", "collective", "numerics"),
    "Run": ("launch", "verify", "explain"),
    "Trust": ("validate", "calibrate", "measure", "claims"),
    "Data": ("spec", "workload", "prices"),
    "History": ("runs", "study"),
    "More": ("tui", "help", "info"),
}
"""Verbs by what they are for, in the order of the help."""
_OUTPUT = ("report", "json", "output")
_JOB = ("sequence", "global-batch", "precision", "stack")
_DEGREES = ("layout", "tp", "pp", "micro-batch", "recompute")
FIRST: Mapping[str, Mapping[str, Sequence[str]]] = {
    "compare": {
        "Question": ("tokens", "on", "nodes", *_JOB),
        "Limits": ("deadline", "confidence", "buyable-only"),
        "What if": ("price", "speed", "purchase", "sensitivity"),
        "Output": ("details", *_OUTPUT),
    },
    "plan": {
        "Question": ("tokens", "on", *_JOB),
        "Limits": ("deadline", "budget", "confidence"),
        "What if": ("price", "speed", "purchase", "sensitivity"),
        "Output": ("pilot", "details", *_OUTPUT),
    },
    "train": {
        "Question": ("on", "tokens", *_JOB),
        "Layout": (*_DEGREES, "vs", "prefer"),
        "Output": ("memory", "plot", "engine", "json", "output"),
    },
    "validate": {
        "Question": ("evidence", "set", "model", "on", "stack", "engine"),
        "Limits": ("fail-above", "against"),
        "Output": ("details", "template", *_OUTPUT),
    },
    "calibrate": {
        "Question": ("stack", "from", "all-rows", "model", "on"),
        "Layout of a log": ("layout", "tp", "pp", "global-batch", "sequence", "precision"),
        "Output": ("into", "force", "json", "output"),
    },
    "explain": {
        "Question": ("model", "on", "stack"),
        "Layout of a log": (*_DEGREES, "global-batch", "sequence", "precision"),
        "Output": ("json", "output"),
    },
    "launch": {
        "Question": ("on", "with", *_JOB, "tokens", "list"),
        "Layout": (*_DEGREES,),
        "Output": ("output", "force"),
    },
    "matrix": {
        "Question": ("on", "dtype", "cores", "kernels", "engine", "suite"),
        "Check": ("check", "sparsity", "rounding"),
        "Output": ("plot", "trace", "json", "output"),
    },
    "collective": {
        "Question": ("on", "min-size", "max-size", "ranks", "dtype", "algorithm", "engine"),
        "Check": ("check", "links", "fail-link"),
        "Output": ("plot", "trace", "json", "output"),
    },
}
"""Options of a verb's first screen, by heading; verbs with few options show all."""
EXAMPLES: Mapping[str, Sequence[str]] = {
    "compare": (
        "trnbench compare llama3.1-70b --tokens 2T --deadline 60d",
        "trnbench compare llama3.1-8b --price trn2.48xlarge=-20% --sensitivity",
    ),
    "plan": (
        "trnbench plan llama3.1-8b --tokens 1T --on trn2.48xlarge --deadline 30d",
        "trnbench plan llama3.1-8b --on trn2.48xlarge,p5.48xlarge --budget 300K",
    ),
    "train": (
        "trnbench train llama3.1-8b --on trn2.48xlarge:4",
        "trnbench train llama3.1-8b --on trn1.32xlarge:4 --layout tp=8,pp=1 --memory",
    ),
    "validate": ("trnbench validate", "trnbench validate --evidence steps.csv --stack mine"),
    "calibrate": (
        "trnbench calibrate steps.csv --stack mine",
        "trnbench calibrate run.log --stack mine --model llama3.1-8b --on p5.48xlarge",
    ),
    "explain": (
        "trnbench explain steps.csv",
        "trnbench explain job run.log",
    ),
    "launch": (
        "trnbench launch llama3.1-8b --on trn2.48xlarge:4 --with slurm -o job",
        "trnbench launch --list --on p5.48xlarge",
    ),
    "matrix": (
        "trnbench matrix 4096x8192x8192 --on trainium2,h100 --dtype bf16,fp8",
        "trnbench matrix 1024x1024x1024 --on trainium2 --check",
    ),
    "collective": (
        "trnbench collective all-reduce --on trn2.48xlarge:4",
        "trnbench collective all-reduce --on trn2.48xlarge,p5.48xlarge --max-size 1GiB",
    ),
}
"""Two command lines of a verb, to try."""
_WHOLE = "whole help"


class FewOptions(typer.core.TyperCommand):
    """A command whose help shows its first screen, and all options on `--help-all`."""

    def __init__(self, name: str | None, **about: Any) -> None:  # noqa: ANN401
        super().__init__(name, **about)
        self.params.append(
            typer.core.TyperOption(
                param_decls=["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options and exit.",
            )
        )

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the options under headings, and how to see the others."""
        if ctx.meta.get(_WHOLE):
            super().format_options(ctx, formatter)
            return
        options = {name: one for one in self.params for name in one.opts}
        shown = 0
        for heading, names in FIRST[self.name or ""].items():
            asked = [one for one in self.params if one.param_type_name == "argument" and not shown]
            asked += [options[f"--{name}"] for name in names]
            records = [one.get_help_record(ctx) for one in asked]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record])
            shown += len(names)
        with formatter.section("Examples"):
            for line in EXAMPLES[self.name or ""]:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        others = sum(one.param_type_name == "option" for one in self.get_params(ctx)) - shown
        formatter.write_paragraph()
        formatter.write_text(
            f"{others} more options: trnbench {self.name} --help-all, or by what they are about: "
            "trnbench help options. trnbench help explains every word."
        )


def _show_all(ctx: Any, _: Any, wanted: bool) -> None:  # noqa: ANN401
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        typer.echo(ctx.get_help())
        ctx.exit()


def kind_of_command(verb: str) -> type[typer.core.TyperCommand] | None:
    """Kind of a verb's command; None for the usual one."""
    return FewOptions if verb in FIRST else None

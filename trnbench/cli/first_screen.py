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
_PLAIN = ("report", "json", "output")
_JOB = ("sequence", "global-batch", "precision", "stack")
_DEGREES = ("layout", "tp", "pp", "micro-batch", "recompute")
FIRST: Mapping[str, Mapping[str, Sequence[str]]] = {
    "compare": {
        "Question": ("tokens", "on", "nodes", *_JOB),
        "Limits": ("deadline", "confidence", "buyable-only"),
        "What if": ("price", "speed", "purchase", "sensitivity"),
        "Output": ("details", *_PLAIN),
    },
    "plan": {
        "Question": ("tokens", "on", *_JOB),
        "Limits": ("deadline", "budget", "confidence"),
        "What if": ("price", "speed", "purchase", "sensitivity"),
        "Output": ("pilot", "details", *_PLAIN),
    },
    "train": {
        "Question": ("on", "tokens", *_JOB),
        "Layout": (*_DEGREES, "vs", "prefer"),
        "Output": ("memory", "plot", "engine", "json", "output"),
    },
    "validate": {
        "Question": ("evidence", "set", "model", "on", "stack", "engine"),
        "Limits": ("fail-above", "against"),
        "Output": ("details", "template", *_PLAIN),
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
"""Options of a verb's first screen, by heading; other verbs show their own, then `_PLAIN`."""
_SHARED = {
    *("--no-keep", "--tag", "--format", "--all-columns", "--quiet", "--spec-dir", "--help"),
    *("--help-all", "--author", "--redact-prices", "--seed", *(f"--{name}" for name in _PLAIN)),
}
"""Options that are left to `--help-all`, or have their place in the output."""
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
    "fleet": ("trnbench fleet two-jobs", "trnbench fleet two-jobs --report fleet.html"),
    "numerics": ("trnbench numerics", "trnbench numerics --precision fp8,mxfp8 --steps 100"),
    "verify": ("trnbench verify job run.log", "trnbench verify job logs --json"),
    "measure": ("trnbench measure all --quick", "trnbench measure all --write-spec my-box"),
    "claims": ("trnbench claims", "trnbench claims trn2-over-trn1 --price-date 2026-11-01"),
    "tui": ("trnbench tui", "trnbench tui layouts"),
    "help": ("trnbench help quickstart", "trnbench help options purchase"),
    "info": ("trnbench info", "trnbench info --support"),
    "spec list": ("trnbench spec list instances", "trnbench spec list chips --json"),
    "spec show": ("trnbench spec show trn2.48xlarge", "trnbench spec show h100"),
    "spec diff": ("trnbench spec diff trn1 trn2", "trnbench spec diff trainium2 h100"),
    "spec validate": ("trnbench spec validate my-box.toml", "trnbench spec validate mine --json"),
    "spec new": (
        "trnbench spec new my-h100 --like dgx-h100 --network 8x200Gbit/s",
        "trnbench spec new my-box --like dgx-h100 --capex 300000 --years 4 --power 10kW",
    ),
    "workload list": ("trnbench workload list", "trnbench workload list models"),
    "workload show": ("trnbench workload show llama3.1-70b", "trnbench workload show llama"),
    "workload validate": (
        "trnbench workload validate my-3b.toml",
        "trnbench workload validate mine --json",
    ),
    "workload import": (
        "trnbench workload import config.json -o mine/models/my-3b.toml",
        "trnbench workload import folder --as llama",
    ),
    "prices show": (
        "trnbench prices show trn2.48xlarge",
        "trnbench prices show trn2.48xlarge --json",
    ),
    "prices refresh": (
        "trnbench prices refresh --source rates.csv --dry-run",
        "trnbench prices refresh --source aws --on p5.48xlarge",
    ),
    "runs list": ("trnbench runs list", "trnbench runs list --verb compare --limit 5"),
    "runs show": ("trnbench runs show last", "trnbench runs show monday"),
    "runs diff": ("trnbench runs diff monday last", "trnbench runs diff monday last --json"),
    "runs export": ("trnbench runs export last", "trnbench runs export monday -o monday.json"),
    "runs remove": ("trnbench runs remove monday", "trnbench runs remove last"),
    "runs check": ("trnbench runs check", "trnbench runs check --json"),
    "runs recover": ("trnbench runs recover", "trnbench runs recover runs.sqlite.damaged"),
    "study run": ("trnbench study run layouts-7b", "trnbench study run mine.toml --workers 8"),
    "study show": (
        "trnbench study show layouts-7b --rows on --columns tp --figure step_time_s",
        "trnbench study show layouts-7b --best step_time_s",
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
        verb = ctx.command_path.partition(" ")[2]
        options = {name: one for one in self.params for name in one.opts if name[:2] == "--"}
        asked = [one for one in self.params if one.param_type_name == "argument"]
        shown = 0
        for heading, names in FIRST.get(verb, _own(options)).items():
            asked += [options[f"--{name}"] for name in names if f"--{name}" in options]
            records = [one.get_help_record(ctx) for one in asked]
            shown += sum(one.param_type_name == "option" for one in asked)
            if asked:
                with formatter.section(heading):
                    formatter.write_dl([record for record in records if record])
            asked = []
        with formatter.section("Examples"):
            for line in EXAMPLES.get(verb, ()):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        others = sum(one.param_type_name == "option" for one in self.get_params(ctx)) - shown
        about = ", or by what they are about: trnbench help options" if verb in FIRST else ""
        formatter.write_paragraph()
        formatter.write_text(
            f"{others} more options: trnbench {verb} --help-all{about}. trnbench help explains "
            "every word."
        )


def _own(options: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    own = [name.removeprefix("--") for name in options if name not in _SHARED]
    return {"Question": own, "Output": _PLAIN}


def _show_all(ctx: Any, _: Any, wanted: bool) -> None:  # noqa: ANN401
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        typer.echo(ctx.get_help())
        ctx.exit()

"""Commands of verbs that are asked, answered and printed, and nothing else.

The folder of such a verb has `NameQuestion`, whose words are the help of the command, `run`, and
`name_report`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trnbench.cli.derived_options import Command, asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import printing
from trnbench.cli.watching import ProgressLine

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

KEPT = {"claims": False, "numerics": True}
"""Plain verbs, and whether their answers are kept."""


def plain_command(verb: str) -> Command:
    """Command of a verb, made from its folder."""
    folder = f"trnbench.verbs.{verb}"
    kind = getattr(import_module(f"{folder}.question"), f"{verb.capitalize()}Question")

    def command(out: Output, catalog: Catalog, question: Any) -> int:  # noqa: ANN401
        run = import_module(f"{folder}.run").run
        report = getattr(import_module(f"{folder}.text"), f"{verb}_report")
        question = question.settled(catalog)
        with ProgressLine(quiet=out.quiet) as progress:
            answer = run(catalog, question, progress=progress)
        out.write(report(answer, question.inputs()))
        return ExitCode.DONE

    command.__doc__ = kind.__doc__
    return printing(asks(kind)(command), kept=KEPT[verb])

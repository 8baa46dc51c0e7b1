"""`trnbench info`: versions, folders and what was found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.printing import printing
from trnbench.errors import InputError
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


class InfoQuestion(Question):
    """Sections of `info` to show; `init` writes a file instead."""

    support: bool = option(
        "Which kinds of models run with which stack on which instance, and how that is known."
    )
    jobs: bool = option("Which jobs run with which stack, and who refuses what.")
    init: bool = option("Write a trnbench.toml of all defaults, as remarks, for you.")
    force: bool = option("Let --init replace a file that is there.")

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.force and not self.init:
            raise InputError("--force goes with --init")
        if self.support and self.jobs and not self.init:
            raise InputError("--support and --jobs are two tables; give one of them")


@printing
@asks(InfoQuestion)
def info(out: Output, catalog: Catalog, question: InfoQuestion) -> None:
    """Show versions, the folders searched, what was found in them, and your defaults.

    Defaults come from trnbench.toml in your config folder, then in the working folder, then from
    TRNBENCH_* variables. The command line wins.
    """
    from trnbench.verbs.info import run, text

    if question.init:
        path = run.write_defaults(force=question.force)
        out.narrate(f"defaults written to {path}, all as remarks")
    elif question.support:
        from trnbench.verbs.info.support import support

        out.write(text.support_report(support(catalog=catalog)))
    elif question.jobs:
        from trnbench.verbs.info.support import jobs_supported

        out.write(text.jobs_report(jobs_supported(catalog=catalog)))
    else:
        out.write(text.info_report(run.info(catalog)))

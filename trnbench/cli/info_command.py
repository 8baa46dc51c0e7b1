"""`trnbench info`: versions, folders and what was found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.printing import printing
from trnbench.verbs.info.question import InfoQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@printing
@asks(InfoQuestion)
def info(out: Output, catalog: Catalog, question: InfoQuestion) -> None:
    """Show versions, the folders searched, what was found in them, and your defaults.

    Defaults stand in trnbench.toml: in your config folder, then in the working folder, then in
    TRNBENCH_* variables; what a command line says wins.
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

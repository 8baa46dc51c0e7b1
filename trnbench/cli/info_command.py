"""`trnbench info`: versions, folders and what was found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.printing import printing

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output


@printing
def info(out: Output, catalog: Catalog) -> None:
    """Show versions, the folders searched for specs and workloads, and what was found."""
    from trnbench import app
    from trnbench.report.catalog_reports import info_report

    out.write(info_report(app.info(catalog)))

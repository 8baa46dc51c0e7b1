"""Files made beside an answer: the report to hand on, and the chart."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.asking import WORDS
from trnbench.cli.diagnostics import say
from trnbench.errors import InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.show.report import Report

PAGES = (".html", ".md")
CHART = ".svg"


class Beside(Question):
    """Files made beside an answer, and whether the report leaves money out."""

    page: Path | None = option(
        "Also write a report to hand on: FILE.html or FILE.md.", name="report", metavar="FILE"
    )
    redacted: bool = option("Leave out of the report what tells a price.", name="redact_prices")
    chart: Path | None = option("Also write a chart: FILE.svg.", name="plot_file", metavar="FILE")

    def __post_init__(self) -> None:
        """Refuse files that are named for another kind, and money left out of no file."""
        if self.page is not None and self.page.suffix not in PAGES:
            raise InputError(f"--report: {self.page} must end in {' or '.join(PAGES)}")
        if self.chart is not None and self.chart.suffix != CHART:
            raise InputError(f"--plot-file: {self.chart} must end in {CHART}")
        if self.redacted and self.page is None:
            raise InputError("--redact-prices is about a file to hand on: give --report FILE.html")

    @property
    def outputs(self) -> dict[str, Path]:
        named = {"--report": self.page, "--plot-file": self.chart}
        return {option: path for option, path in named.items() if path is not None}

    def write(self, report: Report, *, quiet: bool) -> None:
        """Make the files of an answer."""
        if self.page is not None:
            _write_page(self.page, report, redact=self.redacted, quiet=quiet)
        if self.chart is not None:
            _write_chart(self.chart, report)


def _write_page(path: Path, report: Report, *, redact: bool, quiet: bool) -> None:
    from trnbench.show.page import html_page, markdown_page
    from trnbench.show.redaction import redacted_report, tells_own_money, without_own_options

    command = shlex.join(("trnbench", *WORDS.get()))
    if redact:
        report, command = redacted_report(report), without_own_options(command)
    elif not quiet and tells_own_money({}, report.inputs):
        say(f"{path}: prices or discounts of your own are inside; --redact-prices leaves them out")
    make = html_page if path.suffix == ".html" else markdown_page
    write_whole(path, make(report, command))


def _write_chart(path: Path, report: Report) -> None:
    from trnbench.show.charts.svg import chart_svg

    if not report.charts:
        say(f"trnbench: no chart: the answer has nothing to draw, {path} is not written")
        return
    write_whole(path, chart_svg(report.charts[0], alone=True).encode())

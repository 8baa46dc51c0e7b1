"""The options every printing verb shares, given to a command by one decorator.

They say where an answer goes, whether it is kept, and which files are made beside it: the report to
hand on, and the chart.
"""

from __future__ import annotations

import functools
import inspect
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from trnbench.cli.asking import AGAIN, WORDS, files_read, given_options
from trnbench.cli.defaults import money_origins
from trnbench.cli.derived_options import Command, parameter_of, taken, with_signature
from trnbench.cli.diagnostics import say
from trnbench.cli.output import STDOUT, Output, Printed, check_outputs, chosen_output
from trnbench.errors import InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.parsing import short_text
from trnbench.facts.records import replace
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report

_WRITTEN = ("trace", "into", "output")
"""Options whose paths are written, not read."""
_CONFIGURATION = "config"
"""Names what people run: their keys may be in it."""
_SAYS_PATH = ("source",)
"""Options that name a file among other things."""


class Keeping(Question):
    """Choice to keep an answer, and its name."""

    no_keep: bool = option("Leave the answer out of `trnbench runs`.")
    tag: str | None = option("Keep the answer under this name.", read=short_text)


PAGES = (".html", ".md")
CHART = ".svg"


class Beside(Question):
    """Files made beside an answer, and whether the report leaves money out."""

    page: Path | None = option(
        "Also write a report to hand on: FILE.html or FILE.md.", name="report", metavar="FILE"
    )
    redacted: bool = option("Leave out of the report what tells a price.", name="redact_prices")
    author: str | None = option("Name of who asks, for the report.", read=short_text)
    chart: Path | None = option("Also write a chart: FILE.svg.", name="plot_file", metavar="FILE")

    def __post_init__(self) -> None:
        """Refuse files that are named for another kind, and money left out of no file."""
        if self.page is not None and self.page.suffix not in PAGES:
            raise InputError(f"--report: {self.page} must end in {' or '.join(PAGES)}")
        if self.chart is not None and self.chart.suffix != CHART:
            raise InputError(f"--plot-file: {self.chart} must end in {CHART}")
        if self.redacted and self.page is None:
            raise InputError("--redact-prices needs a report: give --report FILE.html")

        if self.author is not None and self.page is None:
            raise InputError("--author is written into a report: give --report FILE.html")

    @property
    def outputs(self) -> dict[str, Path]:
        named = {"--report": self.page, "--plot-file": self.chart}
        return {option: path for option, path in named.items() if path is not None}

    def write(self, report: Report, *, quiet: bool) -> None:
        """Make the files of an answer."""
        if self.page is not None:
            by = self.author or ""
            _write_page(self.page, report, by, redact=self.redacted, quiet=quiet)
        if self.chart is not None:
            _write_chart(self.chart, report)


def _write_page(path: Path, report: Report, by: str, *, redact: bool, quiet: bool) -> None:
    from trnbench.show.page import html_page, markdown_page
    from trnbench.show.redaction import redacted_report, tells_own_money, without_own_options

    command = shlex.join(("trnbench", *WORDS.get()))
    if redact:
        report, command = redacted_report(report), without_own_options(command)
    elif not quiet and tells_own_money({}, report.inputs):
        say(f"{path}: prices or discounts of your own are inside; --redact-prices leaves them out")
    make = html_page if path.suffix == ".html" else markdown_page
    asked_on = datetime.now(tz=UTC).date().isoformat()
    kept = report.summary.get("run")
    if isinstance(kept, Mapping):
        command, asked_on = str(kept["command"]), str(kept["started_at"])[:10] or asked_on
    write_whole(path, make(report, command, f"Asked on {asked_on}{f' by {by}' if by else ''}"))


def _write_chart(path: Path, report: Report) -> None:
    from trnbench.show.charts.svg import chart_svg

    if not report.charts:
        say(f"trnbench: no chart: the answer has nothing to draw, {path} is not written")
        return
    write_whole(path, chart_svg(report.charts[0], alone=True).encode())


def printing(
    command: Command,
    *,
    kept: bool = False,
    reports: bool = False,
    plots: bool = False,
    to_file: bool = True,
) -> Command:
    """Return the command as Typer shall see it.

    `command` takes `out: Output` and `catalog: Catalog` first; Typer sees `--format`, `--json`,
    `--output`, `--quiet` and `--spec-dir` in their place, and of a `kept` one what says whether and
    under which tag its answer is kept; `reports` and `plots` can be written as files too. One not
    `to_file` prints, and has another use for `-o`.
    """
    own = list(inspect.signature(command).parameters.values())[2:]
    hints = hints_of(command, [parameter.name for parameter in own])
    files = [
        *(["plot_file"] if plots else []),
        *(["report", "redact_prices", "author"] if reports else []),
    ]
    shared = [Beside.options()[name] for name in files if name not in hints]
    shared += [*Keeping.options().values()] if kept else []
    shared += [one for one in Printed.options().values() if to_file or one.name != "output"]
    parameters = [
        *(p.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
        *([Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)] if kept else []),
        *map(parameter_of, shared),
    ]

    @functools.wraps(command)
    def run(**options: Any) -> int | None:  # noqa: ANN401
        from trnbench.facts.catalog.search import open_catalog
        from trnbench.store.place import keeps

        said = {one.name: options.pop(one.name) for one in shared}
        context = options.pop("context") if kept else None
        again = AGAIN.get()
        if again is not None:
            out = Output(quiet=True, silent=True, reports=again.reports)
            return command(out, again.catalog or open_catalog(), **options)
        printed, keep, made = taken(Printed, said), taken(Keeping, said), taken(Beside, said)
        out = chosen_output(printed)
        catalog = open_catalog(printed.spec_dirs)
        folders = () if "force" in options else [folder.path for folder in catalog.folders]
        outputs, inputs = _paths(out.destination, options)
        check_outputs(outputs | made.outputs, inputs, folders)
        if context is not None:
            out = replace(out, origins=money_origins(context))
        if made.outputs:
            out = replace(out, beside=functools.partial(made.write, quiet=printed.quiet))
        began = time.time()
        code = command(out, catalog, **options)
        if context is not None and out.reports and not keep.no_keep and keeps():
            about = functools.partial(_asked, context, options, keep.tag)
            keep_answer(catalog, out.reports[-1], code or 0, began, about)
        return code

    return with_signature(run, parameters)


def keeping(*, reports: bool = False, plots: bool = False) -> Callable[[Command], Command]:
    return functools.partial(printing, kept=True, reports=reports, plots=plots)


def into_folder(command: Command) -> Command:
    return printing(command, to_file=False)


def keep_answer(
    catalog: Catalog, report: Report, code: int, began: float, about: Callable[[], dict[str, Any]]
) -> None:
    """Keep an answer; what stands in the way is a line on stderr and changes nothing else.

    `about` says what else is known of it, such as its options, by fields of `GivenAnswer`.
    """
    seconds = time.time() - began
    from trnbench.verbs.runs.keeping import GivenAnswer, keep, kept_or_said

    def keep_it() -> None:
        given = GivenAnswer(
            report=report,
            command=shlex.join(("trnbench", *WORDS.get())),
            started_at=datetime.fromtimestamp(began, tz=UTC),
            seconds=seconds,
            exit_code=code,
            **about(),
        )
        keep(catalog, given, say=say)

    kept_or_said(keep_it, say, "trnbench: this answer is")


def _asked(
    context: typer.Context, options: Mapping[str, object], tag: str | None
) -> dict[str, Any]:
    question, configuration = given_options(context), options.get(_CONFIGURATION)
    return {
        "options": question,
        "inputs": files_read(question, options),
        "digested": [configuration] if isinstance(configuration, Path) else (),
        "tag": tag,
    }


def _paths(output: str, options: Mapping[str, object]) -> tuple[dict[str, Path], list[Path]]:
    """Return the files a command writes, by option, and the paths it reads."""
    outputs = {} if output == STDOUT else {"--output": Path(output)}
    inputs: list[Path] = []
    for name, value in options.items():
        if name == "trace" and isinstance(value, Path):
            outputs["--trace"] = value
        elif name not in _WRITTEN:
            values = value if isinstance(value, list | tuple) else [value]
            if name in _SAYS_PATH and isinstance(value, str):
                values = [Path(value)]
            inputs += [path for path in values if isinstance(path, Path)]
    return outputs, inputs


def hints_of(command: Command, names: Sequence[str]) -> dict[str, Any]:
    """Return the types of some of a command's parameters.

    Others may have types that are imported for the type checker alone, to start up fast.
    """
    own = SimpleNamespace(__annotations__={name: command.__annotations__[name] for name in names})
    return get_type_hints(own, globalns=command.__globals__, include_extras=True)

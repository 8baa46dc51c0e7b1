"""Destination and format of a report; a file appears whole or not at all."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.cli.diagnostics import pipe_may_end, say
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.records import Record, field, replace
from trnbench.facts.terminal_text import shown
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.show.report import Report
    from trnbench.show.text_table import Style

STDOUT = "-"
_DATA = (".toml", ".npz")
NARROWEST = 80
WIDTH = 100
"""Characters per line of texts that go to a file or a pipe."""


class OutputFormat(StrEnum):
    """The output formats; the values are the keys of report.formats.RENDERERS."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


SPEC_DIRS: Any = option(
    "Look here first for specs and workloads.", name="spec_dir", several="repeated", metavar="DIR"
)


class Printed(Question):
    """Format and place of an answer, and the data files it rests on."""

    said_format: OutputFormat | None = option(
        "How to print the rows; default: table.",
        name="format",
        choices=tuple(OutputFormat),
        parse=OutputFormat,
    )
    json: bool = option("Short for --format json.")
    destination: str | None = option(
        "Write to FILE (.json, .csv, .md ... as named); - is stdout.",
        name="output",
        short="-o",
        metavar="FILE",
    )
    all_columns: bool = option("Every column in a table, CSV or Markdown, not the usual few.")
    quiet: bool = option("No narration on stderr.", short="-q")
    spec_dirs: tuple[Path, ...] = SPEC_DIRS


_ENDINGS = {
    ".json": OutputFormat.JSON,
    ".jsonl": OutputFormat.JSONL,
    ".csv": OutputFormat.CSV,
    ".md": OutputFormat.MARKDOWN,
}


class Output(Record):
    """The chosen format and destination of one run."""

    said_format: OutputFormat | None = None
    destination: str = STDOUT
    quiet: bool = False
    all_columns: bool = False
    """True when rows are wanted with everything known of them."""
    said: bool = False
    """True when the user said where, and did not leave it open."""
    silent: bool = False
    """True when nobody reads: what is written is only remembered."""
    beside: Callable[[Report], object] | None = None
    """What is done with a report once it is written: other files are made of it."""
    origins: tuple[str, ...] = ()
    """Where defaults come from that change what an answer says of money."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Names that were typed otherwise, by the catalogue's."""
    reports: list[Report] = field(default_factory=list)
    """What was written."""

    @property
    def format(self) -> OutputFormat:
        ending = _ENDINGS.get(Path(self.destination).suffix.lower(), OutputFormat.TABLE)
        return self.said_format or ending

    def write(self, report: Report) -> None:
        """Write the report; a file appears whole or not at all."""
        remarks = (*(f"{typed} = {name}" for name, typed in self.taken.items()), *self.origins)
        if self.origins:
            report = replace(report, inputs={**report.inputs, "defaults": self.origins})
        if remarks:
            report = replace(report, notes=(*report.notes, *remarks))
        self.reports.append(report)
        if self.silent:
            return
        from trnbench.show.formats import few_columns, render, with_all_columns

        drawn = report
        if self.all_columns:
            drawn = with_all_columns(report)
        elif self.format is OutputFormat.CSV:
            drawn = few_columns(report)
        to_terminal = self.destination == STDOUT and sys.stdout.isatty()
        data = render(drawn, self.format.value, _style(to_terminal))
        if self.format is OutputFormat.TABLE and drawn.people is not None:
            # (A drawing of its own has no place for notes.)
            data += "".join(f"{shown(line)}\n" for line in remarks).encode()
        self.write_bytes(data)
        if self.beside is not None:
            self.beside(report)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes to the destination."""
        if self.silent:
            return
        if self.destination == STDOUT:
            with pipe_may_end():
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        else:
            write_whole(Path(self.destination), data)

    def refuse_plot(self) -> None:
        if self.format is not OutputFormat.TABLE:
            raise InputError("--plot draws for people; it needs --format table")

    def narrate(self, text: str) -> None:
        if not self.quiet:
            say(text)


def chosen_output(printed: Printed) -> Output:
    """Return the output that the shared options describe; contradictions are refused."""
    output_format, destination = printed.said_format, printed.destination or STDOUT
    if printed.json and output_format not in (None, OutputFormat.JSON):
        raise InputError(f"--json contradicts --format {output_format}; give one of them")
    if destination != STDOUT:
        _check_writable(Path(destination))
    chosen = Output(
        said_format=OutputFormat.JSON if printed.json else output_format,
        destination=destination,
        quiet=printed.quiet,
        all_columns=printed.all_columns,
        said=printed.destination is not None,
    )
    if chosen.all_columns and chosen.format in (OutputFormat.JSON, OutputFormat.JSONL):
        raise InputError(f"--format {chosen.format} has every column; leave out --all-columns")
    return chosen


def check_outputs(
    outputs: Mapping[str, Path], inputs: Sequence[Path], folders: Sequence[Path]
) -> None:
    """Refuse outputs that cannot be written, or would replace an input or each other.

    `outputs` are paths by the option that names them; a data file in one of the folders is an
    input. Pipes and devices are nobody's file.
    """
    kept = list(outputs.items())
    folders = [*folders, *(path for path in inputs if path.is_dir())]
    for i, (asked, path) in enumerate(kept):
        _check_writable(path)
        for other, second in kept[:i]:
            if _same(path, second):
                raise InputError(f"{asked} and {other} name one file: {path}")
        for read in inputs:
            if path.is_file() and _same(path, read):
                raise InputError(f"{asked}: {path} is a file that this command reads")
        for folder in folders:
            if path.is_file() and path.suffix in _DATA and _is_below(path, folder):
                raise InputError(
                    f"{asked}: {path} is one of the data files in {folder}",
                    hint="name another file; to replace this one, remove it first",
                )


def _check_writable(path: Path) -> None:
    # Found out before the work starts, not after.
    if "\0" in str(path):
        raise InputError(f"cannot write {str(path)!r}: no path has a NUL character")
    if path.is_dir():
        raise EnvironmentFault(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise EnvironmentFault(
            f"cannot write {path}: no folder {path.parent}",
            hint=f"make the folder first: mkdir -p {shlex.quote(str(path.parent))}",
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise EnvironmentFault(f"cannot write {path}: no permission")


def _same(first: Path, second: Path) -> bool:
    with suppress(OSError, ValueError):
        if first.exists() and second.exists():
            return first.samefile(second)
    return os.path.realpath(first) == os.path.realpath(second)


def _is_below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def terminal_width() -> int:
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST)


def _file_width() -> int:
    said = os.environ.get("COLUMNS", "")
    return max(int(said), NARROWEST) if said.isdecimal() else WIDTH


def _style(to_terminal: bool) -> Style:
    from trnbench.show.text_table import Style

    width = terminal_width() if to_terminal else _file_width()
    dumb = os.environ.get("TERM") == "dumb"
    colour = to_terminal and not dumb and not os.environ.get("NO_COLOR")
    return Style(width=width, colour=colour, terminal=to_terminal)

"""Where a report goes and in which format; a file appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.diagnostics import say
from trnbench.errors import EnvironmentFault, InputError

if TYPE_CHECKING:
    from trnbench.report.report import Report
    from trnbench.report.text_table import Style

STDOUT = "-"
NARROWEST = 80


class OutputFormat(StrEnum):
    """The output formats; the values are the keys of report.formats.RENDERERS."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The chosen format and destination of one run."""

    format: OutputFormat
    destination: str = STDOUT
    quiet: bool = False

    def write(self, report: Report) -> None:
        """Write the report; a file appears whole or not at all."""
        from trnbench.report.formats import render

        to_terminal = self.destination == STDOUT and sys.stdout.isatty()
        self.write_bytes(render(report, self.format.value, _style(to_terminal)))

    def write_bytes(self, data: bytes) -> None:
        """Write bytes to the destination."""
        if self.destination == STDOUT:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            write_whole(Path(self.destination), data)

    def refuse_plot(self) -> None:
        """Refuse to draw in a format for programs."""
        if self.format is not OutputFormat.TABLE:
            raise InputError("--plot draws for people; it needs --format table")

    def narrate(self, text: str) -> None:
        """Write a line to stderr, unless quiet."""
        if not self.quiet:
            say(text)


def chosen_output(
    output_format: OutputFormat | None, json: bool, destination: str, quiet: bool
) -> Output:
    """Return the output that the shared options describe; contradictions are refused."""
    if json and output_format is not None and output_format is not OutputFormat.JSON:
        raise InputError(f"--json contradicts --format {output_format.value}; give one of them")
    chosen = OutputFormat.JSON if json else output_format or OutputFormat.TABLE
    if destination != STDOUT:
        _check_writable(Path(destination))
    return Output(format=chosen, destination=destination, quiet=quiet)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a full disk leaves what was there before."""
    temporary = None
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or device: nothing there to keep
            return
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=".trnbench-", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        else:
            temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error


def _check_writable(path: Path) -> None:
    # Found out before the work starts, not after.
    if path.is_dir():
        raise EnvironmentFault(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise EnvironmentFault(f"cannot write {path}: no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise EnvironmentFault(f"cannot write {path}: no permission")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _style(to_terminal: bool) -> Style:
    from trnbench.report.text_table import Style

    width = shutil.get_terminal_size((100, 24)).columns if to_terminal else 100
    dumb = os.environ.get("TERM") == "dumb"
    colour = to_terminal and not dumb and not os.environ.get("NO_COLOR")
    return Style(width=max(width, NARROWEST), colour=colour, terminal=to_terminal)

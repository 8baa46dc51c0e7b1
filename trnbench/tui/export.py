"""Exports: visible rows or a picture in a new file, a command that can be pasted."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from io import BytesIO, StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text
from textual.notifications import SeverityLevel

from trnbench.errors import EnvironmentFault, TrnbenchError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.units import counted
from trnbench.show.charts.record import BarChart, GanttChart, PointChart
from trnbench.show.report import Report
from trnbench.show.text_table import PLAIN
from trnbench.tui.modes import ViewModes
from trnbench.tui.settings import state_path

_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
ENDINGS = {"csv": "csv", "json": "json", "markdown": "md"}
NOTE_S, FAULT_S = 3.0, 8.0
"""So long a note stays, and one of a fault."""


def rows_as(report: Report, output_format: str) -> bytes:
    from trnbench.show.formats import few_columns, render

    drawn = few_columns(report) if output_format == "csv" else report
    return render(drawn, output_format, PLAIN)


def free_path(
    folder: Path, stem: str, ending: str, now: datetime.datetime, taken: Collection[Path] = ()
) -> Path:
    """A path in the folder, named for the second: not there yet, nor among the taken."""
    base = f"trnbench-{stem}-{now:%Y%m%d-%H%M%S}"
    path = folder / f"{base}.{ending}"
    number = 2
    while path.exists() or path in taken:
        path = folder / f"{base}-{number}.{ending}"
        number += 1
    return path


def write(path: Path, data: bytes) -> None:
    """Write a new file."""
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error


def picture_svg(drawn: object, title: str, *, dark: bool) -> str:
    """A picture as SVG: a chart as reports have it, a drawing in characters as it is on screen."""
    from trnbench.show.charts.svg import chart_svg

    match drawn:
        case PointChart() | BarChart() | GanttChart():
            return "" if drawn.empty else chart_svg(drawn, alone=True)
        case Text() if drawn.plain.strip():
            width = max(map(len, drawn.plain.splitlines())) + 1
            paper = Console(width=width, record=True, file=StringIO(), force_terminal=True)
            paper.print(drawn, no_wrap=True, crop=False)
            theme = DIMMED_MONOKAI if dark else DEFAULT_TERMINAL_THEME
            # The page of a stranger would be told of every look at the file.
            return _FONTS.sub("", paper.export_svg(title=title, theme=theme))
        case _:
            return ""


class Exporting(ViewModes):
    """An application that writes files into a folder, and offers texts to the clipboard."""

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        super().__init__()
        self.catalog = catalog
        self.folder = folder
        self._exported: set[Path] = set()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Say something in place of what was said last: one note at a time, out of the way soon.

        A note of one line, with its title, covers nothing but the line of the status.
        """
        self.clear_notifications()
        if title and "\n" not in message:
            message, title = f"{title}: {message}", ""
        stays = timeout or (NOTE_S if severity == "information" else FAULT_S)
        super().notify(message, title=title, severity=severity, timeout=stays, markup=markup)

    def export_rows(self, report: Report | None, stem: str, output_format: str) -> None:
        """Write rows to a file whose name begins with `stem`, and say where."""
        if report is None:
            self.notify("no rows to export", severity="warning")
            return
        self._write(stem, ENDINGS[output_format], rows_as(report, output_format))

    def export_both(self, report: Report | None, stem: str, picture: tuple[str, object]) -> None:
        """Write the rows, and the picture by name and content, where there are any."""
        name, drawn = picture
        files = [] if report is None else [(stem, "csv", rows_as(report, "csv"))]
        svg = picture_svg(drawn, f"{stem}, {name}", dark=self.current_theme.dark)
        if svg:
            files.append((f"{stem}-{re.sub('[^a-z]', '-', name)}", "svg", svg.encode()))
        if not files:
            self.notify("there is nothing to export yet", severity="warning")
        told = [self._write(*file, say=False) for file in files]
        if any(told):
            self.notify("\n".join(filter(None, told)), title="written")

    def export_report(self, report: Report | None, stem: str, command: str) -> None:
        """Write an answer as a page to hand on."""
        from trnbench.show.page import html_page

        if report is None:
            self.notify("no answer to report yet", severity="warning")
            return
        asked_on = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        self._write(stem, "html", html_page(report, command, f"Asked on {asked_on}"))

    def export_svg(self) -> None:
        name = self.view.NAME if self.view is not None else "screen"
        self._write(name, "svg", _FONTS.sub("", self.export_screenshot()).encode())

    def copy_rows(self) -> None:
        """Copy the visible rows as CSV."""
        report = None if self.view is None else self.view.report
        if report is None:
            self.notify("no rows to copy", severity="warning")
        else:
            self.copy_text(
                rows_as(report, "csv").decode(), f"{counted(len(report.rows), 'row')} as CSV"
            )

    def copy_command(self, command: str, what: str) -> None:
        """Copy a command line, with the folders that data files were looked for in."""
        from trnbench.verbs.asking.command_lines import with_folders

        lines = [with_folders(line, self.catalog) for line in command.splitlines()]
        self.copy_text("\n".join(lines), what)

    def copy_text(self, text: str, what: str) -> None:
        """Offer a text to the clipboard, which not every terminal has, and write it to a file."""
        self.copy_to_clipboard(text)
        path = state_path().with_name("copied.txt")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, f"{text}\n".encode(errors="replace"))
            told = f"copied, also to {path}"
        except (OSError, TrnbenchError):
            told = "copied"
        self.notify(told, title=what)

    def _write(self, stem: str, ending: str, data: bytes, *, say: bool = True) -> str:
        """Write a file; return its path, empty where it could not be written."""
        now = datetime.datetime.now()
        path = free_path(self.folder, stem, ending, now, self._exported)
        self._exported.add(path)
        if self.is_web:  # to the visitor's machine, not to this one
            self.deliver_binary(BytesIO(data), save_filename=path.name)
            return ""
        try:
            write(path, data)
        except TrnbenchError as error:
            self.notify(error.message, severity="error")
            return ""
        if say:
            self.notify(str(path), title="written")
        return str(path)

"""The files that start a row: seen for every framework and scheduler, and written to a folder."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from trnbench.show.row import Row
from trnbench.tui.asking import Asking
from trnbench.tui.dialogs import AskPath
from trnbench.tui.picker import Choices
from trnbench.tui.questions.scenarios import LaunchFiles, launch_files, launch_ways
from trnbench.tui.widgets.frame import KeyLine, StatusLine, hidden, offered
from trnbench.tui.widgets.panels import ErrorPanel, TextPanel

if TYPE_CHECKING:
    from trnbench.verbs.launch.folders import LaunchChoices

README = "README.md"
FRAMEWORK, SCHEDULER = "n: framework ", "s: scheduler "


class ChoiceLine(Static):
    """Names in a row with a chosen name; a click on a name chooses that name."""

    class Chosen(Message):
        """Another name was chosen."""

    def __init__(self, head: str) -> None:
        super().__init__("", markup=False)
        self._head = head
        self._names: tuple[str, ...] = ()
        self.chosen = ""

    def offer(self, names: Sequence[str], chosen: str | None) -> None:
        self._names = tuple(names)
        self.chosen = chosen if chosen in self._names else next(iter(self._names), "")
        self._write()

    def turn(self) -> None:
        if len(self._names) > 1:
            self._choose(self._names[(self._names.index(self.chosen) + 1) % len(self._names)])

    def on_click(self, event: events.Click) -> None:
        name = event.style.meta.get("name", "")
        if name and name != self.chosen:
            self._choose(name)

    def _choose(self, name: str) -> None:
        self.chosen = name
        self._write()
        self.post_message(self.Chosen())

    def _write(self) -> None:
        text = Text(self._head, style="dim")
        for name in self._names:
            here = name == self.chosen
            style = Style(bold=here, dim=not here, meta={"name": name})
            text.append(f"[{name}]" if here else f" {name} ", style=style)
        self.update(text)


class LaunchScreen(Asking):
    """Files that start the run of a row, shown file by file; `w` writes them."""

    NAME: ClassVar[str] = "launch"
    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("n", "turn('framework')", "Framework", "launch.framework"),
        offered("s", "turn('scheduler')", "Scheduler", "launch.scheduler"),
        offered("w", "write", "Write", "launch.write", "Write the files to a folder"),
        offered("y", "copy", "Copy", "launch.copy", "Copy the command for these files"),
        hidden("x", "cancel", "Cancel", "launch.cancel"),
        offered("escape", "leave", "Back", "launch.leave", "Back to the rows"),
    ]

    def __init__(self, row: Row, folder: Path, *, pilot: bool = False) -> None:
        super().__init__()
        self._row, self._pilot = row, pilot
        self._folder = folder
        self._files: LaunchFiles | None = None

    def compose(self) -> ComposeResult:
        row = self._row
        what = "a pilot of " * self._pilot
        head = f"files that start {what}{row['model']} on {row['nodes']} x {row['instance']}"
        yield Static(head, classes="title", markup=False)
        yield ChoiceLine(FRAMEWORK)
        yield ChoiceLine(SCHEDULER)
        with Horizontal():
            yield Choices()
            yield TextPanel()
        yield ErrorPanel()
        yield StatusLine()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(StatusLine).state(("nothing is written before w",))
        self.ask("ways", launch_ways, self._row)

    def answered(self, topic: str, value: object) -> None:
        """Offer the choices, show the files, or say where they were written."""
        match value:
            case LaunchFiles(written=written) if written:
                fill = f"\n\nto fill in, in values.env: {', '.join(value.empty)}"
                then = f"\n\nthen: trnbench calibrate {written} LOG narrows the next answer"
                self.notify(
                    f"{written}\n\n{README} there says how to start it"
                    + (fill if value.empty else "")
                    + (then if self._pilot else ""),
                    title="written",
                    timeout=15,
                    markup=False,
                )
            case LaunchFiles():
                self._show(value)
            case _:
                self._offer(cast("LaunchChoices", value))

    def _offer(self, ways: LaunchChoices) -> None:
        framework, scheduler = self.query(ChoiceLine)
        framework.offer(ways.frameworks, ways.stack)
        from trnbench.verbs.quotes.pilots import SCHEDULER as OF_PILOTS

        scheduler.offer(ways.schedulers, OF_PILOTS if self._pilot else "slurm")
        if ways.frameworks and ways.schedulers:
            self._ask()
        else:
            said = f"no framework that files are written for runs on {self._row['instance']}"
            self.query_one(ErrorPanel).say(said)

    @on(ChoiceLine.Chosen)
    def _ask(self) -> None:
        self.ask("launch", launch_files, self._row, self._how, None)

    @property
    def _how(self) -> tuple[str, str]:
        framework, scheduler = self.query(ChoiceLine)
        return framework.chosen, scheduler.chosen

    def _show(self, files: LaunchFiles) -> None:
        self._files = files
        names = self.query_one(OptionList)
        names.clear_options()
        names.add_options(Option(name, id=name) for name in files.texts)
        if files.reasons:
            text = "\n".join(f"no: {reason}" for reason in files.reasons)
            self.query_one(TextPanel).add_class("-wrapped")
            self.query_one(TextPanel).show(Text(f"nothing would be written\n\n{text}"))
        else:
            names.highlighted = list(files.texts).index(README)

    @on(OptionList.OptionHighlighted)
    def _look(self, event: OptionList.OptionHighlighted) -> None:
        """Show the file under the cursor."""
        name = event.option_id
        if self._files is not None and name is not None and name in self._files.texts:
            panel = self.query_one(TextPanel)
            panel.set_class(name == README, "-wrapped")
            panel.scroll_home(animate=False)
            panel.show(Text(self._files.texts[name]))

    def action_turn(self, what: str) -> None:
        framework, scheduler = self.query(ChoiceLine)
        (framework if what == "framework" else scheduler).turn()

    def action_leave(self) -> None:
        self.dismiss()

    def action_copy(self) -> None:
        if self._files is not None and self._files.command:
            command = f"{self._files.command} -o {self._usual}"
            self.trnbench.copy_command(command, "command of these files")

    def action_write(self) -> None:
        """Ask for a folder, and write the files there; a browser gets them as an archive."""
        if self._files is None or not self._files.texts:
            self.notify("no files to write", severity="warning")
        elif self.app.is_web:
            archive = BytesIO(_archive(self._files))
            self.app.deliver_binary(archive, save_filename=f"{self._usual}.zip")
        else:
            asked = AskPath("write the files into the folder", self._usual, self._folder)
            self.app.push_screen(asked, self._write)

    @property
    def _usual(self) -> str:
        row = self._row
        what = "pilot" if self._pilot else "launch"
        return f"{what}-{row['model']}-{row['nodes']}x{row['instance']}"

    def _write(self, folder: Path | None) -> None:
        if folder is not None:
            self.ask("write", launch_files, self._row, self._how, folder)


def _archive(files: LaunchFiles) -> bytes:
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.texts.items():
            archive.writestr(name, text)
    return data.getvalue()

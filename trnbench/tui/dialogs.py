"""Dialogs over the view: yes or no, the name of a file to save or load, a place to jump to."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static

from trnbench.errors import InputError, TrnbenchError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.terminal_text import shown
from trnbench.tui.widgets.frame import SizedNow

if TYPE_CHECKING:
    from textual.app import App

    from trnbench.verbs.asking.option import Given


class Dialog(SizedNow, ModalScreen[ScreenResultType]):
    """Lies over a view and ends once: of a key that is pressed twice, the second is nobody's."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Confirm(Dialog[bool]):
    """Ends with True for yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes", show=False),
        Binding("n,escape", "dismiss(False)", "No", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny: yes   n: no", markup=False)


class PathSuggester(Suggester):
    """Completes the name of a file or folder below a folder."""

    def __init__(self, folder: Path, ending: str) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._folder = folder
        self._ending = ending

    async def get_suggestion(self, value: str) -> str | None:
        """The path with its last part completed."""
        head, _, tail = value.rpartition("/")
        if not value or "\0" in value:
            return None
        try:
            place = self._folder / Path(f"{head}/" if head or value.startswith("/") else ".")
            with os.scandir(place.expanduser()) as entries:
                names = [
                    f"{entry.name}/" if entry.is_dir() else entry.name
                    for entry in entries
                    if entry.name.startswith(tail)
                    and (entry.is_dir() or entry.name.endswith(self._ending))
                ]
        except (OSError, RuntimeError):
            return None
        return value[: len(value) - len(tail)] + min(names) if tail and names else None


class AskPath(Dialog[Path | None]):
    """Ends with the typed path, from `folder` on, or with None; `ending` is that of known files."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False)
    ]

    def __init__(self, title: str, text: str, folder: Path, ending: str = "") -> None:
        super().__init__()
        self._title = title
        self._folder = folder
        self._line = Input(text, compact=True, suggester=PathSuggester(folder, ending))

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = self._title
            yield self._line
            yield Static("right completes, Enter takes it, Esc leaves", markup=False)

    @on(Input.Submitted)
    def _taken(self, event: Input.Submitted) -> None:
        event.stop()
        text, path = event.value.strip(), None
        try:
            path = typed_path(self._folder, text) if text else None
        except TrnbenchError as error:
            told(self.app, error)
        self.dismiss(path)


class JumpScreen(Dialog[Widget | None]):
    """Shows the letters over the screen below; ends with the widget that was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False)
    ]

    def __init__(self, targets: Sequence[Widget]) -> None:
        super().__init__()
        self._targets = dict(zip(ascii_lowercase, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, target in self._targets.items():
            label = Static(f" {letter} ", markup=False)
            label.styles.offset = (target.region.x, target.region.y)
            yield label

    def on_key(self, event: events.Key) -> None:
        if event.key in self._targets:
            event.stop()
            self.dismiss(self._targets[event.key])


USUAL = "scenario.toml"


def save(
    app: App[None],
    where: tuple[Path, set[Path]],
    scenario: Given,
    saved: Callable[[Given], None],
) -> None:
    """Ask for a path, and write the scenario there.

    `where` is the folder that a path starts from, and the paths that this session has written: any
    other file that is there is replaced only if the user says so.
    """
    from trnbench.verbs.compare.scenario import scenario_text

    folder, written = where

    def write(path: Path) -> None:
        try:
            write_whole(path, scenario_text(scenario).encode())
        except TrnbenchError as error:
            told(app, error)
        else:
            written.add(path)
            saved(scenario)
            app.notify(shown(str(path)), title="scenario saved", markup=False)

    def named(path: Path | None) -> None:
        if path is None:
            return
        if path in written or not path.exists():
            write(path)
        else:
            question = f"{shown(str(path))} is there already. Replace it?"
            app.push_screen(Confirm(question), lambda yes: write(path) if yes else None)

    app.push_screen(AskPath("save the scenario as", USUAL, folder, ".toml"), named)


def load(app: App[None], folder: Path, take: Callable[[Given], Awaitable[None]]) -> None:
    """Ask for a path in `folder`, and let the scenario there be taken."""
    from trnbench.verbs.compare.scenario import read_scenario

    async def named(path: Path | None) -> None:
        try:
            if path is not None:
                await take(read_scenario(path))
        except TrnbenchError as error:
            told(app, error)

    app.push_screen(AskPath("load the scenario in", USUAL, folder, ".toml"), named)


def typed_path(folder: Path, text: str) -> Path:
    """The typed path; impossible paths are refused."""
    if "\0" in text:
        raise InputError("no path has a NUL character")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError as error:  # ~NAME of nobody
        raise InputError(f"{text}: {error}") from None


def told(app: App[None], error: TrnbenchError) -> None:
    text = f"{shown(error.message)}\n{shown(error.hint or '')}".strip()
    app.notify(text, severity="error", markup=False, timeout=8)

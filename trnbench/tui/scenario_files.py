"""Saving the Compare view's scenario to a file, and loading a scenario from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import InputError, TrnbenchError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.terminal_text import shown
from trnbench.tui.completion import PathSuggester
from trnbench.tui.dialogs import AskPath, Confirm

if TYPE_CHECKING:
    from textual.app import App

    from trnbench.verbs.asking.option import Given

USUAL = "scenario.toml"


def save(app: App[None], folder: Path, scenario: Given, written: set[Path]) -> None:
    """Ask for a path in `folder`, and write the scenario there.

    A file that is there and not among those `written` in this session is replaced only if the
    user says so.
    """
    from trnbench.verbs.compare.scenario import scenario_text

    def write(path: Path) -> None:
        try:
            write_whole(path, scenario_text(scenario).encode())
        except TrnbenchError as error:
            told(app, error)
        else:
            written.add(path)
            app.notify(shown(str(path)), title="scenario saved", markup=False)

    def named(text: str | None) -> None:
        if not text:
            return
        try:
            path = typed_path(folder, text)
        except TrnbenchError as error:
            told(app, error)
            return
        if path in written or not path.exists():
            write(path)
        else:
            question = f"{shown(str(path))} is there already. Replace it?"
            app.push_screen(Confirm(question), lambda yes: write(path) if yes else None)

    app.push_screen(AskPath("save the scenario as", USUAL, PathSuggester(folder, ".toml")), named)


def load(app: App[None], folder: Path, take: Callable[[Given], None]) -> None:
    """Ask for a path in `folder`, and let the scenario there be taken."""
    from trnbench.verbs.compare.scenario import read_scenario

    def named(text: str | None) -> None:
        if not text:
            return
        try:
            take(read_scenario(typed_path(folder, text)))
        except TrnbenchError as error:
            told(app, error)

    app.push_screen(AskPath("load the scenario in", USUAL, PathSuggester(folder, ".toml")), named)


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
    app.notify(text, severity="error", markup=False, timeout=15)

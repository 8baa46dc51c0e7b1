"""Saving the Compare view's scenario to a file, and loading one into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import TrnbenchError
from trnbench.tui.dialogs import AskPath

if TYPE_CHECKING:
    from textual.app import App

    from trnbench.scenario import Scenario

USUAL = "scenario.toml"


def save(app: App[None], folder: Path, scenario: Scenario) -> None:
    """Ask for a path in `folder`, and write the scenario there."""
    from trnbench.scenario import scenario_text

    def named(text: str | None) -> None:
        if not text:
            return
        path = folder / Path(text).expanduser()
        try:
            path.write_text(scenario_text(scenario), encoding="utf-8")
        except OSError as error:
            app.notify(f"cannot write {path}: {error.strerror}", severity="error", markup=False)
        else:
            app.notify(str(path), title="scenario saved", markup=False)

    app.push_screen(AskPath("save the scenario as", USUAL), named)


def load(app: App[None], folder: Path, take: Callable[[Scenario], None]) -> None:
    """Ask for a path in `folder`, and let the scenario there be taken."""
    from trnbench.scenario import read_scenario

    def named(text: str | None) -> None:
        if not text:
            return
        try:
            take(read_scenario(folder / Path(text).expanduser()))
        except TrnbenchError as error:
            text = f"{error.message}\n{error.hint or ''}".strip()
            app.notify(text, severity="error", markup=False, timeout=15)

    app.push_screen(AskPath("load the scenario in", USUAL), named)

"""Saving the Compare view's scenario to a file, and loading one into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import TrnbenchError
from trnbench.tui.ask_path import AskPath

if TYPE_CHECKING:
    from trnbench.scenario import Scenario
    from trnbench.tui.app import TrnbenchApp

USUAL = "scenario.toml"


def save(app: TrnbenchApp, scenario: Scenario) -> None:
    """Ask for a path, and write the scenario there."""
    from trnbench.scenario import scenario_text

    def named(text: str | None) -> None:
        if not text:
            return
        path = app.folder / Path(text).expanduser()
        try:
            path.write_text(scenario_text(scenario), encoding="utf-8")
        except OSError as error:
            app.notify(f"cannot write {path}: {error.strerror}", severity="error", markup=False)
        else:
            app.notify(str(path), title="scenario saved", markup=False)

    app.push_screen(AskPath("save the scenario as", USUAL), named)


def load(app: TrnbenchApp) -> None:
    """Ask for a path, and put the scenario there into the form."""
    from trnbench.scenario import read_scenario

    def named(text: str | None) -> None:
        if not text:
            return
        try:
            app.take_scenario(read_scenario(app.folder / Path(text).expanduser()))
        except TrnbenchError as error:
            text = f"{error.message}\n{error.hint or ''}".strip()
            app.notify(text, severity="error", markup=False, timeout=15)

    app.push_screen(AskPath("load the scenario in", USUAL), named)

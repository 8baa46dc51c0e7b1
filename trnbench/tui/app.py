"""The application: the views, their shared state, and the keys that work in all of them."""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
import signal
import sys
import termios
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widget import Widget

from trnbench.errors import TrnbenchError, UnknownNameError
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.units import counted
from trnbench.tui.asking import Asking
from trnbench.tui.cluster_view import FIRST_CLUSTER, Cluster
from trnbench.tui.colours import (
    DARK,
    HIGH_CONTRAST,
    LIGHT,
    OWN_THEMES,
    THEMES,
    InAscii,
    Styled,
    Undimmed,
    own_ansi,
)
from trnbench.tui.export import Exporting
from trnbench.tui.help import HelpScreen, bindings_by_group, every_binding
from trnbench.tui.help import shown as keys_shown
from trnbench.tui.modes import class_of
from trnbench.tui.scenario_view import configured_texts
from trnbench.tui.settings import (
    Config,
    SessionState,
    config_path,
    read_config,
    read_state,
    state_path,
    write_state,
)
from trnbench.tui.view import SMALLEST, View
from trnbench.tui.views import ABOVE, PLACE_OF, PLACES, VIEWS
from trnbench.tui.widgets.frame import hidden, offered

if TYPE_CHECKING:
    from trnbench.tui.views.compare import CompareView
    from trnbench.verbs.asking.option import Given

_ENDED_BY = 128
"""And the number of the signal: the exit code of who is asked to end."""
DEFAULT_THEME = THEMES[0]
SETTLED_S = 3.0
"""Seconds after the start by which the first view is painted."""
TWICE_S = 3.0
"""Seconds within which a second ctrl+c leaves at once."""
LOOK_S = 2.0
"""Seconds between two looks for the terminal."""
FORMATS = {"csv": "CSV", "json": "JSON", "markdown": "Markdown"}


class TrnbenchApp(Exporting):
    """The terminal UI over one catalogue."""

    TITLE = "trnbench"
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        f"styles/{name}.tcss" for name in ("frame", "panels", "forms", "dialogs")
    ]
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-tiny-wide"),
        (SMALLEST[0], "-narrow"),
        (110, "-normal"),
        (160, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-tiny-high"),
        (SMALLEST[1], "-low"),
        (24, "-short"),
        (32, "-medium"),
        (50, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            hidden(str(digit), f"place('{name}')", name, f"app.{name.lower()}")
            for digit, name in enumerate(PLACES, start=1)
        ),
        offered("question_mark", "help", "Help", "app.help", "Every key"),
        hidden("ctrl+p", "command_palette", "Commands", "app.commands", priority=True),
        hidden("a", "jump", "Jump", "app.jump", "Jump to a place by letter"),
        hidden("t", "next_theme", "Theme", "app.theme", "Dark, light, high contrast, terminal's"),
        hidden("w", "save", "Save", "app.save", "Save the scenario"),
        hidden("o", "load", "Open", "app.load", "Load a scenario"),
        offered("q", "leave", "Quit", "app.quit"),
        hidden("ctrl+q", "leave", "Quit", "app.quit_always", priority=True),
    ]

    def __init__(
        self,
        catalog: Catalog,
        *,
        view: str | None = None,
        folder: Path | None = None,
        today: datetime.date | None = None,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(catalog, folder or Path.cwd())
        self.today = today or datetime.date.today()
        self.cluster = FIRST_CLUSTER
        self.failure: Exception | None = None
        self._written: set[Path] = set()
        self._styled, self._undimmed = Styled(), Undimmed()
        self._in_ascii = (InAscii(),) if ascii_only else ()
        self.above = dict(ABOVE)
        self._saved: Given | None = None
        self._interrupted = -TWICE_S
        self._leaving = False
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self.ansi_theme_dark, self.ansi_theme_light = own_ansi(DARK), own_ansi(LIGHT)
        self._state = read_state(state_path())
        left = "plan" if self._state.view == "plan" else "compare"
        self.scenario = {**configured_texts(), **self._state.texts.get(left, {})}
        self._config, self._complaint = self._configured()
        themes = (self._config.theme, self._state.theme, DEFAULT_THEME)
        # Before there is a style sheet: after that, another theme reads it all anew.
        self.set_reactive(App.theme, next(one for one in themes if one in self.available_themes))
        wanted = view or self._state.view
        self._first = wanted if wanted in VIEWS else "compare"

    @property
    def specs_facts(self) -> tuple[str, ...]:
        origins = dict.fromkeys(folder.origin for folder in self.catalog.folders)
        count = len(self.catalog.entries("instances"))
        return (f"specs {' + '.join(origins)}, {counted(count, 'instance')}",)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filters of lines before they are written."""
        filters = [*self._in_ascii, *super().get_line_filters()]
        if self.no_color:
            return [self._styled, *filters]
        contrast = self.theme in (theme.name for theme in HIGH_CONTRAST)
        return [self._undimmed, *filters] if contrast else filters

    def get_key_display(self, binding: Binding) -> str:
        """Name of a key; in ASCII enter has no letter of its own."""
        ascii_enter = self._in_ascii and binding.key == "enter"
        return "enter" if ascii_enter else super().get_key_display(binding)

    def texts_of(self, view: str) -> Mapping[str, str]:
        return self._state.texts.get(view, {})

    def on_mount(self) -> None:
        """Open the first view; from now on, a request to end is leaving."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            asyncio.get_running_loop().add_signal_handler(number, self._ended, number)
        if at_terminal():
            self.set_interval(LOOK_S, self._look_for_terminal)
        self.set_keymap(dict(self._config.keys))
        self.switch_mode(self._first)
        if not gc.isenabled():
            self.set_timer(SETTLED_S, _collect_again)
        if self._complaint:
            self.notify(self._complaint, severity="warning", timeout=8)

    async def on_event(self, event: events.Event) -> None:
        """Take what is pressed, unless the application is leaving: then no screen gets widgets."""
        if not (self._leaving and isinstance(event, events.InputEvent | events.Paste)):
            await super().on_event(event)

    def alt_keys(self) -> Collection[str]:
        """Keys that the user's configuration binds."""
        return self._config.keys.values()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's verbs: places to go, what this view can do, the way out last."""
        for name, (label, _) in VIEWS.items():
            help_text = f"Go to {label}, in {PLACE_OF[name]}"
            yield SystemCommand(f"view: {label}", help_text, partial(self.action_view, name))
        yield from self._commands_of_view()
        for output_format, label in FORMATS.items():
            yield SystemCommand(
                f"export: {label} of visible rows",
                "Write the rows, sorted and filtered as shown, to a file",
                partial(self._on_view, "action_export", output_format),
            )
        yield SystemCommand("export: SVG of the screen", "Write a picture", self.export_svg)
        yield SystemCommand("copy: visible rows as CSV", "Rows to the clipboard", self.copy_rows)
        yield SystemCommand("scenario: save", "Save the scenario as TOML", self.action_save)
        yield SystemCommand("scenario: load", "Load a scenario from TOML", self.action_load)
        own = dict.fromkeys((*THEMES, *self.available_themes))
        for theme in own:
            yield SystemCommand(
                f"theme: {theme}", "Change colours", partial(self._set_theme, theme)
            )
        yield SystemCommand("help: every key", "Keys and their ids", self.action_help)
        yield SystemCommand("help: jump", "Letters on every place", self.action_jump)
        yield SystemCommand("app: quit", "Leave trnbench", self.action_leave)

    def _commands_of_view(self) -> Iterator[SystemCommand]:
        """Yield what keys of this view do, its own before those of every view."""
        view = self.view
        if view is None:
            return
        bindings = bindings_by_group(every_binding([type(view)]))
        for group in (view.NAME, "view"):
            for binding in bindings.get(group, {}).values():
                if binding.action not in ("within(1)", "within(-1)", "back"):
                    what = binding.tooltip or binding.description
                    label = VIEWS[view.NAME][0].lower() if group != "view" else "do"
                    yield SystemCommand(
                        f"{label}: {binding.description}",
                        f"{what} ({keys_shown(binding.key)})",
                        partial(view.run_action, binding.action),
                    )

    # Keys

    def action_view(self, name: str) -> None:
        if isinstance(self.screen, View) and self.current_mode != name:
            self._turn_to(name)

    def _turn_to(self, name: str) -> None:
        # A leaving application mounts nothing any more.
        if self.screen.is_attached:
            self.switch_mode(name)

    def action_command_palette(self) -> None:
        from trnbench.tui.picker import Palette

        if isinstance(self.screen, Palette):
            return
        commands = {command.title: command for command in self.get_system_commands(self.screen)}

        async def chosen(titles: tuple[str, ...] | None) -> None:
            for title in titles or ():
                done = commands[title].callback()
                if isawaitable(done):
                    await done

        self.push_screen(
            Palette({title: command.help for title, command in commands.items()}), chosen
        )

    def action_place(self, place: str) -> None:
        """Go to the view of a place that was seen last."""
        self.action_view(self.last_seen.get(place, PLACES[place][0]))

    def action_help(self) -> None:
        here = self.screen if isinstance(self.screen, Asking) else self.view
        self.push_screen(
            HelpScreen(
                bindings_by_group(known_bindings()),
                dict(self._config.keys),
                str(config_path()),
                "" if here is None else here.NAME,
            )
        )

    def action_jump(self) -> None:
        from trnbench.tui.dialogs import JumpScreen

        view = self.view
        if view is None or view is not self.screen:
            return

        def go(target: Widget | None) -> None:
            if target is not None:
                target.focus()

        self.push_screen(JumpScreen(view.focus_chain), go)

    def action_next_theme(self) -> None:
        at = THEMES.index(self.theme) if self.theme in THEMES else -1
        self._set_theme(THEMES[(at + 1) % len(THEMES)])

    async def action_leave(self) -> None:
        """Leave; where a scenario file has newer edits, ask first."""
        from trnbench.tui.dialogs import Confirm

        compare = cast("CompareView | None", self.made.get("compare"))
        if self._saved is None or compare is None or compare.scenario == self._saved:
            await self._leave()
            return

        async def decided(yes: bool | None) -> None:
            if yes:
                await self._leave()

        self.push_screen(Confirm("The scenario has edits that w would save. Quit?"), decided)

    def _look_for_terminal(self) -> None:
        if not at_terminal():
            self._ended(signal.SIGHUP)

    def _ended(self, number: int) -> None:
        self.call_later(self._leave, _ENDED_BY + number)

    async def _leave(self, code: int = 0) -> None:
        """Leave once every widget stands: a half-made widget looks for parts that it lacks."""
        while not all(widget.is_mounted for widget in self.screens_and_widgets()):
            await asyncio.sleep(0)
        self._leaving = True
        self._keep_state()
        self.exit(return_code=code)

    def action_help_quit(self) -> None:
        """Say how to leave; asked twice, leave."""
        now = time.monotonic()
        if now - self._interrupted < TWICE_S:
            self.call_later(self._leave)
            return
        self._interrupted = now
        key = self._config.keys.get("app.quit_always", "ctrl+q")
        self.notify(f"ctrl+c again leaves trnbench, as {key} does", title="still here")

    async def action_save(self) -> None:
        from trnbench.tui.dialogs import save

        scenario = (await self._compare()).scenario
        save(self, (self.folder, self._written), scenario, self.kept_as_saved)

    def action_load(self) -> None:
        from trnbench.tui.dialogs import load

        async def take(scenario: Given) -> None:
            await self.take_scenario(scenario)
            self.kept_as_saved(scenario)

        load(self, self.folder, take)

    # What views share

    def kept_as_saved(self, scenario: Given) -> None:
        """Note what a scenario file has, to tell on leaving whether it is behind."""
        self._saved = dict(scenario)

    async def take_scenario(self, scenario: Given) -> None:
        (await self._compare()).take(scenario)

    def choose_cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.above["layouts"] = self.current_mode
        self.action_view("layouts")

    async def _compare(self) -> CompareView:
        """The Compare view, once it is there."""
        self._turn_to("compare")
        await self.standing()
        return cast("CompareView", self.made["compare"])

    def _on_view(self, action: str, *arguments: object) -> None:
        if self.view is not None:
            getattr(self.view, action)(*arguments)

    def _set_theme(self, name: str) -> None:
        self.theme = name
        self.notify(name, title="theme", timeout=2)

    def _handle_exception(self, error: Exception) -> None:
        """Leave the screen, then report a bug in one line, as every command does."""
        if self.is_headless:
            super()._handle_exception(error)
            return
        self.failure = self.failure or error
        self.exit()

    # State

    def _configured(self) -> tuple[Config, str]:
        path = config_path()
        try:
            return read_config(
                path, lambda: [binding.id for binding in known_bindings() if binding.id]
            ), ""
        except TrnbenchError as error:
            return Config(), error.message

    def _keep_state(self) -> None:
        texts = {name: dict(kept) for name, kept in self._state.texts.items()}
        texts |= {view.NAME: view.texts() for view in self.made.values()}
        view = self.view
        write_state(
            state_path(),
            SessionState(
                view="" if view is None else view.NAME,
                theme=self.theme,
                texts={name: kept for name, kept in texts.items() if kept},
            ),
        )


def at_terminal() -> bool:
    """Tell whether standard input is a terminal that is there still: not every terminal says so.

    Where no signal comes, keys would be looked for in an empty terminal for ever, on a whole core.
    """
    try:
        termios.tcgetattr(sys.stdin.fileno())
    except (OSError, ValueError, termios.error):
        return False
    return True


def _collect_again() -> None:
    # Objects of the start live as long as the application: looking through them frees nothing.
    gc.freeze()
    gc.enable()


def known_bindings() -> Iterator[Binding]:
    yield from every_binding([TrnbenchApp, View, *map(class_of, VIEWS)])


def run(spec_dirs: Sequence[Path], view: str | None, *, ascii_only: bool = False) -> int:
    """Run the application until the user leaves; return the exit code."""
    if view is not None and view not in VIEWS:
        raise UnknownNameError("view", view, VIEWS)
    plain = ascii_only or os.environ.get("TERM") == "linux"
    opened = TrnbenchApp(open_catalog(spec_dirs), view=view, ascii_only=plain)
    opened.run()
    if opened.failure is not None:
        raise opened.failure
    return opened.return_code or 0

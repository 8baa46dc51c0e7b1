"""Stacked bars below each other: every part has a letter, a name and a colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase, digits

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from trnbench.facts.records import Record
from trnbench.tui.colours import part_styles

LIMIT = "|"
TAIL = 12
"""Columns kept for the total behind a bar."""


class Bar(Record):
    """A bar: parts by name, and a `limit` drawn as a stroke unless None."""

    label: str
    parts: Mapping[str, float]
    limit: float | None = None
    strong: bool = False

    @property
    def total(self) -> float:
        """The length of all parts."""
        return sum(self.parts.values())


class BarsData(Record):
    """Bars on the same scale."""

    title: str
    bars: tuple[Bar, ...]
    text: Callable[[float], str]
    """Text of a total."""
    letters: Mapping[str, str]
    """Letter of each part."""
    note: str = ""
    shares: bool = True
    """Whether the legend gives the share of each part in the marked bar."""


def letters_for(names: Sequence[str], *, besides: str = "") -> dict[str, str]:
    """A letter for each name: the first of its own that is free, and none of `besides`."""
    taken: dict[str, str] = {}
    for name in names:
        wanted = [*(c for c in name.upper() if c.isalnum()), *ascii_uppercase, *digits]
        free = (c for c in wanted if c not in (*taken.values(), *besides))
        taken[name] = next(free)
    return taken


def cells_of(parts: Mapping[str, float], scale: float) -> dict[str, int]:
    """Cells of each part: whole numbers that add up to the rounded total."""
    cells: dict[str, int] = {}
    length = 0.0
    drawn = 0
    for name, value in parts.items():
        length += value * scale
        cells[name] = round(length) - drawn
        drawn = round(length)
    return cells


def draw_bars(data: BarsData, width: int, colours: Mapping[str, Style]) -> Text:
    """The bars as lines of text of this width, with a legend that gives shares.

    A part is a run of its letter; where it has a colour, of filled cells that begin with it.
    """
    left = max((len(bar.label) for bar in data.bars), default=0) + 2
    room = max(width - left - TAIL, 10)
    longest = max((max(bar.total, bar.limit or 0.0) for bar in data.bars), default=0.0)
    scale = room / longest if longest > 0 else 0.0
    text = Text()
    text.append(data.title, style="bold")
    for bar in data.bars:
        text.append("\n")
        head = ">" if bar.strong else " "
        text.append(f"{head}{bar.label:<{left - 1}}", style="bold" if bar.strong else "")
        drawn = 0
        for name, count in cells_of(bar.parts, scale).items():
            letter, style = data.letters[name], colours[name]
            text.append(letter.ljust(count)[:count] if style.bgcolor else letter * count, style)
            drawn += count
        limit = round((bar.limit or 0.0) * scale)
        if bar.limit is not None and limit >= drawn:
            text.append(" " * (limit - drawn) + LIMIT, style="bold")
            drawn = limit + 1
        text.append(f" {data.text(bar.total)}")
    text.append("\n\n")
    text.append_text(_legend(data, width, colours))
    if data.note:
        text.append(f"\n{data.note}", style="dim")
    return text


def _legend(data: BarsData, width: int, colours: Mapping[str, Style]) -> Text:
    """Letters with names, and the shares of the marked bar or of the first."""
    chosen = next((bar for bar in data.bars if bar.strong), data.bars[0] if data.bars else None)
    text, column = Text(), 0
    for name, letter in data.letters.items():
        if not any(bar.parts.get(name) for bar in data.bars):
            continue
        share = chosen.parts.get(name, 0.0) / chosen.total if chosen and chosen.total else 0.0
        words = name.replace("_", "-")
        entry = f" {words} {100 * share:.1f}%  " if data.shares else f" {words}  "
        if column and column + len(entry) + 3 > width:
            text.append("\n")
            column = 0
        text.append(f" {letter} " if colours[name].bgcolor else letter, style=colours[name])
        text.append(entry)
        column += len(entry) + 3
    return text


class StackedBars(VerticalScroll):
    """Draws its newest bars over its whole width."""

    DEFAULT_CSS = """
    StackedBars { height: 1fr; scrollbar-size-vertical: 1; }
    StackedBars > Static { height: auto; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.data: BarsData | None = None
        self._lines = (-1, "")

    def compose(self) -> ComposeResult:
        """Yield the place for the drawing."""
        yield Static("", markup=False)

    def on_mount(self) -> None:
        """Draw anew in another theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        """Draw as wide as there is room."""
        self._draw()

    def show(self, data: BarsData) -> None:
        """Draw other bars."""
        self.data = data
        self._draw()

    def _draw(self) -> None:
        data = self.data
        if data is None or not self.size.width:
            return
        drawn = (
            draw_bars(data, self.size.width - 1, part_styles(self.app, list(data.letters)))
            if data.bars
            else data.note
        )
        lines = str(drawn).count("\n"), data.note
        self.query_one(Static).update(drawn, layout=lines != self._lines)
        self._lines = lines

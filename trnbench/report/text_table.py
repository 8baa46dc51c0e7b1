"""Tables of text for a terminal: aligned columns, no boxes, bold headings where colour is on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
DOTS = "..."
BOLD = "\x1b[1m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the output can show: characters a line, and whether it takes colour.

    Texts are wrapped at `width`; tables keep to it only where a terminal would break them.
    """

    width: int = 100
    colour: bool = False
    terminal: bool = False

    def strong(self, text: str) -> str:
        """Return `text` in bold, where colour is on."""
        return f"{BOLD}{text}{RESET}" if self.colour and text else text

    def faint(self, text: str) -> str:
        """Return `text` dimmed, where colour is on."""
        return f"{DIM}{text}{RESET}" if self.colour and text else text


PLAIN = Style()


def counted(count: int, noun: str) -> str:
    """Return how many there are of something: "1 step", "1,000 steps"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float | None, *, sign: str = "") -> str:
    """Return a share in percent with one decimal, with `sign` "+" also where it is positive."""
    return "-" if share is None else f"{100 * share:{sign}.1f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Headings, rows of text, and which columns align to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]


def width_of(table: TextTable) -> int:
    """Return how many characters a line of the drawn table has."""
    columns = zip_longest(table.headings, *table.rows, fillvalue="")
    return sum(max(map(len, column)) + len(GAP) for column in columns) - len(GAP)


def shortened(table: TextTable, width: int) -> TextTable:
    """Return the table with its last column cut to fit, the cut marked by dots."""
    over = width_of(table) - width
    if over <= 0:
        return table
    longest = max(len(row[-1]) for row in table.rows)
    room = max(longest - over, len(table.headings[-1]), len(DOTS) + 1)
    rows = tuple(
        row if len(row[-1]) <= room else (*row[:-1], row[-1][: room - len(DOTS)] + DOTS)
        for row in table.rows
    )
    return TextTable(headings=table.headings, rows=rows, right=table.right)


def draw(table: TextTable, style: Style = PLAIN, *, indent: str = "") -> str:
    """Return the table as lines of text; the last column is never padded."""
    widths = [
        max(map(len, column)) for column in zip_longest(table.headings, *table.rows, fillvalue="")
    ]

    def line(cells: tuple[str, ...]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, table.right, strict=True)
        ]
        return indent + GAP.join(padded).rstrip()

    heading = style.strong(line(table.headings))
    rule = style.faint(indent + GAP.join("-" * width for width in widths))
    return "\n".join([heading, rule, *map(line, table.rows)])


def markdown(table: TextTable) -> str:
    """Return the table in Markdown."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "| " + " | ".join("---:" if right else "---" for right in table.right) + " |"
    return "\n".join([line(table.headings), rule, *map(line, table.rows)])


def wrap(text: str, width: int, indent: str) -> str:
    """Return `text` broken into lines of at most `width`, each behind `indent`."""
    from textwrap import fill

    return fill(
        text,
        width=max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )

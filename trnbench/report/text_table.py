"""Tables of text for a terminal: aligned columns, no boxes, bold headings where colour is on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
BOLD = "\x1b[1m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the output can show: columns of width, and whether it takes colour."""

    width: int = 100
    colour: bool = False

    def strong(self, text: str) -> str:
        """Return `text` in bold, where colour is on."""
        return f"{BOLD}{text}{RESET}" if self.colour and text else text

    def faint(self, text: str) -> str:
        """Return `text` dimmed, where colour is on."""
        return f"{DIM}{text}{RESET}" if self.colour and text else text


PLAIN = Style()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Headings, rows of text, and which columns align to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]


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

"""Tables of text for a terminal: aligned columns, no boxes, bold headings where colour is on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import zip_longest

from trnbench.facts.records import Record, force_setattr
from trnbench.facts.terminal_text import markdown_text, shown

GAP = "  "
NARROWEST = 20
"""A column is broken into lines no shorter than this."""
ROOMY = 24
"""A last column that has less room stands below its rows."""
BOLD = "\x1b[1m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"
_UNBROKEN = "\xa0"
"""A blank at which no line ends: between a number and its %."""


class Style(Record):
    """Abilities of the output: characters a line, and whether it takes colour.

    Texts are wrapped at `width`; tables keep to it only where a terminal would break them.
    """

    width: int = 100
    colour: bool = False
    terminal: bool = False

    def strong(self, text: str) -> str:
        return f"{BOLD}{text}{RESET}" if self.colour and text else text

    def faint(self, text: str) -> str:
        return f"{DIM}{text}{RESET}" if self.colour and text else text

    def wrap(self, text: str, indent: str = "") -> str:
        return wrap(text, self.width, indent)

    def lines(self, texts: Iterable[str], indent: str = "") -> str:
        return "\n".join(self.wrap(text, indent) for text in texts)

    def table(
        self, headings: Iterable[str], rows: Iterable[Iterable[str]], indent: str = ""
    ) -> str:
        """Return a drawn table: see `text_table`; a terminal's is no wider than it if it can."""
        table = text_table(headings, rows)
        if not self.terminal or width_of(table) <= self.width - len(indent):
            return draw(table, self, indent=indent)
        if width_of(without_last_column(table)) > self.width - len(indent) - ROOMY:
            return _last_below(table, self, indent)
        return draw(folded(table, self.width - len(indent))[0], self, indent=indent)

    def titled(self, title: str, text: str) -> str:
        return f"{self.strong(title)}\n{text}" if text else ""


PLAIN = Style()


def percent(share: float | None, *, sign: str = "") -> str:
    """Return a share in percent with one decimal, with `sign` "+" also where it is positive."""
    return "-" if share is None else f"{100 * share:{sign}.1f} %"


class TextTable(Record):
    """Headings, rows of text, and which columns align to the right.

    A cell is one line, whatever a data file or a path says: its control characters are written out.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "headings", tuple(map(shown, self.headings)))
        # A row is looked at as one text first: hardly any has such a character.
        force_setattr(self, "rows", tuple(map(_shown_cells, self.rows)))


def _shown_cells(row: tuple[str, ...]) -> tuple[str, ...]:
    line = "".join(row)
    return row if shown(line) is line else tuple(map(shown, row))


def text_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> TextTable:
    """Return a table; a column whose heading begins with > aligns to the right."""
    heads = tuple(headings)
    return TextTable(
        headings=tuple(head.removeprefix(">") for head in heads),
        rows=tuple(map(tuple, rows)),
        right=tuple(head.startswith(">") for head in heads),
    )


def without_last_column(table: TextTable) -> TextTable:
    """Return the table without its last column."""
    return TextTable(
        headings=table.headings[:-1],
        rows=tuple(row[:-1] for row in table.rows),
        right=table.right[:-1],
    )


def width_of(table: TextTable) -> int:
    columns = zip_longest(table.headings, *table.rows, fillvalue="")
    return sum(max(map(len, column)) + len(GAP) for column in columns) - len(GAP)


def folded(
    table: TextTable, width: int, marked: Collection[int] = ()
) -> tuple[TextTable, tuple[int, ...]]:
    """Return the table with its last column broken into lines that fit, and where `marked` are."""
    if width_of(table) <= width:
        return table, tuple(marked)
    rest = without_last_column(table)
    room = max(width - width_of(rest) - len(GAP), len(table.headings[-1]), NARROWEST)
    rows: list[tuple[str, ...]] = []
    places: list[int] = []
    blank = ("",) * len(rest.headings)
    for number, row in enumerate(table.rows):
        first, *more = wrap(row[-1], room, "").splitlines() or [""]
        lines = [(*row[:-1], first), *((*blank, line) for line in more)]
        places += range(len(rows), len(rows) + len(lines)) if number in marked else ()
        rows += lines
    return TextTable(headings=table.headings, rows=tuple(rows), right=table.right), tuple(places)


def draw(
    table: TextTable, style: Style = PLAIN, *, indent: str = "", bold: Collection[int] = ()
) -> str:
    """Return the table as lines of text, `bold` rows bold; the last column is never padded."""
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
    rows = [
        style.strong(line(row)) if number in bold else line(row)
        for number, row in enumerate(table.rows)
    ]
    return "\n".join([heading, rule, *rows])


def _last_below(table: TextTable, style: Style, indent: str) -> str:
    """The table with the last cell of each row on lines of its own below the row."""
    heading, rule, *rows = draw(without_last_column(table), style, indent=indent).splitlines()
    inner = f"{indent}  "
    lines = [heading, f"{inner}{table.headings[-1]}", rule]
    for line, cells in zip(rows, table.rows, strict=True):
        lines += [line, *([style.wrap(cells[-1], inner)] if cells[-1] else [])]
    return "\n".join(lines)


def markdown(table: TextTable) -> str:
    """Return the table in Markdown."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(map(markdown_text, cells)) + " |"

    rule = "| " + " | ".join("---:" if right else "---" for right in table.right) + " |"
    return "\n".join([line(table.headings), rule, *map(line, table.rows)])


def wrap(text: str, width: int, indent: str) -> str:
    """Return `text` broken into lines of at most `width`, each behind `indent`."""
    from textwrap import fill

    told = fill(
        text.replace(" %", f"{_UNBROKEN}%"),
        width=max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return told.replace(_UNBROKEN, " ")

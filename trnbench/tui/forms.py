"""How a form is declared: a field a line, and the fields that several forms have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from trnbench import parsing
from trnbench.catalog.search import Catalog
from trnbench.tui.widgets.field import FieldSpec

Parser: TypeAlias = Callable[[str], object]
FieldKind: TypeAlias = Callable[[str], Parser]
"""Label -> parser of what is typed into the field."""

BATCHES = ("512", "1024", "2048", "4096")
NODES = ("16", "32", "64", "128")
PRECISIONS = ("bf16-master", "bf16-sr", "fp8", "fp32")
SEQUENCES = ("2048", "4096", "8192", "32768")


def field(
    key: str,
    kind: FieldKind,
    text: str = "",
    *,
    advice: str = "",
    choices: Sequence[str] = (),
    label: str = "",
) -> FieldSpec:
    """Return a field labelled by its key; with advice it may stay empty, which is None."""
    label = label or key.replace("_", " ")
    if advice:
        parse: Parser = parsing.optional(kind(label))
        choices = ("", *choices) if choices else ()
    else:
        parse = kind(label)
    return FieldSpec(
        key=key, label=label, parse=parse, text=text, advice=advice, choices=tuple(choices)
    )


def plain(parse: Parser) -> FieldKind:
    """Return the kind of a parser whose complaints do not name the field."""
    return lambda label: parse


def list_of(one: Parser) -> FieldKind:
    """Return the kind of a list with commas or blanks between."""
    return lambda label: parsing.several(label, one)


def name_field(catalog: Catalog, key: str, text: str) -> FieldSpec:
    """Return the field of a data file's name: a model or an instance."""
    section = f"{key}s"
    known = tuple(entry.name for entry in catalog.entries(section))
    return field(key, plain(parsing.one_of(key, catalog.names(section))), text, choices=known)


def precision_field(text: str = "", *, advice: str = "") -> FieldSpec:
    """Return the field of a precision recipe."""
    return field("precision", plain(_recipe_name), text, advice=advice, choices=PRECISIONS)


def _recipe_name(text: str) -> str:
    from trnbench.program.precision import recipe_named

    return recipe_named(text).name

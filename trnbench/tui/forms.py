"""Declarations of forms: a field a line, and the fields that several forms have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.tui.widgets.field import FieldSpec

Parser: TypeAlias = Callable[[str], object]
FieldKind: TypeAlias = Callable[[str], Parser]
"""Parser of the text of a field, by label."""

KnownNames: TypeAlias = Callable[[], Sequence[tuple[str, str]]]
"""Function that gives names to pick from, each with its facts."""

RUN, PURCHASE, LAYOUT, SOFTWARE = "run", "purchase", "layout", "software and failures"
"""Headings of the fields that a form folds."""
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
    known: KnownNames | None = None,
    several: bool = False,
    group: str = "",
) -> FieldSpec:
    """A field labelled by its key; with advice an empty text is None."""
    label = label or key.replace("_", " ")
    if advice:
        parse: Parser = parsing.optional(kind(label))
        choices = ("", *choices) if choices else ()
    else:
        parse = kind(label)
    return FieldSpec(
        key=key,
        label=label,
        parse=parse,
        text=text,
        advice=advice,
        choices=tuple(choices),
        known=known,
        several=several,
        group=group,
    )


def plain(parse: Parser) -> FieldKind:
    """The kind of a parser whose messages do not name the field."""
    return lambda label: parse


def list_of(parse: Parser) -> FieldKind:
    """The kind of a list with commas or blanks between entries."""
    return lambda label: parsing.several(label, parse)


def name_field(catalog: Catalog, key: str, text: str) -> FieldSpec:
    """The field of a data file's name: a model or an instance."""
    section = f"{key}s"
    names = tuple(entry.name for entry in catalog.entries(section))
    return field(
        key,
        plain(parsing.one_of(key, catalog.names(section))),
        text,
        choices=names,
        known=titles(catalog, section),
    )


def titles(catalog: Catalog, section: str) -> KnownNames:
    """Function that lists the data files of a section with their titles."""

    @cache
    def listed() -> Sequence[tuple[str, str]]:
        from trnbench.facts.catalog.toml_file import read_toml

        return [
            (entry.name, str(read_toml(entry.path).get("title", "")))
            for entry in catalog.entries(section)
        ]

    return listed


def stack_field(catalog: Catalog) -> FieldSpec:
    """The field of a training stack; none is that of each instance."""
    begin = "training-"

    @cache
    def known() -> Sequence[tuple[str, str]]:
        files = titles(catalog, "calibration")()
        calibrated = [(name.removeprefix(begin), title) for name, title in files if begin in name]
        frameworks = [
            (name, "framework: its stack on each instance") for name in catalog.names("software")
        ]
        return [*calibrated, *frameworks]

    def parsed(text: str) -> str:
        return parsing.one_of("stack", [name for name, _ in known()])(text)

    return field(
        "stack", plain(parsed), advice="that of each instance", known=known, group=SOFTWARE
    )


def precision_field(text: str = "", *, advice: str = "") -> FieldSpec:
    return field(
        "precision", plain(_recipe_name), text, advice=advice, choices=PRECISIONS, group=RUN
    )


def _recipe_name(text: str) -> str:
    from trnbench.program.precision import recipe_named

    return recipe_named(text).name

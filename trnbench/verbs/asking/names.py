"""Names as people type them -> names of the catalogue, in the options of any verb.

A model may be an organisation's (`org/Name`), in any case, or a path to a `config.json`; an
instance type may be its family (`p5`). What is unknown stays: whoever looks it up refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.errors import TrnbenchError
from trnbench.facts.catalog.search import Catalog
from trnbench.verbs.asking.option import Given, Option

_SECTIONS = ("models", "instances", "chips")
_BY_INSTANCE = ("stack", "release")
"""Options that may say INSTANCE=VALUE,..."""

Taken = dict[str, str]
"""Names as they were typed, by what they were taken for where these differ by more than case."""


def understood(
    options: Mapping[str, Option], given: Given, catalog: Catalog
) -> tuple[Given, Taken]:
    """The options with the catalogue's names, and the names that were typed otherwise."""
    taken: Taken = {}
    named = {name: _section(option) for name, option in options.items()}
    read = {
        name: _known(catalog, named[name], value, taken) if named.get(name) else value
        for name, value in given.items()
    }
    return read, taken


def _section(option: Option) -> str:
    if option.name in _BY_INSTANCE:
        return "="
    return option.completes[0] if option.completes[:1] in [(one,) for one in _SECTIONS] else ""


def _known(catalog: Catalog, section: str, value: object, taken: Taken) -> object:
    if isinstance(value, list | tuple):
        return type(value)(_known(catalog, section, one, taken) for one in value)
    if not isinstance(value, str) or (section == "=" and "=" not in value):
        return value
    sign, section = ("=", "instances") if section == "=" else (":", section)
    parts = [value] if section == "models" else value.split(",")
    return ",".join(_part(catalog, section, part, sign, taken) for part in parts)


def _part(catalog: Catalog, section: str, part: str, sign: str, taken: Taken) -> str:
    whole = section == "models"  # a path may hold any sign
    typed, mark, behind = (part, "", "") if whole else part.partition(sign)
    name = typed.strip()
    try:
        known = catalog.find(section, name).name if name else name
    except TrnbenchError:
        return part
    if known.casefold() != name.casefold():
        taken[known] = name
    return f"{known}{mark}{behind}"

"""Fields of record classes, and their keys in files.

A record's attribute carries its base unit (`clock_hz: Hertz`), the file's key does not (`clock =
"2.8 GHz"`): the key is the attribute without its dimension's suffix. Classes of a union of
records declare tags, which select the class in either of two ways:

    class Torus(Record, tag_field="topology", tag="torus")    topology = "torus" in the table
    class Speed(Record, tag="speed")                          the table stands under the key `speed`

The second way is for fields whose form is `Annotated[..., BY_TAG]`: a union, of which a table has
one, or a tuple of a union, of which it has lists.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from trnbench.facts.catalog.provenance import PROVENANCE, join
from trnbench.facts.catalog.quantity import Count, Total
from trnbench.facts.records import Record, fields, hints, tag_key_of, tag_of
from trnbench.facts.units import Dimension

TypeForm: TypeAlias = Any
"""A type expression such as `tuple[int, ...] | None`; Python 3.11 has no static type for these."""

BY_TAG = "by tag"


def is_record(form: TypeForm) -> bool:
    return isinstance(form, type) and issubclass(form, Record)


def keys_of(record: TypeForm) -> Mapping[str, str]:
    """Attribute -> key in the file, for all attributes of the file."""
    return _keys(record)


@cache
def _keys(record: TypeForm) -> Mapping[str, str]:
    return {name: key for name, (key, _) in forms_of(record).items()}


@cache
def dimension_of(form: TypeForm) -> Dimension | None:
    if origin_of(form) is Annotated:
        return next((m for m in form.__metadata__ if isinstance(m, Dimension)), None)
    return None


def origin_of(form: TypeForm) -> object:
    """The origin, such as `tuple` for `tuple[int, ...]`: `get_origin` with a type for mypy."""
    return get_origin(form)


def is_tagged_union(form: TypeForm) -> bool:
    return origin_of(form) in (Union, types.UnionType) and all(map(is_record, get_args(form)))


def tagged(form: TypeForm) -> dict[str, TypeForm]:
    return {tag_of(member): member for member in get_args(form)}


def tag_field(form: TypeForm) -> str:
    """Key of the tag in a table of a union of records."""
    return tag_key_of(get_args(form)[0])


@cache
def by_tag(form: TypeForm) -> dict[str, TypeForm]:
    """Tag -> form of the value under that key; empty for a field with a key of its own."""
    if origin_of(form) is not Annotated or BY_TAG not in form.__metadata__:
        return {}
    inner = get_args(form)[0]
    if origin_of(inner) is tuple:
        each = tagged(get_args(inner)[0])
        return {
            tag: types.GenericAlias(tuple, (record_type, ...)) for tag, record_type in each.items()
        }
    return tagged(inner)


@cache
def entries(record: TypeForm) -> dict[str, TypeForm]:
    """Key -> form of the value, for all keys that a record's table may have."""
    forms: dict[str, TypeForm] = {}
    for key, form in forms_of(record).values():
        forms |= by_tag(form) or {key: form}
    return forms


def content_of(record: Record) -> Iterator[tuple[str, str, object]]:
    """Yield the attribute, the key in the file and the value of a record's fields."""
    for name, (key, form) in forms_of(type(record)).items():
        value: Any = getattr(record, name)
        if not by_tag(form):
            yield name, key, value
        elif isinstance(value, tuple):
            for tag in by_tag(form):
                yield tag, tag, tuple(item for item in value if tag_of(item) == tag)
        else:
            yield name, tag_of(value), value


NumberAt: TypeAlias = tuple[str, object, Dimension | None]
"""A number in a table: its key path, raw value and dimension."""
_Finder: TypeAlias = Callable[[Any, str, list[NumberAt]], None]
"""Appends the numbers of a value at a key path."""


def numbers(value: object, form: TypeForm, path: str = "") -> list[NumberAt]:
    """Every leaf that is a number by the schema.

    Values that violate the schema are skipped: `structure` reports them.
    """
    found: list[NumberAt] = []
    _finder(form)(value, path, found)
    return found


@cache
def _finder(form: TypeForm) -> _Finder:
    # Forms are looked at here, once; values of a form are many.
    form = _without_none(form)
    dimension = dimension_of(form)
    if dimension is not None or form in (int, float, Count, Total):

        def leaf(value: object, path: str, found: list[NumberAt]) -> None:
            if not isinstance(value, list | dict):
                found.append((path, value, dimension))

        return leaf
    if is_tagged_union(form):
        key, members = tag_field(form), tagged(form)

        def member(value: object, path: str, found: list[NumberAt]) -> None:
            tag = value.get(key) if isinstance(value, dict) else None
            if isinstance(tag, str) and tag in members:
                _finder(members[tag])(value, path, found)

        return member
    if is_record(form):
        return _record_finder(form)
    if origin_of(form) is tuple:
        inner = _finder(get_args(form)[0])

        def items(value: object, path: str, found: list[NumberAt]) -> None:
            for i, item in enumerate(value if isinstance(value, list) else ()):
                inner(item, f"{path}[{i}]", found)

        return items
    if origin_of(form) is dict:
        inner = _finder(get_args(form)[1])

        def entry(value: object, path: str, found: list[NumberAt]) -> None:
            for key, item in value.items() if isinstance(value, dict) else ():
                inner(item, join(path, key), found)

        return entry
    return lambda value, path, found: None


def _record_finder(record: TypeForm) -> _Finder:
    # Finders of fields are made on first use: a record may hold records of its own kind.
    finders: dict[str, _Finder] = {}

    def fields_of(value: object, path: str, found: list[NumberAt]) -> None:
        for key, item in value.items() if isinstance(value, dict) else ():
            finder = finders.get(key)
            if finder is None and key in (forms := entries(record)):
                finder = finders[key] = _finder(forms[key])
            if finder is not None:
                finder(item, join(path, key), found)

    return fields_of


@cache
def forms_of(record: TypeForm) -> dict[str, tuple[str, TypeForm]]:
    """Attribute -> (key in the file, type), for all attributes of the file."""
    forms = hints(record)
    return {
        field.name: (_key(field.name, forms[field.name]), forms[field.name])
        for field in fields(record)
        if field.name != PROVENANCE
    }


def _key(name: str, form: TypeForm) -> str:
    inner = _without_none(form)
    while origin_of(inner) in (tuple, dict):
        inner = _without_none(get_args(inner)[1 if origin_of(inner) is dict else 0])
    dimension = dimension_of(inner)
    return name.removesuffix(f"_{dimension.value}") if dimension else name


@cache
def _without_none(form: TypeForm) -> TypeForm:
    if origin_of(form) in (Union, types.UnionType):
        rest = [member for member in get_args(form) if member is not type(None)]
        return rest[0] if len(rest) == 1 else form
    return form

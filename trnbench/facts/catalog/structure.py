"""Tables to frozen records: strict types, units, all faults at once."""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args

from trnbench.errors import Fault, TrnbenchError, did_you_mean
from trnbench.facts.catalog import quantity, schema
from trnbench.facts.catalog.provenance import join
from trnbench.facts.records import MISSING, fields

R = TypeVar("R")
ValueReader: TypeAlias = Callable[[object, str, list[Fault]], Any]
"""Reader of a value at a key path: returns the typed value, or appends faults."""


def structure(table: Mapping[str, object], record: type[R]) -> R | list[Fault]:
    """The record that `table` describes, or every fault in it."""
    faults: list[Fault] = []
    kind: schema.TypeForm = record
    built: R = _reader(kind)(table, "", faults)
    return faults or built


@cache
def _reader(form: schema.TypeForm) -> ValueReader:
    dimension = schema.dimension_of(form)
    if dimension is not None:
        return _leaf(lambda value: quantity.quantity(value, dimension))
    if form in _LEAVES:
        return _leaf(_LEAVES[form])
    origin = schema.origin_of(form)
    if schema.is_record(form):
        return _record_reader(form)
    if origin is Literal:
        return _leaf(lambda value: _choice(value, get_args(form)))
    if isinstance(form, type) and issubclass(form, Enum):
        members = {member.value: member for member in form}
        return _leaf(lambda value: members[_choice(value, tuple(members))])
    if origin is tuple:
        return _list_reader(get_args(form)[0])
    if origin is dict:
        return _table_reader(get_args(form)[1])
    if schema.is_tagged_union(form):
        return _union_reader(schema.tag_field(form), schema.tagged(form))
    if origin in (Union, types.UnionType) and type(None) in get_args(form):
        (there,) = (_reader(kind) for kind in get_args(form) if kind is not type(None))
        return lambda value, *at: None if value is None else there(value, *at)
    raise TypeError(f"no data file can hold {form}")


_LEAVES: Mapping[schema.TypeForm, Callable[[object], object]] = {
    int: quantity.whole,
    float: quantity.number,
    str: quantity.exactly(str, "a text"),
    bool: quantity.exactly(bool, "true or false"),
    datetime.date: quantity.exactly(datetime.date, "a date"),
    quantity.Count: partial(quantity.whole, least=1),
    quantity.Total: partial(quantity.whole, most=quantity.MOST_LARGE),
    quantity.Correlation: quantity.correlation,
    Any: lambda value: value,
}


def _leaf(make: Callable[[object], object]) -> ValueReader:
    def read(value: object, path: str, faults: list[Fault]) -> object:
        try:
            return make(value)
        except quantity.Misfit as error:
            faults.append(Fault(path, str(error)))
            return None

    return read


def _record_reader(record: schema.TypeForm) -> ValueReader:
    forms = {name: form for name, (_, form) in schema.forms_of(record).items()}
    keys = schema.keys_of(record)
    needed = {field.name for field in fields(record) if field.default is MISSING}
    # Readers of fields are made on first use: a record may hold records of its own kind.
    readers: dict[str, ValueReader] = {}
    tagged_by_key = {name: tags for name, form in forms.items() if (tags := schema.by_tag(form))}
    known = schema.entries(record)

    def read(value: Any, path: str, faults: list[Fault]) -> object:  # noqa: ANN401
        before = len(faults)
        given: dict[str, object] = {}
        for name, key in keys.items():
            if name in tagged_by_key:
                given[name] = _under_tags(value, tagged_by_key[name], path, faults)
            elif key in value:
                reader = readers.get(name) or readers.setdefault(name, _reader(forms[name]))
                given[name] = reader(value[key], join(path, key), faults)
            elif name in needed:
                faults.append(Fault(join(path, key), "missing"))
        for key in sorted(value.keys() - known):
            hint = did_you_mean(key, known)
            faults.append(Fault(join(path, key), f"unknown key{hint}"))
        # A record with faulty fields is not made: its own checks would tell of None values.
        if len(faults) > before:
            return None
        for name, tags in tagged_by_key.items():
            values = given[name]
            assert isinstance(values, tuple)
            is_list = schema.origin_of(next(iter(tags.values()))) is tuple
            if not values or (len(values) > 1 and not is_list):
                there = "" if is_list else f"; found {', '.join(_there(value, tags)) or 'none'}"
                message = f"expected one of {', '.join(tags)}{there}"
                faults.append(Fault(path, message))
                return None
            given[name] = values if is_list else values[0]
        try:
            return record(**given)
        except (ValueError, TrnbenchError) as error:
            faults.append(Fault(path, str(error)))
            return None

    return _of_kind(dict, "a table", read)


def _there(value: Mapping[str, object], tags: Mapping[str, schema.TypeForm]) -> list[str]:
    return [tag for tag in tags if tag in value]


def _under_tags(
    value: Mapping[str, object], tags: Mapping[str, schema.TypeForm], path: str, faults: list[Fault]
) -> tuple[object, ...]:
    """Records of a union that stand under their tags, in the order of the union."""
    read: list[object] = []
    for tag in _there(value, tags):
        record = _reader(tags[tag])(value[tag], join(path, tag), faults)
        read += record if isinstance(record, tuple) else [record]
    return tuple(read)


def _of_kind(kind: type, what: str, read: ValueReader) -> ValueReader:
    """A reader that finds a fault in values of another kind, as structures are strict."""

    def checked(value: object, path: str, faults: list[Fault]) -> object:
        if isinstance(value, kind):
            return read(value, path, faults)
        faults.append(Fault(path, f"expected {what}, found {quantity.kind_of(value)}"))
        return None

    return checked


def _list_reader(item: schema.TypeForm) -> ValueReader:
    reader = _reader(item)

    def read(value: Any, path: str, faults: list[Fault]) -> object:  # noqa: ANN401
        return tuple(reader(each, f"{path}[{i}]", faults) for i, each in enumerate(value))

    return _of_kind(list, "a list", read)


def _table_reader(item: schema.TypeForm) -> ValueReader:
    reader = _reader(item)

    def read(value: Any, path: str, faults: list[Fault]) -> object:  # noqa: ANN401
        return {key: reader(each, join(path, key), faults) for key, each in value.items()}

    return _of_kind(dict, "a table", read)


def _union_reader(key: str, classes: Mapping[str, schema.TypeForm]) -> ValueReader:
    def read(value: Any, path: str, faults: list[Fault]) -> object:  # noqa: ANN401
        tag = value.get(key)
        if not isinstance(tag, str) or tag not in classes:
            message = f"`{key}` must be one of {', '.join(classes)}; found {quantity.kind_of(tag)}"
            faults.append(Fault(path, message))
            return None
        rest = {name: item for name, item in value.items() if name != key}
        return _reader(classes[tag])(rest, path, faults)

    return _of_kind(dict, "a table", read)


def _choice(value: object, allowed: tuple[Any, ...]) -> object:
    # True equals 1 in Python, so a choice of numbers would accept a truth value.
    if isinstance(value, bool | list | dict) or value not in allowed:
        values = ", ".join(map(str, allowed))
        hint = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
        raise quantity.Misfit(f"expected one of {values}; found {quantity.kind_of(value)}{hint}")
    return value

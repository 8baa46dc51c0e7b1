"""Tables -> frozen records, through cattrs: strict types, units, all faults at once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, get_args

from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, override

from trnbench.catalog.provenance import join
from trnbench.catalog.quantity import (
    Correlation,
    Misfit,
    correlation,
    exactly,
    kind_of,
    number,
    quantity,
    whole,
)
from trnbench.catalog.schema import (
    TAG,
    TypeForm,
    dimension_of,
    fields_of,
    is_record,
    is_tagged_union,
    keys_of,
    origin_of,
    tagged,
)
from trnbench.errors import Fault, did_you_mean
from trnbench.units import Dimension

R = TypeVar("R")
Hook = Callable[[Any, Any], Any]


def structure(table: Mapping[str, object], record: type[R]) -> R | list[Fault]:
    """Return the record that `table` describes, or every fault in it."""
    try:
        return _converter().structure(table, record)
    except (ClassValidationError, IterableValidationError, Misfit) as error:
        return list(_faults(error, ""))


@cache
def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook(int, lambda value, _: whole(value))
    converter.register_structure_hook(float, lambda value, _: number(value))
    converter.register_structure_hook(str, exactly(str, "a text"))
    converter.register_structure_hook(bool, exactly(bool, "true or false"))
    converter.register_structure_hook(datetime.date, exactly(datetime.date, "a date"))
    converter.register_structure_hook_func(
        lambda form: dimension_of(form) is not None,
        lambda value, form: quantity(value, dimension_of(form) or Dimension.COUNT),
    )
    converter.register_structure_hook_func(
        lambda form: form == Correlation, lambda value, _: correlation(value)
    )
    converter.register_structure_hook_func(lambda form: origin_of(form) is Literal, _choice)
    converter.register_structure_hook_func(
        lambda form: isinstance(form, type) and issubclass(form, Enum), _member
    )
    factories: list[tuple[Callable[[Any], bool], Callable[[Any, Converter], Hook]]] = [
        (is_record, _record_hook),
        (lambda form: origin_of(form) is tuple, _tuple_hook),
        (lambda form: origin_of(form) is dict, _table_hook),
        (is_tagged_union, _union_hook),
    ]
    for applies, factory in factories:
        converter.register_structure_hook_factory(applies, factory)
    return converter


def _record_hook(record: TypeForm, converter: Converter) -> Hook:
    keys = keys_of(record)
    renames: dict[str, Any] = {
        field.name: override(rename=keys[field.name]) if field.name in keys else override(omit=True)
        for field in fields_of(record)
    }
    build: Hook = make_dict_structure_fn(record, converter, **renames)

    def hook(value: object, form: TypeForm) -> object:
        return build(_table(value), form)

    return hook


def _tuple_hook(form: TypeForm, converter: Converter) -> Hook:
    item = get_args(form)[0]

    def hook(value: object, _: TypeForm) -> object:
        if not isinstance(value, list):
            raise Misfit(f"expected a list, found {kind_of(value)}")
        return tuple(_each(enumerate(value), item, converter).values())

    return hook


def _table_hook(form: TypeForm, converter: Converter) -> Hook:
    item = get_args(form)[1]

    def hook(value: object, _: TypeForm) -> object:
        return _each(_table(value).items(), item, converter)

    return hook


class _At(Exception):
    """A fault under one key or index of a collection of like values."""

    def __init__(self, key: object, error: Exception) -> None:
        super().__init__(key)
        self.key = key
        self.error = error


def _each(items: Any, form: TypeForm, converter: Converter) -> dict[Any, object]:  # noqa: ANN401
    built: dict[Any, object] = {}
    wrong: list[Exception] = []
    for key, item in items:
        try:
            built[key] = converter.structure(item, form)
        except (ClassValidationError, IterableValidationError, Misfit) as error:
            wrong.append(_At(key, error))
    if wrong:
        raise IterableValidationError("faults in a collection", wrong, dict)
    return built


def _union_hook(form: TypeForm, converter: Converter) -> Hook:
    classes = tagged(form)

    def hook(value: object, _: TypeForm) -> object:
        table = _table(value)
        tag = table.get(TAG)
        if not isinstance(tag, str) or tag not in classes:
            raise Misfit(f"`{TAG}` must be one of {', '.join(classes)}; found {kind_of(tag)}")
        rest = {key: item for key, item in table.items() if key != TAG}
        return converter.structure(rest, classes[tag])

    return hook


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Misfit(f"expected a table, found {kind_of(value)}")
    return value


def _choice(value: object, form: TypeForm) -> object:
    allowed = get_args(form)
    if isinstance(value, bool | list | dict) or value not in allowed:
        known = ", ".join(map(str, allowed))
        hint = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
        raise Misfit(f"expected one of {known}; found {kind_of(value)}{hint}")
    return value


def _member(value: object, form: TypeForm) -> object:
    by_value = {member.value: member for member in form}
    return by_value[_choice(value, Literal[tuple(by_value)])]


def _faults(error: BaseException, path: str) -> Iterator[Fault]:
    if isinstance(error, ClassValidationError):
        keys = keys_of(error.cl)
        noted, rest = error.group_exceptions()
        for inner, note in noted:
            yield from _faults(inner, join(path, keys.get(note.name, note.name)))
        for inner in rest:
            yield from _faults(inner, path)
    elif isinstance(error, IterableValidationError):
        for inner in error.exceptions:
            yield from _faults(inner, path)
    elif isinstance(error, _At):
        inside = (
            f"{path}[{error.key}]" if isinstance(error.key, int) else join(path, str(error.key))
        )
        yield from _faults(error.error, inside)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = keys_of(error.cl).values()
        for key in sorted(error.extra_fields):
            yield Fault(path=join(path, key), message=f"unknown key{did_you_mean(key, known)}")
    elif isinstance(error, KeyError):
        yield Fault(path=path, message="missing")
    else:
        yield Fault(path=path, message=str(error))

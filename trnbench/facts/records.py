"""Records: classes of named fields, on `msgspec.Struct`. Layer 0: imports no other module.

A subclass of `Record` takes fields by keyword, compares and hashes by value, and is frozen; a
`State` can change. `eq=False` compares by identity, `kw_only=False` takes fields by position,
`weakref=True` allows weak references. `field` makes mutable defaults. `check_sizes` bounds the
whole numbers of a record, those of a `Sized` one when it is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from types import CodeType
from typing import Any, NamedTuple, TypeVar, dataclass_transform, overload

from msgspec import NODEFAULT as MISSING
from msgspec import DecodeError, Struct, StructMeta, ValidationError, convert
from msgspec import field as _field
from msgspec.json import decode as read_json
from msgspec.json import format as format_json
from msgspec.structs import astuple, force_setattr, replace

__all__ = ["MISSING", "Record", "State", "asdict", "astuple", "field", "fields"]
__all__ += ["DecodeError", "force_setattr", "format_json", "read_json", "replace"]

_Value = TypeVar("_Value")


class RecordField(NamedTuple):
    """A field of a record class: its default (MISSING if required) and its metadata."""

    name: str
    default: Any
    metadata: Mapping[str, Any]


class _Noted(NamedTuple):
    made: Any
    metadata: Mapping[str, Any]


@overload
def field(*, default: _Value, metadata: Mapping[str, Any] = ...) -> _Value: ...
@overload
def field(
    *, default_factory: Callable[[], _Value], metadata: Mapping[str, Any] = ...
) -> _Value: ...
@overload
def field(*, metadata: Mapping[str, Any]) -> Any: ...  # noqa: ANN401
def field(*, metadata: Mapping[str, Any] | None = None, **default: Any) -> Any:
    """Declare a field with a default or a default factory, and metadata that `fields` shows."""
    made = _field(**default)
    return _Noted(made, metadata) if metadata else made


class _Form(StructMeta):
    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        space: dict[str, Any],
        **options: Any,  # noqa: ANN401
    ) -> _Form:
        # A struct keeps no metadata of its fields: they are taken out of the class body here.
        noted = {key: value for key, value in space.items() if isinstance(value, _Noted)}
        if any(isinstance(value, cached_property) for value in space.values()):
            options["dict"] = True  # where it puts its value
        space |= {key: value.made for key, value in noted.items()}
        space["__notes__"] = {key: value.metadata for key, value in noted.items()}
        return super().__new__(cls, name, bases, space, **{"kw_only": True, **options})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record(Struct, metaclass=_Form, frozen=True):
    """A frozen record."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class State(Struct, metaclass=_Form):
    """A record whose fields can be set."""


def fields(of: Struct | type[Struct]) -> tuple[RecordField, ...]:
    """Fields of a record or record class, inherited ones first."""
    return _fields(of if isinstance(of, type) else type(of))


@cache
def _fields(kind: type[Struct]) -> tuple[RecordField, ...]:
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    notes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        notes |= vars(base).get("__notes__", {})
    # A struct with fields by position lists the defaults of its last fields alone.
    padded = (*[MISSING] * (len(names) - len(defaults)), *defaults)
    return tuple(
        RecordField(name, default, notes.get(name, {}))
        for name, default in zip(names, padded, strict=True)
    )


def hints(kind: type[Struct]) -> dict[str, Any]:
    """Types of a record's fields by name: `get_type_hints` without a compilation of each."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        for name, form in vars(base).get("__annotations__", {}).items():
            found[name] = eval(compiled(form), names) if isinstance(form, str) else form
    return found


@cache
def compiled(annotation: str) -> CodeType:
    """Code of an annotation; many fields have the same."""
    return compile(annotation, "<annotation>", "eval")


def tag_of(record: Struct | type[Struct]) -> str:
    """The tag of a record in its union; empty without one."""
    return str(record.__struct_config__.tag or "")


def tag_key_of(record: type[Struct]) -> str:
    """Key of the tag in a table of a union of records."""
    return str(record.__struct_config__.tag_field)


def asdict(record: Struct) -> dict[str, Any]:
    """Values by field name; nested records, also in tuples and tables, become tables."""
    return {name: _plain(getattr(record, name)) for name in record.__struct_fields__}


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Struct):
        return asdict(value)
    if value.__class__ in (list, tuple):
        return type(value)([_plain(item) for item in value])
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


MAX_SIZE = 2**31
"""Exclusive bound of all dimensions, layer counts and degrees; products of two fit 64 bits."""
MOST_DEPTHS = 16
"""Most modelled modules of multi-token prediction."""
MAY_BE_ZERO = {"minimum": 0}
"""Metadata of fields whose least value is 0, not 1."""


def check_sizes(record: object) -> None:
    faults = list(_out_of_bounds(record))
    if faults:
        raise ValueError("; ".join(faults))


def _out_of_bounds(record: Any) -> Iterator[str]:  # noqa: ANN401
    for name, minimum in _minima(record.__class__):
        value = getattr(record, name)
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and not minimum <= number < MAX_SIZE:
                yield f"`{name}` must be from {minimum} to {MAX_SIZE - 1}, found {number}"


@cache
def _minima(kind: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401
    return tuple((field.name, field.metadata.get("minimum", 1)) for field in fields(kind))


class Sized(Record):
    """A record whose whole numbers, sizes and counts, are within bounds."""

    def __post_init__(self) -> None:
        check_sizes(self)


def shaped(plain: object, kind: type[_Value]) -> _Value:
    """A record from plain data; ValueError where the data have another form."""
    try:
        return convert(plain, kind)
    except (TypeError, ValidationError) as error:
        raise ValueError(str(error)) from None

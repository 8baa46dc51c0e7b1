"""Dataclasses whose methods cost nothing until they are used. Layer 0: imports no other module.

`dataclass` is that of the standard library to whoever checks types, and does the same. But that one
writes and compiles six methods for each class on import and looks through every annotation, which
took a sixth of a short command: here `__init__` is compiled once a class has more than a few
records, all classes share the rest, and what is annotated is a field unless it is a `ClassVar`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from dataclasses import dataclass as _standard
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass", "replace"]

_FEW = 8
"""Records that are filled field by field in less time than it takes to compile `__init__`."""


def _made(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    init: bool = True,
) -> type | Callable[[type], type]:
    def make(cls: type) -> type:
        made_so_far = 0

        def first_init(self: object, *args: object, **named: object) -> None:
            nonlocal made_so_far
            made_so_far += 1
            if made_so_far > _FEW or not _filled(made, self, args, named):
                made.__init__ = _init_of(made)
                made.__init__(self, *args, **named)

        shared: dict[str, object] = {"__repr__": _repr, "__replace__": _replaced}
        if init:
            shared["__init__"] = first_init
        if eq:
            shared["__eq__"] = _equal
        if frozen:
            shared |= {"__setattr__": _refuse, "__delattr__": _refuse}
            shared |= {"__getstate__": _values, "__setstate__": _fill} if slots else {}
        written = vars(cls)
        if eq and written.get("__hash__") is None:
            shared["__hash__"] = _hash if frozen else None
        for name, method in shared.items():
            if name == "__hash__" or name not in written:
                setattr(cls, name, method)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # the standard one would make up a signature
        made: Any = _with_fields(cls, slots=slots, kw_only=kw_only)
        return made  # type: ignore[no-any-return]

    return make if cls is None else make(cls)


@_standard
class _Standard:
    """Has what the standard library knows its dataclasses and their fields by."""

    a: int


_FIELD: Any = fields(_Standard)[0]._field_type  # type: ignore[attr-defined]
_PARAMETERS: Any = vars(_Standard)["__dataclass_params__"]


def _with_fields(cls: Any, *, slots: bool, kw_only: bool) -> Any:  # noqa: ANN401
    """Return the class with its fields, and those of its bases, known to the standard library."""
    known: dict[str, Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        known |= getattr(base, "__dataclass_fields__", {})
    space = dict(vars(cls))
    own = {
        name: _field(cls, name, form, kw_only)
        for name, form in space.get("__annotations__", {}).items()
        if not str(form).startswith(("ClassVar", "typing.ClassVar"))
    }
    known |= own
    told = {
        "__dataclass_fields__": known,
        "__dataclass_params__": _PARAMETERS,
        "__match_args__": tuple(n for n, one in known.items() if one.init and not one.kw_only),
    }
    if slots:
        return _slotted(cls, known, space | told)
    for name, value in told.items():
        setattr(cls, name, value)
    for name, one in own.items():
        if one.default is not MISSING:
            setattr(cls, name, one.default)
        elif name in space:
            delattr(cls, name)
    return cls


def _field(cls: Any, name: str, form: object, kw_only: bool) -> Field[Any]:  # noqa: ANN401
    default = getattr(cls, name, MISSING)
    if isinstance(default, MemberDescriptorType):  # the slot of a base
        default = MISSING
    made: Any = default if isinstance(default, Field) else field(default=default)
    if made.default.__class__.__hash__ is None:
        raise ValueError(f"{cls.__qualname__}.{name}: every record would share this default")
    made.name, made.type, made._field_type = name, form, _FIELD
    if made.kw_only is MISSING:
        made.kw_only = kw_only
    return made  # type: ignore[no-any-return]


def _slotted(cls: Any, names: Iterable[str], space: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a class like this one whose fields, but those in slots of a base, are in slots."""
    for name in (*names, "__dict__", "__weakref__"):
        space.pop(name, None)
    taken = {slot for base in cls.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    space["__slots__"] = tuple(name for name in names if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


def _replaced(record: Any, /, **changes: object) -> Any:  # noqa: ANN401
    kind = record.__class__
    names, values_of = _given(kind)
    return kind(**{**dict(zip(names, values_of(record), strict=True)), **changes})


if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    dataclass, replace = _made, _replaced


@cache
def _given(cls: Any) -> tuple[list[str], Callable[[object], tuple[object, ...]]]:  # noqa: ANN401
    """Return the names of the fields that `__init__` takes, and what reads these off a record."""
    names = [one.name for one in fields(cls) if one.init]
    return names, _reader(names)


def _filled(cls: Any, record: object, args: Sequence[object], named: dict[str, object]) -> bool:  # noqa: ANN401
    """Set a new record's fields; return False where the arguments are not those of `__init__`."""
    left, taken = len(args), 0
    put = object.__setattr__
    for name, one in cls.__dataclass_fields__.items():
        if left and one.init and not one.kw_only:
            if name in named:
                return False
            value, left = args[-left], left - 1
        elif name in named and one.init:
            value, taken = named[name], taken + 1
        elif one.default is not MISSING:
            value = one.default
        elif one.default_factory is not MISSING:
            value = one.default_factory()
        elif one.init:
            return False
        else:
            continue
        put(record, name, value)
    if left or taken < len(named):
        return False
    if finish := getattr(record, "__post_init__", None):
        finish()
    return True


def _init_of(cls: Any) -> Callable[..., None]:  # noqa: ANN401
    frozen = cls.__setattr__ is _refuse
    given: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    known: dict[str, object] = {"_set": object.__setattr__, "_absent": MISSING}
    for one in fields(cls):
        value = _value_in_init(one, known)
        if one.init:
            default = "" if one.default is MISSING else f"=_default_{one.name}"
            default = default or ("" if one.default_factory is MISSING else "=_absent")
            (named if one.kw_only else given).append(f"{one.name}{default}")
        if value:
            name = one.name
            slot = getattr(cls, name, None)
            if not frozen:
                lines.append(f"self.{name} = {value}")
            elif isinstance(slot, MemberDescriptorType):  # half the time of a look-up by name
                known[f"_slot_{name}"] = slot.__set__
                lines.append(f"_slot_{name}(self, {value})")
            else:
                lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(["self", *given, *(["*"] if named else []), *named])
    exec("\n ".join([f"def __init__({head}):", *(lines or ["pass"])]), known)
    made: Any = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]


def _value_in_init(one: Field[Any], known: dict[str, object]) -> str:
    """Return what a field is set to in `__init__`, or nothing; `known`: names the text may use."""
    name = one.name
    known[f"_default_{name}"] = one.default
    known[f"_make_{name}"] = one.default_factory
    if one.init:
        made = f"_make_{name}() if {name} is _absent else {name}"
        return name if one.default_factory is MISSING else made
    if one.default_factory is not MISSING:
        return f"_make_{name}()"
    return f"_default_{name}" if one.default is not MISSING else ""


@cache
def _compared(cls: Any) -> Callable[[object], tuple[object, ...]]:  # noqa: ANN401
    return _reader([one.name for one in fields(cls) if one.compare])


def _reader(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _equal(self: Any, other: Any) -> bool:  # noqa: ANN401
    kind = self.__class__
    if other.__class__ is not kind:
        return NotImplemented  # type: ignore[no-any-return]
    return bool(_compared(kind)(self) == _compared(kind)(other))


def _hash(self: Any) -> int:  # noqa: ANN401
    return hash(_compared(self.__class__)(self))


@recursive_repr()
def _repr(self: Any) -> str:  # noqa: ANN401
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _values(self: Any) -> list[object]:  # noqa: ANN401
    return [getattr(self, one.name) for one in fields(self)]


def _fill(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)

"""Dataclasses whose methods cost nothing until they are used. Layer 0: imports no other module.

`dataclass` is that of the standard library to whoever checks types, and does the same. But that one
writes and compiles six methods for each class on import, which took a sixth of a short command:
here `__init__` is compiled once a class has more than a few records, and all classes share the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
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

        shared: dict[str, object] = {"__repr__": _repr}
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
        plain = _standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        made: Any = plain(cls)
        return made  # type: ignore[no-any-return]

    return make if cls is None else make(cls)


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
    names = [field.name for field in fields(cls) if field.init]
    return names, _reader(names)


def _filled(cls: Any, record: object, args: Sequence[object], named: dict[str, object]) -> bool:  # noqa: ANN401
    """Set a new record's fields; return False where the arguments are not those of `__init__`."""
    left, taken = len(args), 0
    for field in fields(cls):
        name = field.name
        if field.init and not field.kw_only and left:
            if name in named:
                return False
            value, left = args[-left], left - 1
        elif field.init and name in named:
            value, taken = named[name], taken + 1
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        elif field.default is not MISSING:
            value = field.default
        elif field.init:
            return False
        else:
            continue
        object.__setattr__(record, name, value)
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
    for field in fields(cls):
        value = _value_in_init(field, known)
        if field.init:
            default = "" if field.default is MISSING else f"=_default_{field.name}"
            default = default or ("" if field.default_factory is MISSING else "=_absent")
            (named if field.kw_only else given).append(f"{field.name}{default}")
        if value:
            name = field.name
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


def _value_in_init(field: Field[Any], known: dict[str, object]) -> str:
    """Return what a field is set to in `__init__`, or nothing; `known`: names the text may use."""
    name = field.name
    known[f"_default_{name}"] = field.default
    known[f"_make_{name}"] = field.default_factory
    if field.init:
        made = f"_make_{name}() if {name} is _absent else {name}"
        return name if field.default_factory is MISSING else made
    if field.default_factory is not MISSING:
        return f"_make_{name}()"
    return f"_default_{name}" if field.default is not MISSING else ""


@cache
def _compared(cls: Any) -> Callable[[object], tuple[object, ...]]:  # noqa: ANN401
    return _reader([field.name for field in fields(cls) if field.compare])


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
    return [getattr(self, field.name) for field in fields(self)]


def _fill(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

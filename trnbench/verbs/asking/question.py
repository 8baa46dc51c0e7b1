"""A question: a frozen record, each field of which is an option, written once.

    class MatrixQuestion(Question):
        '''Time matrix products on chips.'''

        suite: str | None = option("A matrix suite.", completes=("matrix",))
        cores: Cores = option("Physical cores to use.", default=1, parse=read_cores)

The options of the command line, the arguments of the Python function, the inputs that an answer
repeats and the command line that asks again are all read from the fields. A field is typed as what
its text is read to. It has the name of its option, but for its unit (`deadline_s`), or says `name`.
What its type tells need not be said: a switch is off, several are none, the rest is None where it
may be. A field without `option` or `group` belongs to the record alone: what settling found out.

Nothing here imports numpy: a question is read before `--help` is shown.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
)

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.records import compiled
from trnbench.verbs.asking.option import METAVARS, Given, Option, Several

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class Declared:
    """Arguments of `option`; the option itself is made once the field has its name and type."""

    def __init__(self, **about: Any) -> None:  # noqa: ANN401
        self.about = about

    def option(self, field: str, annotation: str, space: Mapping[str, Any]) -> Option:
        """Option of a field that is annotated with this type."""
        about = dict(self.about)
        kind, choices, listed = _kind_of(_evaluated(annotation, space))
        if about["read"] is None and about["parse"] is None:
            about["choices"] = about["choices"] or choices
        else:
            kind = str
        if about["default"] is ...:
            several = annotation.startswith("tuple[") and not annotation.endswith("| None")
            nothing = about["required"] or about["factory"] or annotation.endswith("| None")
            if not (nothing or several or annotation == "bool"):
                raise TypeError(f"an option without a default: {about['help']}")
            about["default"] = () if several else None if nothing else False
        reader = getattr(about["read"], "func", about["read"])
        about["metavar"] = about["metavar"] or METAVARS.get(reader)
        about["name"] = about["name"] or _UNIT.sub("", field)
        about["several"] = about["several"] or ("commas" if listed else "")
        return Option(field=field, kind=kind, **about)


_UNIT = re.compile("_(s|usd|w)$")
"""The unit in the name of a field, which its option has in its value."""


def option(
    help: str,
    *,
    default: Any = ...,  # noqa: ANN401 - the type of the field
    factory: Callable[[], Any] | None = None,
    name: str = "",
    read: Callable[[str], Callable[[str], Any]] | None = None,
    parse: Callable[[str], Any] | None = None,
    write: Callable[[Any], str] | None = None,
    choices: tuple[str, ...] = (),
    several: Several = "",
    metavar: str | None = None,
    completes: tuple[str, ...] = (),
    argument: bool = False,
    required: bool = False,
    shown: bool = True,
    short: str = "",
    spelled: str = "",
    variable: str | None = None,
    fills: Callable[[Path], Mapping[str, Any]] | None = None,
    bounds: tuple[int, int | None] | None = None,
) -> Any:  # noqa: ANN401 - the type of the field
    """Declare a field of a question as an option.

    `factory` makes the value of an option that is not given. `read` makes a parser from the
    option's name, such as `parsing.duration`; `parse` is a parser. Without either the field's type
    says how a text is read. `write` returns the text of a value where the type does not tell.
    `several` says how more than one value is given: between "commas" (the usual where the type is a
    tuple), "repeated", or by "one text". `completes` names sections of the catalogue, or
    "stacks" of training, or of "links", or "kinds of specs", "kinds of workloads". `argument`:
    written without its name. `required`: refused where it is not given. Not `shown`: no option of
    the command line. `fills` reads options that are not given from the file that this one names.
    """
    return Declared(**locals())


class Group(Protocol):
    """Options that make one value together, in one field of a question."""

    def options(self) -> Mapping[str, Option]:
        """The options by name."""

    def value(self, given: Given) -> Any:  # noqa: ANN401
        """The value that the options given make."""

    def said(self, value: Any) -> dict[str, Any]:  # noqa: ANN401
        """The options that make this value."""

    def inputs(self, value: Any) -> Mapping[str, object]:  # noqa: ANN401
        """The value as plain data."""


class _Nested:
    """A question inside a question: its options stand among the outer one's."""

    def __init__(self, kind: type[Question]) -> None:
        self.kind = kind

    def options(self) -> Mapping[str, Option]:
        return self.kind.options()

    def value(self, given: Given) -> Question:
        return self.kind.read(given)

    def said(self, value: Question) -> dict[str, Any]:
        return value.said()

    def inputs(self, value: Question) -> Mapping[str, object]:
        return value.inputs()


def group(of: type[Question] | Group) -> Any:  # noqa: ANN401 - the type of the field
    return _Nested(of) if isinstance(of, type) else of


@dataclass_transform(eq_default=True, frozen_default=True, kw_only_default=True)
class Question:
    """Question to a verb. Frozen; all fields by name; equal by value."""

    _fields: ClassVar[dict[str, Any]] = {}
    """Every field, those of bases first: an Option, a Group, or a plain default."""

    def __init_subclass__(cls) -> None:
        """Read the fields of the class."""
        fields: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get("_fields", {})
        space = vars(sys.modules[cls.__module__])
        for name, form in cls.__dict__.get("__annotations__", {}).items():
            if str(form).startswith("ClassVar"):
                continue
            if hasattr(Question, name):
                raise TypeError(f"{cls.__name__}.{name}: every question has that already")
            default = cls.__dict__.get(name, ...)
            declared = isinstance(default, Declared)
            fields[name] = default.option(name, str(form), space) if declared else default
            if name in cls.__dict__:
                delattr(cls, name)
        cls._fields = fields

    def __init__(self, **values: Any) -> None:  # noqa: ANN401
        """Take the values given, and defaults for the others."""
        for name, declared in self._fields.items():
            if name in values:
                value = values.pop(name)
            elif isinstance(declared, Option):
                value = declared.default if declared.factory is None else declared.factory()
            elif hasattr(declared, "options"):
                value = declared.value({})
            elif declared is ...:
                raise TypeError(f"{type(self).__name__} needs {name}")
            else:
                value = declared
            self.__dict__[name] = value
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Refuse values that do not go together."""

    def settled(self, catalog: Catalog) -> Self:
        """Return the question with what the catalogue or usual values bring to it."""
        return self

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """Return the options given with those that one of them brings, before they are read."""
        return given

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Return every option by its name."""
        found: dict[str, Option] = {}
        for field in cls._fields.values():
            if isinstance(field, Option):
                found[field.name] = field
            elif hasattr(field, "options"):
                found |= field.options()
        return found

    @classmethod
    def read(cls, given: Given) -> Self:
        """Return the question of options by name: texts are read, values taken as they are."""
        left, values = dict(given), {}
        for field, one in cls._fields.items():
            if isinstance(one, Option):
                if left.get(one.name) is not None:
                    values[field] = one.value(left[one.name])
                elif one.required:
                    raise InputError(f"give {one.flag}{': ' if one.help else ''}{one.help}")
                left.pop(one.name, None)
            elif hasattr(one, "options"):
                mine = {name: left.pop(name) for name in one.options() if name in left}
                values[field] = one.value(mine)
            elif field in left:
                values[field] = left.pop(field)
        for name in left:
            raise UnknownNameError("option", name, cls.options())
        return cls(**values)

    @classmethod
    def asked(cls, catalog: Catalog, given: Given) -> Self:
        """Return the settled question that options ask."""
        from trnbench.verbs.asking.names import understood

        read, _ = understood(cls.options(), given, catalog)
        return cls.read(cls.filled(read, catalog)).settled(catalog)

    def but(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return the question with some fields changed."""
        return type(self)(**{**{name: self.__dict__[name] for name in self._fields}, **changes})

    def said(self) -> dict[str, Any]:
        """Return the options that ask this again, as texts: those that are not at their default."""
        values: dict[str, Any] = {}
        for field, declared in self._fields.items():
            value = getattr(self, field)
            if isinstance(declared, Option):
                if value != declared.default and declared.shown:
                    values[declared.name] = declared.text(value)
            elif hasattr(declared, "options"):
                values |= declared.said(value)
        return values

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, for outputs that repeat what was asked."""
        values: dict[str, object] = {}
        for field, declared in self._fields.items():
            value = getattr(self, field)
            values |= (
                declared.inputs(value) if hasattr(declared, "inputs") else {field: _plain(value)}
            )
        return values

    def __eq__(self, other: object) -> bool:
        """Compare field by field."""
        return type(other) is type(self) and all(
            getattr(other, name) == value
            for name, value in self.__dict__.items()
            if name in self._fields
        )

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[name] for name in self._fields))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(_shown(self))})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to {name}: a question is frozen; use but({name}=...)")


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime.date) else value


def _shown(question: Question) -> Iterator[str]:
    for name, field in question._fields.items():
        value = getattr(question, name)
        if not (isinstance(field, Option) and value == field.default):
            yield f"{name}={value!r}"


def _evaluated(form: str, space: Mapping[str, Any]) -> object:
    """Return an annotation; None where its names are imported for the type checker alone."""
    try:
        return eval(compiled(form), dict(space))
    except NameError:
        return None


def _kind_of(form: object) -> tuple[type, tuple[str, ...], bool]:
    """Return the type that one text of an option is read to, all its values, and if it has many."""
    if get_origin(form) is Literal:
        return str, get_args(form), False
    if get_origin(form) is tuple:
        kind, choices, _ = _kind_of(get_args(form)[0])
        return kind, choices, True
    if isinstance(form, type):
        return (form if form in (bool, int, float, Path) else str), (), False
    several = [member for member in get_args(form) if member is not type(None)]
    return _kind_of(several[0]) if several else (str, (), False)

"""Questions -> options of the command line: the one place that says them to Typer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from inspect import Parameter
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from trnbench.errors import TrnbenchError
from trnbench.facts import parsing
from trnbench.verbs.asking.option import Option
from trnbench.verbs.asking.question import Question


def completes(
    sections: Sequence[str], *, several: bool = False, prefix: str = "", cut: bool = False
) -> Callable[[str], list[str]]:
    """Return a completion function for the names in some sections of the catalogue.

    With `several`, a name behind a comma is completed too, by one that is not yet there. `prefix`:
    only names that begin so, without it if `cut`.
    """

    def complete(incomplete: str) -> list[str]:
        from trnbench.facts.catalog.search import open_catalog

        try:
            catalog = open_catalog()
        except TrnbenchError:
            return []
        before, comma, begun = incomplete.rpartition(",") if several else ("", "", incomplete)
        taken = {name.partition(":")[0] for name in before.split(",")}
        names = {entry.name for section in sections for entry in catalog.entries(section)}
        found = {name for name in names if name.startswith(prefix)} - taken
        offered = {name.removeprefix(prefix) for name in found} if cut else found
        return [f"{before}{comma}{name}" for name in sorted(offered) if name.startswith(begun)]

    return complete


def completes_stacks() -> Callable[[str], list[str]]:
    """Return a completion function for training stacks, as --stack takes them."""
    calibrated = completes(("calibration",), prefix="training-", cut=True)
    software = completes(("software",))

    def complete(incomplete: str) -> list[str]:
        return sorted({*calibrated(incomplete), *software(incomplete)})

    return complete


Command = Callable[..., int | None]
Q = TypeVar("Q", bound=Question)


def asks(*kinds: type[Question], ahead_of: str = "") -> Callable[[Command], Command]:
    """Return a decorator: a command takes these questions in place of their options.

    The command takes a question of each kind last: what is asked, and how the answer is shown.
    Nothing of them is settled yet. Before them it may take `out` and `catalog`. An option of both
    stands where the last has it. The options of later kinds stand ahead of an option of the first
    where it is named, else last.
    """

    def decorate(command: Command) -> Command:
        head = list(inspect.signature(command).parameters.values())[: -len(kinds)]
        shown: dict[str, Option] = {}
        for one in (one for kind in kinds for one in _shown(kind)):
            shown.pop(one.name, None)
            shown[one.name] = one
        later = [one.name for kind in kinds[1:] for one in _shown(kind)]
        names = [name for name in shown if name not in later]
        place = names.index(ahead_of) if ahead_of else len(names)
        names[place:place] = dict.fromkeys(later)
        parameters = [parameter_of(shown[name]) for name in names]

        @functools.wraps(command)
        def run(*before: Any, **options: Any) -> int | None:  # noqa: ANN401
            before += tuple(options[one.name] for one in head[len(before) :])
            questions = []
            for kind in kinds:
                given = {one.name: _given(one, options[_place(one)]) for one in _shown(kind)}
                with_catalog = len(before) > 1
                questions.append(
                    kind.read(kind.filled(given, before[1]) if with_catalog else given)
                )
            return command(*before, *questions)

        return with_signature(run, [*head, *parameters])

    return decorate


def taken(kind: type[Q], options: dict[str, Any]) -> Q:
    return kind.read({o.name: _given(o, options.pop(_place(o), None)) for o in _shown(kind)})


def _shown(kind: type[Question]) -> list[Option]:
    return [one for one in kind.options().values() if one.shown]


def parameter_of(one: Option, **about: Any) -> Parameter:  # noqa: ANN401
    """Return the parameter that Typer makes an option of; `about` is what it is told besides."""
    about |= {"help": one.help, "metavar": one.metavar, "envvar": one.variable}
    if one.completes or (one.choices and one.metavar is not None):
        about["autocompletion"] = _completion(one)
    if one.fills is not None:
        about |= {"is_eager": True, "callback": _filling(one.fills)}
    if one.bounds is not None:
        about |= {"min": one.bounds[0], "max": one.bounds[1]}
    kind, default = _type_of(one), _default(one)
    if isinstance(default, str) and issubclass(kind, StrEnum):
        default = kind(default)
    form: Any = kind if default is not None else kind | None
    if one.required:
        form, default = kind, Parameter.empty
    if one.argument:
        if one.several:
            form = list[kind] if one.required else list[kind] | None  # type: ignore[valid-type]
        return typed_option(_place(one), form, typer.Argument(**about), default)
    if one.read is parsing.deadline:
        about |= {"callback": _moving(one.name)}
    if one.several == "repeated" or one.read is parsing.deadline:
        form, default = list[kind] | None, None  # type: ignore[valid-type]
    flag = one.flag
    if one.is_switch and one.default is not False:
        flag = f"{flag}/{flag.replace('--', '--no-', 1)}"
    names = (flag, one.short) if one.short else (flag,)
    return typed_option(_place(one), form, typer.Option(*names, **about), default)


def _place(one: Option) -> str:
    """Return the name of the parameter; an option may be called as no parameter is: --with."""
    return f"{one.name}_" if iskeyword(one.name) else one.name


def _type_of(one: Option) -> Any:  # noqa: ANN401
    if one.choices and one.metavar is None and one.several in ("", "one text"):
        return StrEnum(one.name, {name.upper(): name for name in one.choices})
    return one.kind if one.argument or one.several in ("", "repeated") else str


def _default(one: Option) -> Any:  # noqa: ANN401
    """Return the default as Typer shows it; None where the help says it, if there is one."""
    said = "default:" in one.help and one.bounds is None
    if one.default is None or one.default == () or said:
        return False if one.is_switch and one.default is False else None
    if not one.default and one.kind is not bool and one.bounds is None:
        return None
    if one.kind in (bool, int, float) and not one.several:
        return one.default
    return one.text(one.default)


def _completion(one: Option) -> Callable[[str], list[str]]:
    if one.choices:
        return lambda incomplete: [name for name in one.choices if name.startswith(incomplete)]
    if one.completes == ("stacks",):
        return completes_stacks()
    if one.completes == ("links",):
        return completes(("calibration",), prefix="collective-")
    if one.completes[0] in _WORDS:
        return _completes_words(one.completes[0])
    return completes(one.completes, several=one.several == "commas" and not one.argument)


_WORDS = ("kinds of specs", "kinds of workloads", "topics")


def _completes_words(which: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        from trnbench.facts.catalog.concepts import topic_titles
        from trnbench.facts.catalog.search import SPEC_SECTIONS, WORKLOAD_SECTIONS

        if which == "topics":
            words: Iterable[str] = topic_titles()
        else:
            words = SPEC_SECTIONS if which == "kinds of specs" else WORKLOAD_SECTIONS
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _filling(fills: Callable[[Path], Mapping[str, Any]]) -> Callable[..., Path | None]:
    """Return Typer's callback for a file that stands for the options that are not given."""

    def fill(context: typer.Context, path: Path | None) -> Path | None:
        if path is not None and not context.resilient_parsing:
            lists = {one.name for one in context.command.params if getattr(one, "multiple", False)}
            filled = {
                name: [value] if name in lists and isinstance(value, str) else value
                for name, value in fills(path).items()
            }
            context.default_map = {**(context.default_map or {}), **filled}
        return path

    return fill


def _moving(name: str) -> Callable[..., list[str] | None]:
    """Callback of an option whose later values move the first, or that of a file: +15d."""

    def move(context: typer.Context, texts: list[str] | None) -> list[str] | None:
        known = (context.default_map or {}).get(name) or ()
        moved = "".join(known)
        for text in texts or ():
            moved = str(parsing.moved_text(moved, text))
        return [moved] if texts else None

    return move


def _given(one: Option, value: Any) -> Any:  # noqa: ANN401
    """The value of an option as its question reads it."""
    if one.read is parsing.deadline and isinstance(value, list):
        return value[0] if value else None
    return value.value if isinstance(value, StrEnum) else value


def with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def typed_option(name: str, kind: Any, option: Any, default: object = None) -> Parameter:  # noqa: ANN401
    form = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=form)

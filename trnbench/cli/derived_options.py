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
from trnbench.facts.records import replace
from trnbench.verbs.asking.names import understood
from trnbench.verbs.asking.option import Given, Option
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
        for option in (option for kind in kinds for option in _shown(kind)):
            shown.pop(option.name, None)
            shown[option.name] = option
        later = [option.name for kind in kinds[1:] for option in _shown(kind)]
        names = [name for name in shown if name not in later]
        place = names.index(ahead_of) if ahead_of else len(names)
        names[place:place] = dict.fromkeys(later)
        parameters = [parameter_of(shown[name]) for name in names]

        @functools.wraps(command)
        def run(*before: Any, **options: Any) -> int | None:  # noqa: ANN401
            before += tuple(options[option.name] for option in head[len(before) :])
            questions = []
            for kind in kinds:
                given: Given = {
                    option.name: _given(option, options[_place(option)]) for option in _shown(kind)
                }
                if len(before) > 1:
                    out, catalog, *_ = before
                    given, taken = understood(kind.options(), given, catalog)
                    if taken:
                        before = (replace(out, taken=out.taken | taken), *before[1:])
                    given = kind.filled(given, catalog)
                questions.append(kind.read(given))
            return command(*before, *questions)

        return with_signature(run, [*head, *parameters])

    return decorate


def taken(kind: type[Q], options: dict[str, Any]) -> Q:
    return kind.read({o.name: _given(o, options.pop(_place(o), None)) for o in _shown(kind)})


def _shown(kind: type[Question]) -> list[Option]:
    return [option for option in kind.options().values() if option.shown]


def parameter_of(option: Option, **about: Any) -> Parameter:  # noqa: ANN401
    """Return the parameter that Typer makes an option of; `about` is what it is told besides."""
    about |= {"help": option.help, "metavar": option.metavar, "envvar": option.variable}
    if option.completes or (option.choices and option.metavar is not None):
        about["autocompletion"] = _completion(option)
    if option.fills is not None:
        about |= {"is_eager": True, "callback": _filling(option.fills)}
    if option.bounds is not None:
        about |= {"min": option.bounds[0], "max": option.bounds[1]}
    kind, default = _type_of(option), _default(option)
    if isinstance(default, str) and issubclass(kind, StrEnum):
        default = kind(default)
    form: Any = kind if default is not None else kind | None
    if option.required:
        form, default = kind, Parameter.empty
    if option.argument:
        if option.several:
            form = list[kind] if option.required else list[kind] | None  # type: ignore[valid-type]
        return typed_option(_place(option), form, typer.Argument(**about), default)
    if option.read is parsing.deadline:
        about |= {"callback": _moving(option.name)}
    if option.several == "repeated" or option.read is parsing.deadline:
        form, default = list[kind] | None, None  # type: ignore[valid-type]
    flag = option.flag
    if option.is_switch and option.default is not False:
        flag = f"{flag}/{flag.replace('--', '--no-', 1)}"
    names = (flag, option.short) if option.short else (flag,)
    return typed_option(_place(option), form, typer.Option(*names, **about), default)


def _place(option: Option) -> str:
    """Return the name of the parameter; an option may be called as no parameter is: --with."""
    return f"{option.name}_" if iskeyword(option.name) else option.name


def _type_of(option: Option) -> Any:  # noqa: ANN401
    if option.choices and option.metavar is None and option.several in ("", "one text"):
        return StrEnum(option.name, {name.upper(): name for name in option.choices})
    return option.kind if option.argument or option.several in ("", "repeated") else str


def _default(option: Option) -> Any:  # noqa: ANN401
    """Return the default as Typer shows it; None where the help says it, if there is one."""
    said = "default:" in option.help and option.bounds is None
    if option.default is None or option.default == () or said:
        return False if option.is_switch and option.default is False else None
    if not option.default and option.kind is not bool and option.bounds is None:
        return None
    if option.kind in (bool, int, float) and not option.several:
        return option.default
    return option.text(option.default)


def _completion(option: Option) -> Callable[[str], list[str]]:
    if option.choices:
        return lambda incomplete: [name for name in option.choices if name.startswith(incomplete)]
    if option.completes == ("stacks",):
        return completes_stacks()
    if option.completes == ("links",):
        return completes(("calibration",), prefix="collective-")
    if option.completes[0] in _WORDS:
        return _completes_words(option.completes[0])
    return completes(option.completes, several=option.several == "commas" and not option.argument)


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
            lists = {
                parameter.name
                for parameter in context.command.params
                if getattr(parameter, "multiple", False)
            }
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
        before = (context.default_map or {}).get(name) or ()
        moved = "".join(before)
        for text in texts or ():
            moved = str(parsing.moved_text(moved, text))
        return [moved] if texts else None

    return move


def _given(option: Option, value: Any) -> Any:  # noqa: ANN401
    """The value of an option as its question reads it."""
    if option.read is parsing.deadline and isinstance(value, list):
        return value[0] if value else None
    return value.value if isinstance(value, StrEnum) else value


def with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def typed_option(name: str, kind: Any, option: Any, default: object = None) -> Parameter:  # noqa: ANN401
    form = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=form)

"""A verb of the Python API: a function whose arguments are the options of a question."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from keyword import iskeyword
from typing import Any, Protocol, TypeVar, cast

from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.processes import collected_seldom
from trnbench.verbs.asking.option import Option
from trnbench.verbs.asking.question import Question
from trnbench.verbs.asking.use_case import Cancel, Progress, Watch, never, quiet

Q = TypeVar("Q", bound=Question)
A_co = TypeVar("A_co", covariant=True)
A = TypeVar("A")
Q_co = TypeVar("Q_co", bound=Question, covariant=True)
_CATALOG = "Catalog | None"
NO_OPTIONS = ("catalog", "progress", "cancel", "workers", "watch")
"""Arguments of every verb that say where to look and who hears of progress, not what is asked."""


class AskedVerb(Protocol[Q_co, A_co]):
    """A function that answers; `request` returns the question that it would answer."""

    __doc__: str | None

    def __call__(self, *arguments: Any, **options: Any) -> A_co:  # noqa: ANN401
        """Answer."""

    def request(self, *arguments: Any, **options: Any) -> Q_co:  # noqa: ANN401
        """Return the settled question that the arguments ask."""


def verb_of(name: str, question: type[Q], run: Callable[..., A]) -> AskedVerb[Q, A]:
    """Function that asks `run(catalog, question)`; documented as `run`, with a line an option.

    Options written without a name may be given by place. What a `run` with a `Watch` hears comes by
    its parts.
    """
    options = question.options()
    names = {argument_name(option): option.name for option in options.values()}
    places = [option.name for option in options.values() if option.argument]
    parameters = inspect.signature(run).parameters
    watched = "watch" in parameters and str(parameters["watch"].annotation).startswith("Watch")
    parameters = inspect.signature(_watch).parameters if watched else parameters

    def request(*arguments: Any, catalog: Catalog | None = None, **given: Any) -> Q:  # noqa: ANN401
        if len(arguments) > len(places):
            raise TypeError(f"{name}() takes {len(places)} arguments by place")
        named = {names.get(name, name): value for name, value in given.items()}
        asked = {**dict(zip(places, arguments, strict=False)), **named}
        return question.asked(catalog or open_catalog(), asked)

    def verb(*arguments: Any, catalog: Catalog | None = None, **given: Any) -> A:  # noqa: ANN401
        catalog = catalog or open_catalog()
        hooks = {
            hook: given.pop(hook) for hook in NO_OPTIONS if hook in given and hook in parameters
        }
        hooks = {"watch": _watch(**hooks)} if watched else hooks
        with collected_seldom():
            return run(catalog, request(*arguments, catalog=catalog, **given), **hooks)

    verb.__name__ = verb.__qualname__ = name
    verb.__module__ = run.__module__
    lines = [f"    {argument_name(option)}: {option.help}" for option in options.values()]
    verb.__doc__ = "\n".join([inspect.getdoc(run) or "", "", "Options:", "", *lines, ""])
    answer = inspect.signature(run).return_annotation
    hooks = [parameters[hook] for hook in NO_OPTIONS[1:] if hook in parameters]
    verb.__signature__ = signature_of(options, answer, hooks)  # type: ignore[attr-defined]
    verb.request = request  # type: ignore[attr-defined]
    return cast("AskedVerb[Q, A]", verb)


def _watch(*, progress: Progress = quiet, cancel: Cancel = never, workers: int = 1) -> Watch:
    return Watch(progress=progress, cancel=cancel, workers=workers)


def signature_of(
    options: Mapping[str, Option], answer: object, hooks: Sequence[Parameter] = ()
) -> inspect.Signature:
    """Return the signature of a function that takes options, a catalogue and hooks by name."""
    catalog = Parameter("catalog", Parameter.KEYWORD_ONLY, default=None, annotation=_CATALOG)
    arguments = [_argument(option) for option in options.values()]
    arguments.sort(key=lambda argument: argument.kind)
    own = [*arguments, catalog, *(hook.replace(kind=Parameter.KEYWORD_ONLY) for hook in hooks)]
    return inspect.Signature(own, return_annotation=answer)


def argument_name(option: Option) -> str:
    """Name of the argument of an option; that of its field for --with, a word of Python's."""
    return option.field if iskeyword(option.name) else option.name


def _argument(option: Option) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD if option.argument else Parameter.KEYWORD_ONLY
    form = option.kind.__name__ if option.kind in (bool, str) else f"{option.kind.__name__} | str"
    form = f"str | Sequence[{form}]" if option.several in ("commas", "repeated") else form
    form = f"{form} | None" if option.default is None else form
    default = option.text(option.default) if option.several == "one text" else option.default
    default = Parameter.empty if option.required else default
    return Parameter(argument_name(option), kind, default=default, annotation=form)

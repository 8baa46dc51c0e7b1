"""A layout with open knobs (a user's settings, or a measured row), and the texts of knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import sequences_per_sample
from trnbench.facts.workload.layout import ANY, DEGREES, KNOBS, RANK_DEGREES, Knob, Layout, Value

_ON_REQUEST = tuple(name for name, knob in KNOBS.items() if knob.on_request)
ALWAYS_SHOWN = ("tp", "pp", "dp")
"""Degrees that are shown even at 1."""


class PartialLayout:
    """A subset of a layout's knobs; open knobs are to be chosen, or unknown.

    `capacity_factor` None means that no token is dropped: a value, not an open knob. `wanted` are
    open knobs given as `any`, except those that every search chooses anyway. Values are checked
    once they are part of a `Layout`.
    """

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        for name in given:
            if name not in KNOBS:
                raise TypeError(f"a layout has no {name!r}; it has {', '.join(KNOBS)}")
        known = {name: given[name] for name in KNOBS if name in given}
        self._by_name: Mapping[str, Value] = {
            name: value for name, value in known.items() if value is not None and value != ANY
        }
        self.pairs: Final[tuple[tuple[str, Value], ...]] = tuple(self._by_name.items())
        self.wanted: Final = tuple(name for name in _ON_REQUEST if known.get(name) == ANY)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialLayout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.said.items())
        return f"PartialLayout({said})"

    @property
    def _key(self) -> tuple[object, ...]:
        return self.pairs, self.wanted

    @classmethod
    def of(cls, layout: Layout) -> PartialLayout:
        """All knobs of a layout with scalar degrees; drawn stages have no `stage_split`."""
        values = {name: getattr(layout, name) for name in KNOBS}
        if layout.pipeline_layout is not None:
            del values["stage_split"]
        return cls(**values | {name: int(values[name]) for name in DEGREES})

    @property
    def given(self) -> Mapping[str, Value]:
        return dict(self.pairs)

    @property
    def said(self) -> Mapping[str, Value]:
        """Set values, and `any` for knobs that a search has to choose."""
        given = {**self.given, **dict.fromkeys(self.wanted, ANY)}
        return {name: given[name] for name in KNOBS if name in given}

    @property
    def open(self) -> tuple[str, ...]:
        given = self.given
        return tuple(name for name in KNOBS if name not in given)

    @property
    def plain(self) -> dict[str, Value | None]:
        given = self.given
        return {name: given.get(name) for name in KNOBS}

    def __getitem__(self, name: str) -> Value | None:
        if name not in KNOBS:
            raise KeyError(name)
        return self._by_name.get(name)

    def number(self, name: str) -> int | None:
        value = self[name]
        assert value is None or isinstance(value, int), name
        return value

    def degree(self, name: str) -> int:
        """Value of a whole-number knob; 1 if open."""
        return self.number(name) or 1

    def text(self, name: str) -> str | None:
        value = self[name]
        assert value is None or isinstance(value, str), name
        return value

    @property
    def sample_tokens(self) -> int:
        """Tokens of a sample, over all its sequences; 1 if the sequence is open."""
        return self.degree("sequence") * sequences_per_sample(self["job"])

    @property
    def replica_ranks(self) -> int:
        return self.degree("tp") * self.degree("pp") * self.degree("cp")

    def changed(self, **knobs: Value | None) -> PartialLayout:
        """A copy with other values of some knobs; None opens a knob."""
        return PartialLayout(**{**self.said, **knobs})

    def complete(self, defaults: Mapping[str, Value | None] | None = None) -> Layout:
        """The layout, with open knobs from `defaults`, or else the table's defaults.

        Batch, sequence and precision have no table default: left open they are a TypeError.
        """
        return Layout(**{**(defaults or {}), **self.given})  # type: ignore[arg-type]


class TrainCase(Record):
    """A model on `nodes` instances; what its layout leaves open is chosen."""

    model: str
    instance: str
    nodes: int
    layout: PartialLayout
    label: str = ""

    def inputs(self) -> dict[str, object]:
        where = {"model": self.model, "instance": self.instance, "nodes": self.nodes}
        return {**where, **self.layout.said}


def shown_degrees(layouts: Iterable[PartialLayout]) -> tuple[str, ...]:
    """Rank degrees worth showing: tp, pp, dp, and those above 1 in any layout."""
    several = {name for layout in layouts for name in RANK_DEGREES if layout.degree(name) > 1}
    return tuple(name for name in RANK_DEGREES if name in several or name in ALWAYS_SHOWN)


SWITCH = {"on": True, "off": False}


def knob_parser(knob: Knob, what: str) -> Callable[[str], Value]:
    """Parser of a knob's values, and of `any` where a search may choose."""
    parse = value_parser(knob, what)
    if not (knob.searched or knob.on_request):
        return parse
    return lambda text: ANY if text.strip() == ANY else parse(text)


def value_parser(knob: Knob, what: str) -> Callable[[str], Value]:
    """Parser of a knob's values, named `what` in errors."""
    if knob.tokens:
        return parsing.sequence(what)
    if knob.counts:
        return parsing.whole(what, least=knob.least, most=knob.most)
    if knob.kind is float:
        return parsing.count(what)
    if (form := knob.form) is not None:
        return lambda text: _formed(form, what, text)
    texts = knob_texts(knob)
    if not texts:
        return str
    parse = parsing.one_of(what, texts)
    if knob.kind is bool:
        return lambda text: SWITCH[parse(text)]
    return lambda text: knob.kind(parse(text))


def _formed(form: Callable[[str], str], what: str, text: str) -> str:
    try:
        return form(text)
    except ValueError as fault:
        raise InputError(f"{what}: {fault}") from fault


def knob_texts(knob: Knob) -> tuple[str, ...]:
    """Texts of a knob's values, preferred ones first; empty for unlisted values."""
    if knob.kind is bool:
        return tuple(SWITCH)
    return tuple(map(str, knob.preferred or knob.choices))

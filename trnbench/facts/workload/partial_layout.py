"""A layout of which some knobs are open: what a user settled, or what a measured row says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trnbench.facts.workload.jobs import sequences_per_sample
from trnbench.facts.workload.layout import ANY, DEGREES, KNOBS, RANK_DEGREES, Layout, Value

ALWAYS_SHOWN = ("tp", "pp", "dp")
"""Degrees that are shown even where they are 1."""


class PartialLayout:
    """Any subset of a layout's knobs; those not given are open: to be chosen, or not known.

    Without `capacity_factor` no token is dropped; that is a value of its own, not an open one.
    `wanted` are open knobs that a search is asked to choose: those given as `any`, but for knobs
    that every search chooses, of which that says nothing more.
    Values are checked once they are part of a `Layout`.
    """

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        for name in given:
            if name not in KNOBS:
                raise TypeError(f"a layout has no {name!r}; it has {', '.join(KNOBS)}")
        pairs = tuple((name, given[name]) for name in KNOBS if given.get(name) not in (None, ANY))
        self._by_name: Mapping[str, Value] = dict(pairs)
        wanted = (name for name, knob in KNOBS.items() if knob.on_request)
        self.pairs: Final[tuple[tuple[str, Value], ...]] = pairs
        self.wanted: Final = tuple(n for n in wanted if given.get(n) == ANY)

    def __eq__(self, other: object) -> bool:
        """Compare what is settled, and what is to be chosen."""
        return isinstance(other, PartialLayout) and self._key == other._key

    def __hash__(self) -> int:
        """Hash what is settled, and what is to be chosen."""
        return hash(self._key)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.said.items())
        return f"PartialLayout({said})"

    @property
    def _key(self) -> tuple[object, ...]:
        return self.pairs, self.wanted

    @classmethod
    def of(cls, layout: Layout) -> PartialLayout:
        """Return all knobs of a layout whose degrees are single numbers.

        Stages that are drawn by hand share nothing evenly: what they would share is left out.
        """
        values = {name: getattr(layout, name) for name in KNOBS}
        if layout.pipeline_layout is not None:
            del values["stage_split"]
        return cls(**values | {name: int(values[name]) for name in DEGREES})

    @property
    def given(self) -> Mapping[str, Value]:
        """The values that are settled, by knob."""
        return dict(self.pairs)

    @property
    def said(self) -> Mapping[str, Value]:
        """The values that are settled, and `any` for knobs that a search is asked to choose."""
        given = {**self.given, **dict.fromkeys(self.wanted, ANY)}
        return {name: given[name] for name in KNOBS if name in given}

    @property
    def open(self) -> tuple[str, ...]:
        """The knobs without a value."""
        given = self.given
        return tuple(name for name in KNOBS if name not in given)

    @property
    def plain(self) -> dict[str, Value | None]:
        """The value of every knob, None for an open one."""
        given = self.given
        return {name: given.get(name) for name in KNOBS}

    def __getitem__(self, name: str) -> Value | None:
        """Return the value of a knob, None where it is open; an unknown name is a KeyError."""
        if name not in KNOBS:
            raise KeyError(name)
        return self._by_name.get(name)

    def number(self, name: str) -> int | None:
        """Return the value of a knob that is a whole number."""
        value = self[name]
        assert value is None or isinstance(value, int), name
        return value

    def degree(self, name: str) -> int:
        """Return the value of a knob that is a whole number, 1 where it is open."""
        return self.number(name) or 1

    def text(self, name: str) -> str | None:
        """Return the value of a knob that is a text."""
        value = self[name]
        assert value is None or isinstance(value, str), name
        return value

    @property
    def sample_tokens(self) -> int:
        """The tokens of a sample, in all its sequences; 1 where the sequence is open."""
        return self.degree("sequence") * sequences_per_sample(self["job"])

    @property
    def replica_ranks(self) -> int:
        """The ranks that hold one copy of the model: tp x pp x cp."""
        return self.degree("tp") * self.degree("pp") * self.degree("cp")

    def changed(self, **knobs: Value | None) -> PartialLayout:
        """Return it with other values of some knobs; None opens one."""
        return PartialLayout(**{**self.said, **knobs})

    def complete(self, defaults: Mapping[str, Value | None] | None = None) -> Layout:
        """Return the layout, open knobs from `defaults` or else with the table's own defaults.

        Batch, sequence and precision have none of these: left open they are a TypeError.
        """
        return Layout(**{**(defaults or {}), **self.given})  # type: ignore[arg-type]


def shown_degrees(layouts: Iterable[PartialLayout]) -> tuple[str, ...]:
    """Return the degrees of ranks that are worth a word: tp, pp, dp, and what is above 1 in any."""
    several = {name for one in layouts for name in RANK_DEGREES if one.degree(name) > 1}
    return tuple(name for name in RANK_DEGREES if name in several or name in ALWAYS_SHOWN)

"""Suppositions about single instance types: another speed, a known MFU, a cost of moving there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.predict.assumption import Assumption
from trnbench.verbs.asking.question import Question, option

FASTEST = 10.0
"""Largest multiple of a predicted speed that is supposed."""
WHY = "what if"


class WhatIf(Question):
    """Suppositions as texts NAME=VALUE; once settled each name is that of an instance file."""

    speed: tuple[str, ...] = option(
        "Suppose an instance type this much faster or slower: trn2.48xlarge=-10% (repeatable).",
        several="repeated",
        metavar="NAME=-10%",
    )
    mfu: tuple[str, ...] = option(
        "Suppose this MFU on every cluster of an instance type: trn2.48xlarge=20% (repeatable).",
        several="repeated",
        metavar="NAME=20%",
    )
    migration_cost: tuple[str, ...] = option(
        "Add this to the bill once, for moving there: trn2.48xlarge=250K (repeatable).",
        several="repeated",
        metavar="NAME=USD",
    )

    @property
    def speeds(self) -> Mapping[str, float]:
        """Multiple of the predicted speed, by instance type."""
        return _by_name("--speed", self.speed, _speed)

    @property
    def mfus(self) -> Mapping[str, float]:
        """MFU from 0 to 1, by instance type."""
        return _by_name("--mfu", self.mfu, _mfu)

    @property
    def once_usd(self) -> Mapping[str, float]:
        """One-time cost in USD, by instance type."""
        return _by_name("--migration-cost", self.migration_cost, _migration)

    @property
    def moved(self) -> frozenset[str]:
        """Instance types whose speed is supposed."""
        return frozenset((*self.speeds, *self.mfus))

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """The suppositions as assumptions of an answer."""
        told = {"speed": self.speed, "MFU": self.mfu, "migration cost, USD,": self.migration_cost}
        return tuple(
            Assumption(name=f"{what} of {name}", value=value.strip(), why=WHY)
            for what, texts in told.items()
            for name, _, value in (text.partition("=") for text in texts)
        )

    def settled_on(self, catalog: Catalog, instances: Sequence[str]) -> WhatIf:
        """The suppositions by the names of these instance types; others are refused."""
        named = {catalog.find("instances", name).name for name in instances}

        def own(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
            found = []
            for text in texts:
                given, equals, value = text.partition("=")
                name = catalog.find("instances", given.strip()).name
                if name not in named:
                    raise InputError(f"{flag} names {given.strip()}, which is not among --on")
                found.append(f"{name}{equals}{value.strip()}")
            return tuple(found)

        found = WhatIf(
            speed=own("--speed", self.speed),
            mfu=own("--mfu", self.mfu),
            migration_cost=own("--migration-cost", self.migration_cost),
        )
        if both := found.speeds.keys() & found.mfus.keys():
            raise InputError(f"{min(both)} has both --speed and --mfu; give one")
        _ = found.once_usd
        return found


def _by_name(
    flag: str, texts: Sequence[str], read: Callable[[str, str], tuple[str, float]]
) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, value = read(flag, text)
        if name in found:
            raise InputError(f"{flag} names {name} twice")
        found[name] = value
    return found


def _speed(flag: str, text: str) -> tuple[str, float]:
    found = parsing.changed_name(f"{flag} {text!r}", text, FASTEST)
    if found is None:
        raise InputError(f"{flag} {text!r} is not NAME=CHANGE, e.g. trn2.48xlarge=-10% or +5%")
    return found


def _mfu(flag: str, text: str) -> tuple[str, float]:
    name, value = _named(flag, text, "trn2.48xlarge=20%")
    share = parsing.share(f"{flag} {text!r}")(value)
    if not share:
        raise InputError(f"{flag} {text!r} must be above 0%")
    return name, share


def _migration(flag: str, text: str) -> tuple[str, float]:
    name, value = _named(flag, text, "trn2.48xlarge=250K")
    return name, parsing.money(f"{flag} {text!r}")(value)


def _named(flag: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InputError(f"{flag} {text!r} is not NAME=VALUE, e.g. {example}")
    return name, value

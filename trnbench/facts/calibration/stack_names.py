"""Names of training stacks: which there are, which an instance has, what a wrong one may mean."""

from __future__ import annotations

from trnbench.errors import UnknownNameError, listed, nearest_names
from trnbench.facts.calibration.frameworks import SOFTWARE
from trnbench.facts.calibration.transfer import entries_of, listed_in
from trnbench.facts.catalog.search import BUILT_IN, Catalog

STACK_PREFIX = "training-"
"""Calibrations of all sorts share a folder; the names of these begin so."""
STACK_KEYS = ("default_for", "instances")
"""The keys under which a stack may list an instance that uses it unasked, the strongest first."""


def unknown_stack(catalog: Catalog, name: str, instance: str | None) -> UnknownNameError:
    """Return what is wrong with a name of a stack; stacks of the instance are proposed first."""
    every = [*known_stacks(catalog, None), *SOFTWARE]
    near = nearest_names(name, known_stacks(catalog, instance)) or nearest_names(name, every)
    return UnknownNameError(
        "training stack",
        name,
        every,
        lists="trnbench spec list calibration",
        remedy=f"; did you mean {listed([*map(repr, near)], 'or')}?" if near else "",
    )


def known_stacks(catalog: Catalog, instance: str | None) -> list[str]:
    """Return the short names of the training stacks, or of those that list an instance."""
    return [
        entry.name.removeprefix(STACK_PREFIX)
        for entry in entries_of(catalog, STACK_PREFIX)
        if instance is None or instance in listed_in(catalog, entry, "instances")
    ]


def serving_by_name(catalog: Catalog, instance: str) -> tuple[str, ...]:
    """Return the user's own stacks that serve an instance unasked with equal right, if several."""
    for key in STACK_KEYS:
        own = [
            entry.name.removeprefix(STACK_PREFIX)
            for entry in entries_of(catalog, STACK_PREFIX)
            if entry.origin != BUILT_IN and instance in listed_in(catalog, entry, key)
        ]
        if own:
            return tuple(own) if len(own) > 1 else ()
    return ()

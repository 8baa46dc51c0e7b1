"""Names of training stacks: all, those of an instance, and suggestions for a misspelt name."""

from __future__ import annotations

from trnbench.errors import UnknownNameError, listed, nearest_names
from trnbench.facts.calibration.frameworks import SOFTWARE
from trnbench.facts.calibration.transfer import entries_of, listed_in
from trnbench.facts.catalog.search import BUILT_IN, Catalog

STACK_PREFIX = "training-"
"""Prefix of training stacks; calibrations of all sorts share one folder."""
STACK_KEYS = ("default_for", "instances")
"""Keys under which a stack lists instances that use it by default, strongest first."""


def unknown_stack(catalog: Catalog, name: str, instance: str | None) -> UnknownNameError:
    """Error for an unknown stack name; suggestions start with the instance's stacks."""
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
    """Short names of all training stacks, or of those that list an instance."""
    return [
        entry.name.removeprefix(STACK_PREFIX)
        for entry in entries_of(catalog, STACK_PREFIX)
        if instance is None or instance in listed_in(catalog, entry, "instances")
    ]


def serving_by_name(catalog: Catalog, instance: str) -> tuple[str, ...]:
    """The user's stacks that serve an instance by default with equal priority, if several."""
    for key in STACK_KEYS:
        own = [
            entry.name.removeprefix(STACK_PREFIX)
            for entry in entries_of(catalog, STACK_PREFIX)
            if entry.origin != BUILT_IN and instance in listed_in(catalog, entry, key)
        ]
        if own:
            return tuple(own) if len(own) > 1 else ()
    return ()

"""Which record a spec file holds, and what must hold between files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from trnbench.catalog.document import Documented, load
from trnbench.catalog.listing import unknown_name
from trnbench.catalog.search import Catalog
from trnbench.errors import Fault
from trnbench.spec.chip import Chip
from trnbench.spec.collective_efficiency import CollectiveStack
from trnbench.spec.instance import Instance
from trnbench.spec.price import PriceList

READERS: Mapping[str, Callable[[Path], Documented]] = {
    "chips": partial(load, record=Chip),
    "instances": partial(load, record=Instance),
    "prices": partial(load, record=PriceList),
    "calibration": partial(load, record=CollectiveStack),
}

_MARKS = {
    "price": "prices",
    "chip": "instances",
    "fabric": "instances",
    "cores": "chips",
    "multiprocessors": "chips",
    "tunings": "calibration",
}


def section_of(table: Mapping[str, object]) -> str | None:
    """Return the section that a spec file's contents belong to, or None."""
    return next((section for key, section in _MARKS.items() if key in table), None)


def cross_faults(record: Documented, catalog: Catalog) -> Iterator[Fault]:
    """Yield the names in an instance that are in no catalogue."""
    if isinstance(record, Instance):
        yield from unknown_name(catalog, "chips", record.chip, "chip")
        if record.host_instance is not None:
            yield from unknown_name(catalog, "instances", record.host_instance, "host_instance")

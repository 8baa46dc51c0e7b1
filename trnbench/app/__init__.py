"""The use cases, typed in and out: the Python API of trnbench, and all that its fronts call.

    from trnbench import app
    catalog = app.open_catalog()
    platform = app.platform_named(catalog, "trn2.48xlarge")

What needs numpy is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module

from trnbench.app.files import (
    READERS,
    SPEC_SECTIONS,
    WORKLOAD_SECTIONS,
    diff,
    import_model,
    info,
    parameters,
    platform_named,
    prices_named,
    sheet,
    validate,
)
from trnbench.catalog.listing import listed
from trnbench.catalog.search import Catalog, open_catalog

_LATER: dict[str, str] = {}

__all__ = [
    "READERS",
    "SPEC_SECTIONS",
    "WORKLOAD_SECTIONS",
    "Catalog",
    "diff",
    "import_model",
    "info",
    "listed",
    "open_catalog",
    "parameters",
    "platform_named",
    "prices_named",
    "sheet",
    "validate",
    *_LATER,
]


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The use cases, typed in and out: the Python API of trnbench, and all that its fronts call.

    from trnbench import app
    catalog = app.open_catalog()
    platform = app.platform_named(catalog, "trn2.48xlarge")

Each is imported when it is first asked for: start-up time is a feature.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.app.files import (
        READERS,
        diff,
        import_model,
        info,
        parameters,
        platform_named,
        prices_named,
        sheet,
        validate,
    )
    from trnbench.app.search import Fixed, search_layouts
    from trnbench.app.validation import validate_evidence
    from trnbench.catalog.listing import listed
    from trnbench.catalog.search import SPEC_SECTIONS, WORKLOAD_SECTIONS, Catalog, open_catalog

_MODULES = {
    "trnbench.app.files": (
        *("READERS", "diff", "import_model", "info", "parameters", "platform_named"),
        *("prices_named", "sheet", "validate"),
    ),
    "trnbench.app.search": ("Fixed", "search_layouts"),
    "trnbench.app.validation": ("validate_evidence",),
    "trnbench.catalog.listing": ("listed",),
    "trnbench.catalog.search": (
        *("SPEC_SECTIONS", "WORKLOAD_SECTIONS", "Catalog", "open_catalog"),
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "READERS",
    "SPEC_SECTIONS",
    "WORKLOAD_SECTIONS",
    "Catalog",
    "Fixed",
    "diff",
    "import_model",
    "info",
    "listed",
    "open_catalog",
    "parameters",
    "platform_named",
    "prices_named",
    "search_layouts",
    "sheet",
    "validate",
    "validate_evidence",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

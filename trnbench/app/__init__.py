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
    from trnbench.app.calibration import calibrate_measurements
    from trnbench.app.claims import examine_claims
    from trnbench.app.compare import CompareRequest, compare_run
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
    from trnbench.app.numerics import NumericsRequest, compare_recipes
    from trnbench.app.plan import plan_run
    from trnbench.app.plan_request import PlanRequest
    from trnbench.app.run_request import Part, RunRequest
    from trnbench.app.scaling import scale_run
    from trnbench.app.search import search_layouts
    from trnbench.app.train_functional import FunctionalRequest, run_functional
    from trnbench.app.validation import validate_evidence
    from trnbench.catalog.listing import listed
    from trnbench.catalog.search import SPEC_SECTIONS, WORKLOAD_SECTIONS, Catalog, open_catalog

_MODULES = {
    "trnbench.app.calibration": ("calibrate_measurements",),
    "trnbench.app.claims": ("examine_claims",),
    "trnbench.app.files": (
        *("READERS", "diff", "import_model", "info", "parameters", "platform_named"),
        *("prices_named", "sheet", "validate"),
    ),
    "trnbench.app.compare": ("CompareRequest", "compare_run"),
    "trnbench.app.numerics": ("NumericsRequest", "compare_recipes"),
    "trnbench.app.plan": ("plan_run",),
    "trnbench.app.plan_request": ("PlanRequest",),
    "trnbench.app.run_request": ("Part", "RunRequest"),
    "trnbench.app.scaling": ("scale_run",),
    "trnbench.app.search": ("search_layouts",),
    "trnbench.app.train_functional": ("FunctionalRequest", "run_functional"),
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
    "CompareRequest",
    "FunctionalRequest",
    "NumericsRequest",
    "Part",
    "PlanRequest",
    "RunRequest",
    "calibrate_measurements",
    "compare_recipes",
    "compare_run",
    "diff",
    "examine_claims",
    "import_model",
    "info",
    "listed",
    "open_catalog",
    "parameters",
    "plan_run",
    "platform_named",
    "prices_named",
    "run_functional",
    "scale_run",
    "search_layouts",
    "sheet",
    "validate",
    "validate_evidence",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

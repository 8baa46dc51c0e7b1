"""The Python API of trnbench: fifteen verbs, typed in and out, and what they and the fronts share.

    from trnbench.app import compare
    answer = compare("llama2-7b", tokens="300B", on="trn1.32xlarge,p5.48xlarge", nodes=4)

Arguments are named like the options of the command line and have its defaults; quantities are
numbers in base units, or texts with units. Each is imported when it is first asked for: start-up
time is a feature.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.app.verbs.explain import explain as explain
    from trnbench.app.verbs.validate import validate as validate
    from trnbench.app.verbs.verify import verify as verify
    from trnbench.facts.catalog.search import SPEC_SECTIONS as SPEC_SECTIONS
    from trnbench.facts.catalog.search import WORKLOAD_SECTIONS as WORKLOAD_SECTIONS
    from trnbench.facts.catalog.search import Catalog as Catalog
    from trnbench.facts.catalog.search import listed as listed
    from trnbench.facts.catalog.search import open_catalog as open_catalog
    from trnbench.verbs.calibrate.run import calibrate as calibrate
    from trnbench.verbs.claims.run import claims as claims
    from trnbench.verbs.collective.run import collective as collective
    from trnbench.verbs.compare.run import compare as compare
    from trnbench.verbs.compare.scaling import scale_run as scale_run
    from trnbench.verbs.fleet.run import fleet as fleet
    from trnbench.verbs.info.run import info as info
    from trnbench.verbs.info.support import jobs_supported as jobs_supported
    from trnbench.verbs.info.support import support as support
    from trnbench.verbs.launch.folders import write_launch as write_launch
    from trnbench.verbs.launch.run import launch as launch
    from trnbench.verbs.matrix.run import matrix as matrix
    from trnbench.verbs.measure.run import measure as measure
    from trnbench.verbs.numerics.run import numerics as numerics
    from trnbench.verbs.plan.run import plan as plan
    from trnbench.verbs.prices.run import price_history as price_history
    from trnbench.verbs.prices.run import refresh_prices as refresh_prices
    from trnbench.verbs.prices.run import write_rates as write_rates
    from trnbench.verbs.search_layouts.run import search_layouts as search_layouts
    from trnbench.verbs.spec.run import READERS as READERS
    from trnbench.verbs.spec.run import check_files as check_files
    from trnbench.verbs.spec.run import diff as diff
    from trnbench.verbs.spec.run import parameters as parameters
    from trnbench.verbs.spec.run import platform_named as platform_named
    from trnbench.verbs.spec.run import prices_named as prices_named
    from trnbench.verbs.spec.run import sheet as sheet
    from trnbench.verbs.train.functional import train_functional as train_functional
    from trnbench.verbs.train.run import train as train
    from trnbench.verbs.workload.run import import_model as import_model
    from trnbench.verbs.workload.run import model_facts as model_facts

VERBS = (
    *("matrix", "collective", "train", "compare", "plan", "fleet", "launch", "verify"),
    *("measure", "validate", "calibrate", "explain", "search_layouts", "numerics", "claims"),
)
_IN_FOLDERS = (
    *("matrix", "compare", "plan", "fleet", "launch", "numerics", "collective", "claims", "train"),
    *("search_layouts", "calibrate", "measure"),
)
"""Verbs that are a folder of `trnbench.verbs`."""
_HOMES = {
    name: f"trnbench.verbs.{name}.run" if name in _IN_FOLDERS else f"trnbench.app.verbs.{name}"
    for name in VERBS
} | {
    name: module
    for module, names in {
        "trnbench.verbs.spec.run": (
            *("READERS", "check_files", "diff", "parameters"),
            *("platform_named", "prices_named", "sheet"),
        ),
        "trnbench.verbs.workload.run": ("import_model", "model_facts"),
        "trnbench.verbs.launch.folders": ("write_launch",),
        "trnbench.verbs.prices.run": ("price_history", "refresh_prices", "write_rates"),
        "trnbench.verbs.compare.scaling": ("scale_run",),
        "trnbench.verbs.info.run": ("info",),
        "trnbench.verbs.info.support": ("jobs_supported", "support"),
        "trnbench.verbs.train.functional": ("train_functional",),
        "trnbench.facts.catalog.search": (
            *("SPEC_SECTIONS", "WORKLOAD_SECTIONS", "Catalog", "listed", "open_catalog"),
        ),
    }.items()
    for name in names
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

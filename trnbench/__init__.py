"""Benchmark and capacity planning for training on AWS Trainium, from the terminal and from Python.

    from trnbench import compare
    answer = compare("llama2-7b", tokens="300B", on="trn1.32xlarge,p5.48xlarge", nodes=4)

Arguments are named like the options of the command line and have its defaults. Quantities are
numbers in base units, or texts with units. A name is imported when first asked for, so that
`import trnbench` stays fast.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import open_catalog as open_catalog
    from trnbench.verbs.calibrate.run import calibrate as calibrate
    from trnbench.verbs.claims.run import claims as claims
    from trnbench.verbs.collective.run import collective as collective
    from trnbench.verbs.compare.run import compare as compare
    from trnbench.verbs.explain.run import explain as explain
    from trnbench.verbs.fleet.run import fleet as fleet
    from trnbench.verbs.matrix.run import matrix as matrix
    from trnbench.verbs.measure.run import measure as measure
    from trnbench.verbs.numerics.run import numerics as numerics
    from trnbench.verbs.plan.run import plan as plan
    from trnbench.verbs.search_layouts.run import search_layouts as search_layouts
    from trnbench.verbs.train.functional import train_functional as train_functional
    from trnbench.verbs.train.run import train as train
    from trnbench.verbs.validate.run import validate as validate
    from trnbench.verbs.verify.run import verify as verify

__version__ = "0.1.0"
_VERBS = (
    *("matrix", "collective", "train", "compare", "plan", "fleet", "measure", "validate"),
    *("verify", "calibrate", "explain", "numerics", "claims", "search_layouts"),
)
_HOMES = {
    **{verb: f"trnbench.verbs.{verb}.run" for verb in _VERBS},
    "train_functional": "trnbench.verbs.train.functional",
    "open_catalog": "trnbench.facts.catalog.search",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

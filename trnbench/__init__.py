"""Benchmark and capacity planning for training on AWS Trainium, from the terminal and from Python.

    from trnbench import compare
    answer = compare("llama2-7b", tokens="300B", on="trn1.32xlarge,p5.48xlarge", nodes=4)

Arguments are named like the options of the command line and have its defaults. Quantities are
numbers in base units, or texts with units. A name is imported when first asked for, so that
`import trnbench` stays fast.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.app import calibrate as calibrate
    from trnbench.app import claims as claims
    from trnbench.app import collective as collective
    from trnbench.app import compare as compare
    from trnbench.app import explain as explain
    from trnbench.app import fleet as fleet
    from trnbench.app import matrix as matrix
    from trnbench.app import measure as measure
    from trnbench.app import numerics as numerics
    from trnbench.app import open_catalog as open_catalog
    from trnbench.app import plan as plan
    from trnbench.app import search_layouts as search_layouts
    from trnbench.app import train as train
    from trnbench.app import train_functional as train_functional
    from trnbench.app import validate as validate
    from trnbench.app import verify as verify

__version__ = "0.1.0"
_PUBLIC = (
    *("matrix", "collective", "train", "compare", "plan", "fleet", "measure", "validate"),
    *("verify", "calibrate", "explain", "numerics", "claims", "search_layouts", "open_catalog"),
    "train_functional",
)
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trnbench import app

    return getattr(app, name)


def __dir__() -> list[str]:
    return __all__

"""Question of `matrix`: products, the chips and formats they run in, and engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.numbers.formats import RoundingRule
from trnbench.machine.tiling import DEFAULT_KERNEL, Cores, Kernel, Precision
from trnbench.machine.tiling.kernel_levels import KernelSoftware
from trnbench.verbs.asking.question import Question, option
from trnbench.verbs.asking.shared_options import engine_option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.library import Product


MAX_DIGITS = 12
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?")


def parse_product(text: str) -> Product:
    """The product in a text such as 4096x8192x8192."""
    from trnbench.facts.workload.library import Product

    match = _SHAPE.fullmatch(text.strip().lower())
    if match is None or any(len(size) > MAX_DIGITS for size in match.groups(default="1")):
        raise InputError(
            f"{text!r} is not a product; write MxKxN or MxKxNxBATCH, e.g. 4096x8192x8192"
        )
    m, k, n, batch = (int(size) for size in match.groups(default="1"))
    try:
        return Product(m=m, k=k, n=n, batch=batch)
    except ValueError as error:
        raise InputError(f"{text!r}: {error}") from None


def product_text(product: Product) -> str:
    batch = f"x{product.batch}" if product.batch > 1 else ""
    return f"{product.m}x{product.k}x{product.n}{batch}"


def _cores(text: str) -> Cores:
    return "all" if text == "all" else parsing.whole("--cores")(text)


class MatrixQuestion(Question):
    """Every product in every format on every chip by every engine."""

    products: tuple[Product, ...] = option(
        "Products, e.g. 4096x8192x8192.",
        name="shapes",
        parse=parse_product,
        write=product_text,
        metavar="[MxKxN[xBATCH]...]",
        several="commas",
        argument=True,
    )
    suite: str | None = option("A matrix suite.", completes=("matrix",))
    chips: tuple[str, ...] = option(
        "Chips; default: the suite's.", name="on", metavar="CHIP,...", completes=("chips",)
    )
    formats: tuple[str, ...] = option(
        "Formats; default: bf16, the suite's.", name="dtype", metavar="FORMAT,..."
    )
    engines: tuple[str, ...] = engine_option("Closed form, instruction by instruction.")
    kernel: Kernel = option("Kernel schedule of a NeuronCore.", default=DEFAULT_KERNEL)
    kernels: KernelSoftware = option(
        "Software of a NeuronCore's kernel: by hand, by the compiler, a traced program.",
        default="nki",
    )
    cores: Cores = option(
        "Physical cores of the chip to use.", default=1, parse=_cores, metavar="1|N|all"
    )
    precision: Precision = option(
        "Tensor-engine mode of formats that have a fast one.", default="native"
    )
    pattern: str | None = option(
        "Structured sparsity, e.g. 4:16.", name="sparsity", metavar="KEEP:GROUP"
    )
    check: bool = option("Compute the product in the format, against float64.")
    rounding: RoundingRule | None = option("With --check: rounding of results; default: rne.")
    seed: int | None = option("With --check: seed of operands and rounding; default: 0.")
    trace: bool = option("Keep what was played.", shown=False)

    def settled(self, catalog: Catalog) -> MatrixQuestion:
        """Return the question with what its suite brings, which may leave out chips and formats."""
        if not self.check and (self.rounding is not None or self.seed is not None):
            raise InputError("--rounding and --seed act on numbers; they need --check")
        if self.kernels != "nki" and self.kernel != DEFAULT_KERNEL:
            raise InputError(
                f"--kernel {self.kernel} is a schedule of --kernels nki; leave one out"
            )
        if bool(self.products) == (self.suite is not None):
            raise InputError(
                "give products (such as 4096x8192x8192) or --suite NAME, one of the two"
            )
        found = self
        if self.suite is not None:
            from trnbench.facts.workload.library import load_matrix_suite

            listed = load_matrix_suite(catalog, self.suite)
            found = self.but(
                products=listed.products,
                chips=self.chips or listed.chips,
                formats=self.formats or listed.formats,
            )
        if not found.chips:
            raise InputError("on which chip? e.g. --on trainium1,trainium2")
        return found.but(formats=found.formats or ("bf16",))

    def said(self) -> dict[str, Any]:
        said = super().said()
        return {**said, "shapes": ()} if self.suite else said

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data; `suite` is told by its products."""
        plain = super().inputs()
        del plain["suite"]
        return plain | {
            "products": [f"{p.m}x{p.k}x{p.n}x{p.batch}" for p in self.products],
            "rounding": self.rounding or "rne",
            "seed": self.seed or 0,
        }


class MatrixShowing(Question):
    """Columns and other files of an answer on products."""

    trace: Path | None = option("Write a Perfetto trace of the play.", metavar="FILE")
    plot: bool = option("Draw rooflines.")
    array: str | None = option(
        "Instead of a chip: cycles of a bare systolic array, counted as SCALE-Sim does.",
        metavar="RxC:ws|is|os",
    )

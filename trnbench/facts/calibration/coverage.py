"""Reach of the measured steps behind a training stack, and what lies beyond it.

A fit is evidence for questions like its rows. `Covered` holds the largest settings among them.
`BeyondRows` holds the scatter that was seen beyond: rows that no fit had seen, of stacks that other
rows determine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.facts.arrays import BoolArray, FloatArray


class Spread(Record):
    """Scatter of measured over predicted times: ends of an 80 % interval, as ratios.

    Factors on a predicted time, in addition to the effect of uncertain parameters.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an interval that does not contain 1."""
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError("`low` must be above 0 and at most 1, `high` at least 1")


class Covered(Record):
    """Largest settings among the measured steps of a stack."""

    jobs: tuple[str, ...]
    cp: int = 1
    ep: int = 1
    vpp: int = 1
    tp_nodes: int = 1
    """Nodes that one tensor parallel group spans."""
    nodes: int = 1
    sequence: int
    micro_batch: int
    least_tokens: int
    """Tokens of the smallest step; `most_tokens`: of the largest."""
    most_tokens: int

    def degree_is_beyond(
        self, name: str, degree: FloatArray | int, ranks_per_node: int
    ) -> BoolArray | bool:
        """True where one of `DEGREES` is larger than in any row."""
        largest = self.tp_nodes * ranks_per_node if name == "tp" else getattr(self, name)
        return degree > largest

    def degrees_beyond(self, degrees: Mapping[str, int], ranks_per_node: int) -> tuple[str, ...]:
        """Degrees larger than in any row, in words."""
        beyond = [
            name for name in DEGREES if self.degree_is_beyond(name, degrees[name], ranks_per_node)
        ]
        across = f"tp across {-(-degrees['tp'] // ranks_per_node)} nodes"
        return tuple(across if name == "tp" else f"{name} {degrees[name]}" for name in beyond)

    def sizes_beyond(
        self, *, nodes: int, sequence: int, micro_batch: int, tokens: int
    ) -> tuple[str, ...]:
        """Sizes outside those of the rows, in words; nodes and tokens within twice count as in."""
        return tuple(
            words
            for words, out in (
                (f"{nodes:,} nodes", nodes > 2 * self.nodes),
                (f"sequence {sequence:,}", sequence > self.sequence),
                (f"micro-batch {micro_batch}", micro_batch > self.micro_batch),
                (f"{tokens:,} tokens per step", tokens > 2 * self.most_tokens),
                (f"{tokens:,} tokens per step", 2 * tokens < self.least_tokens),
            )
            if out
        )


DEGREES = ("cp", "ep", "vpp", "tp")
"""Degrees that a search must not choose beyond the rows on the word of the model alone."""


class BeyondRows(Sourced):
    """Scatter of steps beyond the rows of their stack, from `calibration/beyond-rows.toml`."""

    name: str
    title: str
    degrees: Spread
    sizes: Spread
    kinds: Spread
    """Jobs and families of models that no row has."""
    real: Spread
    """Steps on real data, where rows ran on mock data; `packed`: on several samples a sequence."""
    packed: Spread


def load_beyond_rows(catalog: Catalog) -> BeyondRows:
    """The shipped scatter, or the user's own of the same name."""
    return load_named(catalog, "calibration", "beyond-rows", BeyondRows)


def between(first: Spread, other: Spread) -> Spread:
    return Spread(low=(first.low * other.low) ** 0.5, high=(first.high * other.high) ** 0.5)


def widest(*spreads: Spread) -> Spread:
    """The spread that contains all of these."""
    return Spread(
        low=min(spread.low for spread in spreads), high=max(spread.high for spread in spreads)
    )


def together(*spreads: Spread) -> Spread:
    """Spread of independent reasons to be wrong: logarithms add in squares."""
    return Spread(
        low=math.exp(-math.hypot(*(math.log(spread.low) for spread in spreads))),
        high=math.exp(math.hypot(*(math.log(spread.high) for spread in spreads))),
    )

"""Limits, counts and time of a chip's compiler, from `specs/compilers`."""

from __future__ import annotations

from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Count, Seconds
from trnbench.facts.catalog.search import Catalog


class Compiler(Sourced):
    """A compiler of whole graphs for `chips`, by name."""

    name: str
    title: str
    chips: tuple[str, ...]
    graph_instructions: Count
    """Most instructions of a graph of one rank."""
    operator_instructions: Count
    """Most instructions of one operation."""
    tile_instructions: float
    """Instructions counted for a tile of a matrix product."""
    loss_passes: float
    """Instructions of a loss for a position and a tile of the vocabulary, for several sequences."""
    compile_s: Seconds
    """Cold compilation of a graph of a million instructions."""
    compile_exponent: float
    """Power of a graph's instructions that its time follows."""
    warm_s: Seconds
    """Reading of graphs that a cache holds compiled."""


def compiler_of(catalog: Catalog, chip: str) -> Compiler | None:
    """The compiler that checks the graphs of a chip, by the chip's name; None if there is none."""
    entries = catalog.entries("compilers")
    compilers = (load_once(catalog, entry.path, Compiler) for entry in entries)
    return next((compiler for compiler in compilers if chip in compiler.chips), None)

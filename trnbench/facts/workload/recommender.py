"""A recommender as its publisher describes it: embedding tables, MLPs and cross layers."""

from __future__ import annotations

from itertools import pairwise

from trnbench.facts.records import Record
from trnbench.facts.workload.sizes import check_sizes


class Recommender(Record):
    """Embedding tables and two MLPs around low-rank cross layers (DCN v2)."""

    dense_features: int
    embedding_size: int
    rows: tuple[int, ...]
    """Rows of each table."""
    lookups: tuple[int, ...]
    """Rows of each table that a sample reads and sums."""
    bottom: tuple[int, ...]
    """Output widths of the MLP on the dense features."""
    cross_layers: int
    cross_rank: int
    top: tuple[int, ...]
    """Output widths of the MLP on the crossed features."""

    def __post_init__(self) -> None:
        """Refuse lists of contradicting lengths or widths."""
        check_sizes(self)
        if not self.rows or len(self.rows) != len(self.lookups):
            raise ValueError("`rows` and `lookups` need one number for each table, and a table")
        if not self.top or not self.bottom or self.bottom[-1] != self.embedding_size:
            raise ValueError("`bottom` must end with `embedding_size`, and `top` not be empty")

    @property
    def crossed_features(self) -> int:
        """Width of the cross layers: every embedding and the bottom MLP's output."""
        return (len(self.rows) + 1) * self.embedding_size

    @property
    def bottom_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the bottom MLP."""
        return tuple(pairwise((self.dense_features, *self.bottom)))

    @property
    def top_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the top MLP."""
        return tuple(pairwise((self.crossed_features, *self.top)))

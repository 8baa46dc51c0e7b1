"""A recommender as its publisher describes it: embedding tables, and MLPs around cross layers."""

from __future__ import annotations

from itertools import pairwise

from trnbench.facts.records import Record
from trnbench.facts.workload.sizes import check_sizes


class Recommender(Record):
    """Embedding tables and two MLPs around low-rank cross layers (DCN v2).

    Table i has `rows[i]` rows, of which a sample looks up `lookups[i]` and adds them up. `bottom`
    and `top` are the output widths of the MLPs on the dense features and on the crossed features.
    """

    dense_features: int
    embedding_size: int
    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    bottom: tuple[int, ...]
    cross_layers: int
    cross_rank: int
    top: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse lists that do not belong together."""
        check_sizes(self)
        if not self.rows or len(self.rows) != len(self.lookups):
            raise ValueError("`rows` and `lookups` need one number for each table, and a table")
        if not self.top or not self.bottom or self.bottom[-1] != self.embedding_size:
            raise ValueError("`bottom` must end with `embedding_size`, and `top` not be empty")

    @property
    def crossed_features(self) -> int:
        """The width of the cross layers: every embedding and the bottom MLP's output."""
        return (len(self.rows) + 1) * self.embedding_size

    @property
    def bottom_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the bottom MLP."""
        return tuple(pairwise((self.dense_features, *self.bottom)))

    @property
    def top_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the top MLP."""
        return tuple(pairwise((self.crossed_features, *self.top)))

"""N:M structured sparsity along the contraction: pruning, compressed form and product.

The stationary operand (m x k) keeps `keep` of every `group` numbers of a row. Its compressed form
has k * keep / group values, each with a 4-bit tag: the position in the window of moving rows
covered by four compressed rows (4 * group / keep rows, at most 16). Four tags fill one uint16, the
first in the lowest bits. Sources give the width and packing of tags; the window of patterns
narrower than 16 is our reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.facts.arrays import Float32Array

_TAGS_PER_WORD = 4
TAG_BITS = 4


class SparsityPattern(Record):
    """`keep` numbers survive of every `group` along the contraction."""

    keep: int
    group: int

    def __str__(self) -> str:
        return f"{self.keep}:{self.group}"

    @property
    def ratio(self) -> int:
        return self.group // self.keep

    @property
    def window(self) -> int:
        """Moving rows that the tags of one word select from."""
        return _TAGS_PER_WORD * self.ratio


PATTERNS: tuple[SparsityPattern, ...] = tuple(
    SparsityPattern(keep=keep, group=group)
    for keep, group in ((4, 16), (4, 12), (4, 8), (2, 8), (2, 4), (1, 4), (1, 2))
)


class Compressed(Record, eq=False):
    """A pruned matrix (..., m, k): kept values (..., m, k/ratio) and tags, four to a word."""

    pattern: SparsityPattern
    k: int
    values: Float32Array
    tags: NDArray[np.uint16]

    @property
    def positions(self) -> NDArray[np.int32]:
        """Row of the moving operand multiplied by each kept value."""
        length = self.values.shape[-1]
        shifts = np.arange(_TAGS_PER_WORD, dtype=np.uint16) * np.uint16(TAG_BITS)
        tags = (self.tags[..., None] >> shifts) & np.uint16((1 << TAG_BITS) - 1)
        tags = tags.reshape(*self.tags.shape[:-1], -1)[..., :length].astype(np.int32)
        return tags + _window_starts(self.pattern, length)


def parse_pattern(text: str) -> SparsityPattern:
    """The pattern written as "4:16"; hardware has only the seven of PATTERNS."""
    for pattern in PATTERNS:
        if str(pattern) == text.strip():
            return pattern
    raise UnknownNameError("sparsity pattern", text, [str(pattern) for pattern in PATTERNS])


def pattern_problem(pattern: SparsityPattern, k: int) -> str | None:
    """Why a contraction of length k cannot have a pattern, with the nearest valid k, or None."""
    if k % pattern.group == 0:
        return None
    below = k - k % pattern.group
    nearest = f"{below} or {below + pattern.group}" if below else f"{pattern.group}"
    return f"sparsity {pattern} needs k to be a multiple of {pattern.group}; k={k}, try {nearest}"


def compress(array: ArrayLike, pattern: SparsityPattern) -> Compressed:
    """The `keep` largest magnitudes of each group of the last axis; among equals, the first.

    NaN counts as largest, so that pruning never hides one.
    """
    values = np.asarray(array, dtype=np.float32)
    k = values.shape[-1]
    problem = pattern_problem(pattern, k)
    if problem:
        raise InputError(problem)
    groups = values.reshape(*values.shape[:-1], k // pattern.group, pattern.group)
    rank = -np.abs(groups)
    # argsort puts NaN last; minus infinity makes it the first kept.
    rank[np.isnan(rank)] = -np.inf
    kept = np.sort(np.argsort(rank, axis=-1, kind="stable")[..., : pattern.keep], axis=-1)
    starts = np.arange(0, k, pattern.group)[:, None]
    positions = (kept + starts).reshape(*values.shape[:-1], -1)
    return Compressed(
        pattern=pattern,
        k=k,
        values=np.take_along_axis(groups, kept, axis=-1).reshape(positions.shape),
        tags=_pack(positions - _window_starts(pattern, positions.shape[-1])),
    )


def decompress(compressed: Compressed) -> Float32Array:
    """The pruned matrix (..., m, k), with zeros for pruned numbers."""
    dense = np.zeros((*compressed.values.shape[:-1], compressed.k), dtype=np.float32)
    np.put_along_axis(dense, compressed.positions, compressed.values, axis=-1)
    return dense


def prune(array: ArrayLike, pattern: SparsityPattern) -> Float32Array:
    """`array` with all but the kept numbers of each group set to zero."""
    return decompress(compress(array, pattern))


def tile_products(
    compressed: Compressed, moving: Float32Array, k_tile: int
) -> Iterator[Float32Array]:
    """Yield values[m, tile] x gathered moving rows, for each `k_tile` compressed rows.

    Each kept value multiplies the one moving row that its tag names; pruned rows are never read, so
    a NaN or infinity there does not spread. Sums are in fp32.
    """
    from scipy.sparse import csr_array

    m, length = compressed.values.shape
    positions = compressed.positions
    for start in range(0, length, k_tile):
        tile = slice(start, min(start + k_tile, length))
        width = tile.stop - start
        rows = csr_array(
            (
                compressed.values[:, tile].ravel(),
                positions[:, tile].ravel(),
                np.arange(0, m * width + 1, width),
            ),
            shape=(m, compressed.k),
        )
        yield rows @ moving


def _window_starts(pattern: SparsityPattern, length: int) -> NDArray[np.int32]:
    return np.arange(length, dtype=np.int32) // _TAGS_PER_WORD * pattern.window


def _pack(tags: NDArray[np.integer]) -> NDArray[np.uint16]:
    padding = -tags.shape[-1] % _TAGS_PER_WORD
    padded = np.pad(tags, [(0, 0)] * (tags.ndim - 1) + [(0, padding)])
    words = padded.reshape(*tags.shape[:-1], -1, _TAGS_PER_WORD).astype(np.uint16)
    # Tags of a word share no bits: `or` sums them.
    shifts = np.arange(_TAGS_PER_WORD, dtype=np.uint16) * np.uint16(TAG_BITS)
    return np.asarray(np.bitwise_or.reduce(words << shifts, axis=-1), dtype=np.uint16)

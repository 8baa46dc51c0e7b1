"""Shares of a chip's peak that products and attention reach, for both engines.

Products: share(K) = share K / (K + K0), lower in narrow formats and where rows are not aligned.
Attention on a GPU: a call costs the FLOP of its pairs, times 1 + keys / 2 x queries / pairs for
what every tile of queries costs besides its keys, plus the tail: at the end of a call one
multiprocessor works on its last queries while the others are done. Every pair costs a softmax
besides its products, so that small heads reach less.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.hardware.compute_unit import Multiprocessors
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.units import BITS_PER_BYTE
from trnbench.program.matrix import MatrixProduct
from trnbench.program.ops import AttentionOp

USUAL_HEAD = 128
"""Size of the heads for which shares of attention are stated."""


def reached_share(known: ChipEfficiency, number_format: str, depth: FloatArray) -> FloatArray:
    """Share of the tensor units' peak that aligned products of these depths reach.

    Short contractions fill the pipeline less: half the share is reached at K = K0.
    """
    bits = format_named(number_format).bits
    share, half = known.tensor_share * known.power_gain, known.half_share_depth
    if bits <= BITS_PER_BYTE:
        share, half = share * known.narrow_share, half + known.narrow_extra_depth
    if 2 * bits <= BITS_PER_BYTE:
        share = share * known.four_bit_share
    return np.asarray(share * depth / (depth + half))


def unaligned(product: MatrixProduct, unit: Multiprocessors) -> FloatArray:
    """True for products with a row in memory that is no multiple of what kernels load at once.

    Rows of the left operand are as long as K, and those of the result as N.
    """
    whole = unit.row_alignment_bytes
    left, out = product.k * product.element_bytes_a, product.n * product.element_bytes_out
    return np.asarray((left % whole != 0) | (out % whole != 0))


def attention_slowdown(
    known: ChipEfficiency,
    unit: Multiprocessors,
    op: AttentionOp,
    along: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Time of a call on a GPU over that of its pairs at the share of long sequences.

    `along` adds the axis of samples to an array over layouts.
    """
    batch, queries, heads, score = op.query.shape
    value, seen = op.value.shape[3], op.key.shape[1]
    if op.window is not None:
        seen = np.minimum(seen, op.window)
    keys, softmax = known.attention_keys, known.attention_forward_softmax
    if op.backward:
        keys, softmax = known.attention_backward_keys, known.attention_backward_softmax
    tiles = keys / 2 * along(queries / op.pairs)
    tail = known.attention_tail_queries * along(unit.count * seen / (batch * heads * op.pairs))
    size = (score + value) / 2
    slower = (1 + softmax * along(1 / size)) / (1 + softmax / USUAL_HEAD)
    if op.backward:
        slower = slower / np.where(along(value) > USUAL_HEAD, known.attention_wide_share, 1.0)
    return np.asarray((1 + tiles + tail) * slower)

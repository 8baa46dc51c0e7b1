"""The memory an emulated product needs, known and checked before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from trnbench.engines.execute.numbers.accuracy import CHECK_BLOCK_BYTES, check_row_bytes
from trnbench.engines.execute.numbers.product import BLOCK_BYTES, ProductRecipe
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.units import Dimension, show

# Bytes per element, from the arrays alive at once at the peak (a test holds them to tracemalloc).
_FP32 = 4
_HELD = 8  # an operand as given and as rounded, both float32
_ROUNDING = 6  # a clamped copy and the narrow one, while an operand is rounded
_BLOCK_ROUNDING = 10  # scaled, clamped, rounded and narrow copies
_PRUNING = 22  # magnitudes, int64 ranks and positions
_BANK = 4  # one K-tile's product
_NARROWING = 13  # clamped, rounded and narrow copies, and bits, while sums are rounded
_CHECKING_B = 40  # given and rounded, both with their magnitudes in float64
_MEMINFO = Path("/proc/meminfo")


def bytes_needed(
    m: int,
    k: int,
    n: int,
    *,
    batch: int = 1,
    recipe: ProductRecipe | None = None,
    check: bool = False,
) -> int:
    """Memory in bytes for operands and product, with `check` for its error too."""
    for name, size in (("m", m), ("k", k), ("n", n), ("batch", batch)):
        if size < 1:
            raise InputError(f"{name} must be at least 1, found {size}")
    chosen = recipe or ProductRecipe()
    a, b, out = batch * m * k, batch * k * n, batch * m * n
    rounding_a = _BLOCK_ROUNDING if chosen.format_in_a.block > 1 else _ROUNDING
    rounding_b = _BLOCK_ROUNDING if chosen.format_in_b.block > 1 else _ROUNDING
    preparing = max((_PRUNING if chosen.pattern else rounding_a) * a, rounding_b * b)
    block = min(BLOCK_BYTES // _FP32, m * n)
    narrow = chosen.accumulate.name != "fp32"
    summing = _FP32 * out + block * (_BANK + (_NARROWING if narrow else 0))
    writing = (_FP32 + _NARROWING) * out
    needed = _HELD * (a + b) + max(preparing, summing, writing)
    if check:
        comparing = max(CHECK_BLOCK_BYTES, check_row_bytes(k, n, batch=batch))
        needed = max(needed, _FP32 * (a + out) + _CHECKING_B * b + comparing)
    return needed


def available_bytes() -> int:
    """Memory that can still be allocated, in bytes; all of it where unknown."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(
    m: int,
    k: int,
    n: int,
    *,
    batch: int = 1,
    recipe: ProductRecipe | None = None,
    check: bool = False,
) -> int:
    """Bytes needed, or refuse when less is free."""
    needed = bytes_needed(m, k, n, batch=batch, recipe=recipe, check=check)
    limit = available_bytes()
    if needed > limit:
        copies = f"{batch} of " if batch > 1 else ""
        raise EnvironmentFault(
            f"computing {copies}{m}x{k}x{n} needs {show(needed, Dimension.BYTES)} of memory, "
            f"{show(limit, Dimension.BYTES)} is available",
            hint="take smaller sizes; times need no arrays, only the numbers themselves do",
        )
    return needed

"""One thread for the matrix products of numpy while many small ones are computed.

Products of a few hundred rows take longer when they are shared out to threads than when they are
not, many times longer where other work is going on; and sums then depend on how many threads there
are. OpenBLAS, which numpy's wheels carry, can be told; another library is left as it is.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_NAMES = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
)


@contextmanager
def one_thread() -> Iterator[bool]:
    """Compute with one thread inside; gives whether the library could be told."""
    found = _controls()
    if found is None:
        yield False
        return
    count, tell = found
    before = count()
    tell(1)
    try:
        yield True
    finally:
        tell(before)


def _controls() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None:
    """Return OpenBLAS's functions that tell and set its number of threads."""
    module = next((sys.modules[name] for name in _MODULES if name in sys.modules), None)
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    library = ctypes.CDLL(path)
    for count, tell in _NAMES:
        if hasattr(library, count) and hasattr(library, tell):
            return getattr(library, count), getattr(library, tell)
    return None

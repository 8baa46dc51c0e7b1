"""Cuts of a matrix product and of attention for a core: legality, kernel schedules, split.

Both engines read the same schedule: tiles, loads, descriptor shapes and repetitions are decided
here and nowhere else.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Kernel: TypeAlias = Literal["naive", "hoisted", "blocked-free", "blocked"]
"""Kernel schedules, from the simplest to the best."""
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
DEFAULT_KERNEL: Kernel = "blocked"
Precision: TypeAlias = Literal["native", "fast"]
"""Use of a format by the tensor engine: its documented passes, or its fast mode."""
Cores: TypeAlias = int | Literal["all"]
"""Number of physical cores of a chip that share a product."""

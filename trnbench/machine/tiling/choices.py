"""Names that choose a matrix kernel; light, for commands that name it before numpy loads."""

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

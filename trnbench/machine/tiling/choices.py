"""What a matrix kernel is told by name; light, for questions name it before numpy loads."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Kernel: TypeAlias = Literal["naive", "hoisted", "blocked-free", "blocked"]
"""The kernel schedules, from the simplest to the best."""
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
DEFAULT_KERNEL: Kernel = "blocked"
Precision: TypeAlias = Literal["native", "fast"]
"""How the tensor engine takes a format: its documented passes, or its fast mode."""
Cores: TypeAlias = int | Literal["all"]
"""How many physical cores of a chip share a product."""

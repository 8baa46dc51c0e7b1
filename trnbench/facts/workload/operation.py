"""Names of the collective operations."""

from __future__ import annotations

from typing import Literal, get_args

Op = Literal[
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "permute",
    "send-receive",
]
OPS: tuple[Op, ...] = get_args(Op)

"""Exchange of a sequence for attention between context-parallel ranks: values of the knob.

ring          keys and values circulate through all ranks
all-to-all    each rank gets all tokens of some heads
hybrid:4      all-to-all among 4 neighbours, whose tokens' keys and values circulate in a ring
"""

from __future__ import annotations

EXCHANGES = ("ring", "all-to-all", "hybrid")
_HYBRID = "hybrid:"


def exchange_named(text: str) -> str:
    """Canonical text of an exchange; ValueError for an invalid text."""
    if text in EXCHANGES[:2]:
        return text
    number = text.removeprefix(_HYBRID)
    if not text.startswith(_HYBRID) or not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is none of ring, all-to-all, hybrid:4 (ranks of an all-to-all)")
    if not 1 < int(number) < 10**6:
        raise ValueError(f"expects 2 ranks or more that exchange all to all, found {text!r}")
    return f"{_HYBRID}{int(number)}"


def neighbours_of(exchange: str) -> int | None:
    """Ranks of an all-to-all inside a ring; None without a hybrid."""
    return int(exchange.removeprefix(_HYBRID)) if exchange.startswith(_HYBRID) else None

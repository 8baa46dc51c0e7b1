"""How ranks that share a sequence exchange it for attention: the texts of the knob.

ring          keys and values go round all of them
all-to-all    each gets all tokens of some heads
hybrid:4      all-to-all among 4 neighbours, whose tokens' keys and values go round the others
"""

from __future__ import annotations

EXCHANGES = ("ring", "all-to-all", "hybrid")
_HYBRID = "hybrid:"


def exchange_named(text: str) -> str:
    """Return an exchange as it is always written; ValueError says what of the text is wrong."""
    if text in EXCHANGES[:2]:
        return text
    number = text.removeprefix(_HYBRID)
    if not text.startswith(_HYBRID) or not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is none of ring, all-to-all, hybrid:4 (ranks of an all-to-all)")
    if not 1 < int(number) < 10**6:
        raise ValueError(f"expects 2 ranks or more that exchange all to all, found {text!r}")
    return f"{_HYBRID}{int(number)}"


def neighbours_of(exchange: str) -> int | None:
    """Return how many ranks exchange all to all inside a ring; None where no ring is split so."""
    return int(exchange.removeprefix(_HYBRID)) if exchange.startswith(_HYBRID) else None

"""Clusters as commands take them: INSTANCE or INSTANCE:NODES, several with commas between."""

from __future__ import annotations

from trnbench.errors import InputError

MAX_NODES = 1_000_000


def places(text: str) -> tuple[tuple[str, int], ...]:
    """Return (instance, nodes) of each cluster; the instance's name is not looked up."""
    return tuple(_place(part) for part in text.split(","))


def _place(text: str) -> tuple[str, int]:
    name, colon, nodes = text.strip().partition(":")
    if not name:
        raise InputError(f"--on: an empty name in {text!r}")
    if colon and not (nodes.isdecimal() and len(nodes) <= 7 and 1 <= int(nodes) <= MAX_NODES):
        raise InputError(f"--on: nodes must be a number from 1 to {MAX_NODES:,}, found {nodes!r}")
    return name, int(nodes) if colon else 1

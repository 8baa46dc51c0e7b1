"""Escape pressed right before another key, which a terminal sends as it sends Alt with that key.

Over a slow line, or from quick hands, both arrive together: Textual then reads Alt, or the
character that macOS types with it, and the way out of a field is lost. No key here needs Alt.
"""

from __future__ import annotations

from collections.abc import Collection

from textual import events

_ALT = "alt+"
_TYPED = dict(zip("¡™£¢∞§¶•ªº", "1234567890", strict=True))
"""What Textual makes of Alt with a digit."""


def read_apart(event: events.Key, wanted: Collection[str]) -> tuple[events.Key, ...]:
    """Pressed keys, singly; those `wanted` with Alt stay together."""
    digit = _TYPED.get(event.character or "")
    key = digit or event.key.removeprefix(_ALT).removeprefix("shift+")
    if (digit is None and not event.key.startswith(_ALT)) or {event.key, _ALT + key} & {*wanted}:
        return (event,)
    character = digit or event.character
    return events.Key("escape", "\x1b"), events.Key(character or key, character)

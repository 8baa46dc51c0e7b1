"""Keys that arrive together: each is done with before the next is handed over."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from textual import constants, events
from textual.app import App
from textual.dom import DOMNode
from textual.drivers.linux_driver import XTermParser  # type: ignore[attr-defined]
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

STUCK_S = 5.0
"""A key that is not done with after so long holds back the next no longer."""
_ALT = "alt+"
_BY_WORDS = {"alt+b": "ctrl+left", "alt+f": "ctrl+right"}
_TOGETHER = re.compile(
    r"\x1b\[200~.*?(?:\x1b\[201~|\Z)|\x1b(?P<key>[^\x1b\x7f\[\]OPX^_])", re.DOTALL
)
"""A paste, which has no keys; or Escape before a character that begins no sequence of codes."""


class KeyParser(XTermParser):
    """Reads Escape with a character behind it as that character with Alt, whatever it is.

    Textual knows Alt with letters only, and keeps what follows back until nothing more comes.
    """

    _held_until = 0.0

    def feed(self, data: str) -> Iterable[Message]:
        """Yield what was pressed; an Escape at the end waits for what comes behind it."""
        if not data:
            yield from super().feed(data)
            return
        data = "\x1b" * bool(self._held_until) + data
        self._held_until = 0.0
        if data[-1] == "\x1b":
            data, self._held_until = data[:-1], time.monotonic() + constants.ESCAPE_DELAY
        at = 0
        for found in _TOGETHER.finditer(data):
            begin = found.end() if found["key"] is None else found.start()
            if begin > at:
                yield from super().feed(data[at:begin])
            for key in super().feed(found["key"]) if found["key"] else ():
                if isinstance(key, events.Key):
                    yield events.Key(_ALT + key.key, key.character)
            at = found.end()
        if len(data) > at:
            yield from super().feed(data[at:])

    def tick(self) -> Iterable[Message]:
        """Yield an Escape behind which nothing came."""
        if 0.0 < self._held_until <= time.monotonic():
            self._held_until = 0.0
            yield events.Key("escape", "\x1b")
        yield from super().tick()


def read_apart(event: events.Key, wanted: Collection[str], *, typing: bool) -> Iterator[events.Key]:
    """Pressed keys, singly; those `wanted` with Alt stay together.

    A terminal sends Escape right before another key as it sends Alt with that key. Over a slow
    line, or from quick hands, both arrive together: Textual then reads Alt, and the way out of a
    field is lost. No key here needs Alt, but for those that lead from word to word of a text.
    """
    if typing and event.key in _BY_WORDS:
        yield events.Key(_BY_WORDS[event.key], None)
    elif not event.key.startswith(_ALT) or event.key in wanted:
        yield event
    else:
        key = event.key.removeprefix(_ALT).removeprefix("shift+")
        yield events.Key("escape", "\x1b")
        yield events.Key(event.character or key if len(key) == 1 else key, event.character)


class KeysInOrder(App[None]):
    """Hands a key over once the key before it is done with, and what it opened has the keyboard.

    Textual hands keys to what has the keyboard as they arrive, and bindings of a screen or of the
    application act later, when a key has risen to them: keys typed quickly, or while a machine is
    busy, then overtake each other, and go to what the one before was about to leave.
    """

    def __init__(self) -> None:
        super().__init__()
        # A driver makes its parser by this name, and Textual has no other place to give one.
        vars(sys.modules[self.driver_class.__module__])["XTermParser"] = KeyParser
        self._unclaimed: events.Key | None = None

    def alt_keys(self) -> Collection[str]:
        """Keys with Alt that mean something."""
        return ()

    def screens(self) -> Iterable[Screen[object]]:
        """The screens that were opened."""
        return self.screen_stack

    def is_ready(self) -> bool:
        """Tell whether every screen that was opened has its widgets, and takes keys."""
        return all(screen.is_mounted for screen in self.screens())

    async def standing(self) -> None:
        """Wait until the screens are ready, and no widget has something to do."""
        while not self.is_ready() or any(
            node.message_queue_size for node in self.screen.walk_children(with_self=True)
        ):
            # They do it meanwhile; Textual has no public event to wait for.
            await asyncio.sleep(0)

    async def on_event(self, event: events.Event) -> None:
        """Take what is pressed in its order; of Escape and a key of one burst, Escape first."""
        if not isinstance(event, events.InputEvent | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif isinstance(event, events.Key):
            typing = isinstance(self.focused, Input)
            for key in read_apart(event, self.alt_keys(), typing=typing):
                await self._hand_over(key)
        else:
            await self._hand_over(event)

    async def _hand_over(self, event: events.Event) -> None:
        """Let what has the keyboard, and all around it, have done with what was pressed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_S):
                await self.standing()
        above = (self.focused or self.screen).ancestors_with_self
        await super().on_event(event)
        if isinstance(event, events.MouseEvent):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_S):
                await _risen(above)
        unclaimed, self._unclaimed = self._unclaimed, None
        if unclaimed is not None:
            await super().on_event(unclaimed)

    def post_message(self, message: Message) -> bool:
        """Keep a key that no widget wanted: it comes before the keys that wait here."""
        if isinstance(message, events.Key) and message.is_forwarded:
            self._unclaimed = message
            return True
        return super().post_message(message)


async def _risen(above: Sequence[DOMNode]) -> None:
    """Wait until a widget, and all around it, have seen what was handed to the widget."""
    for node in above:
        seen = asyncio.Event()
        if isinstance(node, Widget) and node.call_later(seen.set):
            await seen.wait()

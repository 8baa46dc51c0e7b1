"""A tab of the served terminal UI: messages of its page, and the process that paints the tab.

What a page sends is checked before the process hears of it, and bounded: a terminal of a hundred
thousand lines would take all memory. The process ends with the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from trnbench.facts.processes.children import python_words, started_with_pipes
from trnbench.facts.records import Record

COLUMNS = (20, 500)
ROWS = (5, 200)
"""Least and most columns and rows of a terminal; sizes beyond are taken as the nearest."""
LARGEST_BYTES = 1 << 18
"""A message of a page; larger ones, and larger pastes, close its socket."""
STUCK_S = 10.0
"""A process that has not taken a message by then is given up."""
LEAVE_S = 5.0
"""A process has so long to leave once its socket is closed."""


class MalformedMessage(Exception):
    """Reason why a message from a page is none that pages send."""


class TabMessage(Record, kw_only=False):
    """Message of a page: keys, a size in columns and rows, or a ping."""

    kind: str
    keys: str = ""
    size: tuple[int, int] = (0, 0)


def read_message(text: str) -> TabMessage:
    """The message in a text of JSON, its size one that can be painted."""
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedMessage("it is not JSON") from None
    match parts:
        case ["stdin" | "ping" as kind, str() as keys]:
            if not keys.isascii() and any("\ud800" <= letter <= "\udfff" for letter in keys):
                raise MalformedMessage("its text is not Unicode")
            return TabMessage(kind, keys=keys)
        case ["resize", {"width": int() as width, "height": int() as height}]:
            return TabMessage("resize", size=bounded(width, height))
        case ["focus" | "blur" as kind]:
            return TabMessage(kind)
    raise MalformedMessage("no page of trnbench sends it")


def bounded(width: int, height: int) -> tuple[int, int]:
    """Nearest paintable columns and rows of a tab."""
    return (min(max(width, COLUMNS[0]), COLUMNS[1]), min(max(height, ROWS[0]), ROWS[1]))


def asked_size(query: Mapping[str, str]) -> tuple[int, int]:
    """Columns and rows in an address, bounded; 80 by 24 without them."""

    def number(name: str, otherwise: int) -> int:
        text = query.get(name, "")
        # Numbers of thousands of digits are slow to read, and as good as these.
        return int(text[:9]) if text.isascii() and text.isdigit() else otherwise

    return bounded(number("width", 80), number("height", 24))


async def use_tab(websocket: Any, tab: Any) -> None:  # noqa: ANN401 - of an extra
    """Hand the messages of a socket to the process of its tab until either is gone."""
    async for message in websocket:
        if message.type.name == "ERROR":
            raise MalformedMessage(f"it has over {LARGEST_BYTES >> 10} KiB, or is not text")
        if message.type.name != "TEXT":
            continue
        read = read_message(message.data)
        async with asyncio.timeout(STUCK_S):
            match read.kind:
                case "stdin":
                    await tab.send_bytes(read.keys.encode())
                case "resize":
                    await tab.set_terminal_size(*read.size)
                case "ping":
                    await websocket.send_json(["pong", read.keys])
                case "focus":
                    await tab.focus()
                case _:
                    await tab.blur()


def tab_class() -> type[Any]:
    """The class of a tab's process, on top of textual-serve's."""
    from textual_serve.app_service import AppService

    base: Any = AppService  # typed or not, as it is installed or not

    class TabProcess(base):  # type: ignore[misc]
        """A process that ends with its socket, and with the server; `command`: its words."""

        async def _open_app_process(self, width: int = 80, height: int = 24) -> Any:  # noqa: ANN401
            painted = self._build_environment(width=width, height=height)
            words = python_words("trnbench.__main__:run", *self.command)
            self._process = await started_with_pipes(words, painted)
            self._stdin = self._process.stdin
            return self._process

        async def stop(self) -> None:
            """Ask the process to leave, and kill a process that stays."""
            process: asyncio.subprocess.Process | None = self._process
            if process is None:
                return
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await super().stop()
                        await process.wait()
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()

    return TabProcess

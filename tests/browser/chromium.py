"""A headless Chromium driven over its DevTools protocol, as far as tests of pages need it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
START_S = 30.0


def found() -> str | None:
    """Return the browser of this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab: `told` collects the faults that its console and its log name."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future] = {}
        self.told: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            elif _is_fault(said["method"], said["params"]):
                self.told.append(json.dumps(said["params"])[:400])

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        said = await asyncio.wait_for(answer, START_S)
        assert "error" not in said, said["error"]
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, address: str) -> None:
        await self.send("Page.navigate", url=address)
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = await self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until a script is true, and return its value."""
        for _ in range(600):
            if value := await self.value(script):
                return value
            await asyncio.sleep(0.05)
        raise AssertionError(f"never: {script}")

    async def show(self, width: int, height: int, scheme: str = "light", media: str = "") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", media=media, features=wanted)

    async def picture(self, path: Path) -> None:
        answer = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def pdf(self) -> bytes:
        return base64.b64decode((await self.send("Page.printToPDF"))["data"])


def _is_fault(method: str, told: dict[str, Any]) -> bool:
    match method:
        case "Runtime.exceptionThrown":
            return True
        case "Runtime.consoleAPICalled":
            return told["type"] in ("error", "assert")
        case "Log.entryAdded":
            return bool(told["entry"]["level"] == "error")
    return False


@asynccontextmanager
async def page(folder: Path) -> AsyncIterator[Page]:
    """Open a browser with one tab; its profile lies in the folder."""
    import aiohttp

    program = found()
    assert program is not None
    profile = folder / "profile"
    process = subprocess.Popen(
        [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio"),
            *("--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
            *(f"--user-data-dir={profile}", "about:blank"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = await _port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
            address = tabs[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Page(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log"):
                    await tab.send(f"{domain}.enable")
                yield tab
                listening.cancel()
    finally:
        process.terminate()
        process.wait(START_S)


async def _port(file: Path) -> int:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        lines = file.read_text().split() if file.is_file() else []
        if lines:
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise AssertionError("the browser did not start")

"""The terminal UI in a browser: opens with its token alone, takes keys, plans again, exports."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.browser.chromium import page
from trnbench.store.database import opened
from trnbench.store.runs import listed
from trnbench.verbs.runs.run import read_run

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27}


def until_open(port):
    """Return when somebody listens: the address is printed a moment before."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=20).close()
            return


@contextmanager
def served(folder, view, idle):
    """Serve a view; yield the address with its token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG", "DATA")}
    line = [sys.executable, "-m", "trnbench", "tui", view, "--serve"]
    process = subprocess.Popen(
        [*line, "--port", str(port), "--idle", idle],
        env={**os.environ, **homes, "TRNBENCH_KEEP": "1"},
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found, said
        until_open(port)
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        process.stderr.close()


async def press(tab, *keys: str):
    """Press named keys, ctrl+u, or type texts."""
    for key in keys:
        if key in KEYS:
            code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            more: dict[str, object] = {"text": "\r"} if key == "Enter" else {}
        elif key == "ctrl+u":
            code = {"key": "u", "code": "KeyU", "windowsVirtualKeyCode": 85}
            more = {"modifiers": 2}
        else:
            await tab.send("Input.insertText", text=key)
            continue
        await tab.send("Input.dispatchKeyEvent", type="keyDown", **code, **more)
        await tab.send("Input.dispatchKeyEvent", type="keyUp", **code, **more)


async def typed(tab, picture, *keys):
    """Press keys, each when the screen shows the one before: a field is entered, then filled."""
    for key in keys:
        await tab.picture(picture)
        before, end = picture.read_bytes(), time.monotonic() + 20
        await press(tab, key)
        while picture.read_bytes() == before and time.monotonic() < end:
            await asyncio.sleep(0.05)
            await tab.picture(picture)


def newest(folder):
    """Return the newest kept run with its answer, or None: what the served process has shown."""
    path = folder / "DATA" / "trnbench" / "runs" / "runs.db"
    if not path.exists():
        return None
    with opened(path, say=print) as connection:
        return read_run(connection, "last") if listed(connection, {}, 1)[0] else None


async def until(wanted):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found := wanted():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("this never came to be")


async def exported(tab, folder, days):
    """Press the key of an export until the rows in the new file are those of an answer."""
    for _ in range(40):
        before = {*folder.glob("*.csv")}
        await press(tab, "e")
        (new,) = await until(lambda known=before: {*folder.glob("*.csv")} - known)
        rows = list(csv.DictReader(new.read_text().splitlines()))
        if [float(row["days"]) for row in rows if row.get("days")] == days:
            return rows
    raise AssertionError(f"never exported: {days}")


def days_of(run):
    return [row["days"] for row in run.answer.rows if row["days"] is not None]


def test_the_served_ui_opens_types_plans_again_and_exports(tmp_path):
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    (tmp_path / "CONFIG" / "trnbench").mkdir(parents=True)
    mine = 'instances = ["trn1.32xlarge", "p5.48xlarge"]\n'
    (tmp_path / "CONFIG" / "trnbench" / "trnbench.toml").write_text(mine)

    async def use(address):
        async with page(tmp_path) as tab:
            given = {"behavior": "allow", "downloadPath": str(downloads)}
            await tab.send("Page.setDownloadBehavior", **given)
            await tab.show(1300, 800)
            await tab.open(address)
            title = await tab.value("document.title")
            await tab.until("document.activeElement.className === 'xterm-helper-textarea'")
            first = await until(lambda: newest(tmp_path))
            rows = await exported(tab, downloads, days_of(first))
            await tab.picture(tmp_path / "served-1300.png")
            asking = ("f", "Tab", "ctrl+u", "llama2-7b", "Enter", "Escape")
            await typed(tab, tmp_path / "typed.png", *asking)
            asked = ("llama2-7b",)
            second = await until(lambda: (one := newest(tmp_path)).run.models == asked and one)
            await tab.show(700, 500)
            again = await exported(tab, downloads, days_of(second))
            await tab.picture(tmp_path / "served-700.png")
            return title, first, rows, second, again, tab.told

    with served(tmp_path, "compare", "5min") as address:
        title, first, rows, second, again, told = asyncio.run(use(address))
    assert title == "trnbench"
    assert [row["instance"] for row in rows] == ["trn1.32xlarge", "p5.48xlarge"]
    assert first.run.verb == second.run.verb == "compare"
    assert first.run.models == ("llama3.1-70b",)
    assert days_of(second) != days_of(first)
    assert len(again) == 2
    assert told == []
    assert not list(tmp_path.glob("trnbench-*.csv"))


def test_a_tab_needs_the_token_its_own_page_and_somebody_there(tmp_path):
    import aiohttp

    async def knock(address):
        plain, token = address.split("/?token=")
        async with aiohttp.ClientSession() as session:

            async def status(path="/", **headers):
                async with session.get(plain + path, headers=headers) as answer:
                    return answer.status

            codes = [await status(), await status("/?token=wrong"), await status("/static/x")]
            asked = f"/ws?token={token}&width=80&height=24"
            codes += [await status(asked), await status(asked, Origin="http://evil.example")]
            codes.append(await status(f"/?token={token}", Host="evil.example"))
            async with session.get(address) as answer:
                page_text, cookie = await answer.text(), answer.headers["Set-Cookie"]
            began = time.monotonic()
            async with session.ws_connect(plain + asked, origin=plain) as tab:
                async for _ in tab:
                    pass
            return codes, page_text, cookie, time.monotonic() - began

    with served(tmp_path, "matrix", "2s") as address:
        codes, page_text, cookie, lasted = asyncio.run(knock(address))
    assert codes == [403, 403, 403, 403, 403, 421]
    assert "googleapis" not in page_text
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert 1.5 < lasted < 30

"""The server of the terminal UI: what its pages may send, and what becomes of their processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.processes import begun, marked, until
from trnbench.tui.serve import Served
from trnbench.tui.served_tab import (
    COLUMNS,
    LARGEST_BYTES,
    ROWS,
    MalformedMessage,
    TabMessage,
    asked_size,
    read_message,
)

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["stdin", "q"]', TabMessage("stdin", keys="q")),
        ('["ping", "1732"]', TabMessage("ping", keys="1732")),
        ('["focus"]', TabMessage("focus")),
        ('["blur"]', TabMessage("blur")),
        ('["resize", {"width": 120, "height": 40}]', TabMessage("resize", size=(120, 40))),
        (
            '["resize", {"width": 100000, "height": 100000}]',
            TabMessage("resize", size=(COLUMNS[1], ROWS[1])),
        ),
        ('["resize", {"width": -1, "height": 0}]', TabMessage("resize", size=(20, 5))),
    ],
)
def test_messages_of_a_page_are_read_and_their_sizes_bounded(text, expected):
    assert read_message(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "{}",
        "[]",
        "7",
        "[7]",
        '["stdin"]',
        '["stdin", 7]',
        '["stdin", "\\ud800"]',
        '["resize", {"width": 80}]',
        '["resize", {"width": 1e9, "height": 3}]',
        '["resize", [80, 24]]',
        '["ping", {}]',
        '["quit"]',
    ],
)
def test_other_messages_are_malformed(text):
    with pytest.raises(MalformedMessage):
        read_message(text)


@pytest.mark.parametrize(
    ("query", "size"),
    [
        ({}, (80, 24)),
        ({"width": "120", "height": "40"}, (120, 40)),
        ({"width": "9" * 5000, "height": "0"}, (500, 5)),
        ({"width": "-4", "height": "x"}, (80, 24)),
    ],
)
def test_an_address_asks_for_a_size_that_can_be_painted(query, size):
    assert asked_size(query) == size


def test_two_servers_of_a_host_have_cookies_of_their_own():
    names = {Served(host="127.0.0.1", port=port, idle_s=1.0).cookie for port in (8000, 8001)}
    assert len(names) == 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serving(tmp_path):
    words = [sys.executable, "-P", "-m", "trnbench", "tui", "matrix", "--serve"]
    return begun([*words, "--port", str(free_port())], tmp_path, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_malformed_message_is_a_line_and_closes_its_socket_alone(tmp_path):
    wrong = ['["stdin", 7]', "[" * 100_000, json.dumps(["stdin", "x" * LARGEST_BYTES])]

    async def use(address, mark):
        origin = address.partition("/?")[0]
        token = address.partition("token=")[2]

        def tabs():
            return [line for line in marked(mark).values() if "__main__:run" in line]

        async with aiohttp.ClientSession() as session:

            def opened():
                query = f"/ws?token={token}&width=99999999999&height=99999999999"
                return session.ws_connect(origin + query, headers={"Origin": origin})

            async def there(count):
                await asyncio.to_thread(until, lambda: len(tabs()) == count)

            async with opened() as good:
                await there(1)
                for text in wrong:
                    async with opened() as bad:
                        await there(2)
                        await bad.send_str(text)
                        async with asyncio.timeout(60):
                            async for _ in bad:
                                pass
                    await there(1)
                await good.send_str('["ping", "here"]')
                async with asyncio.timeout(60):
                    async for message in good:
                        if message.type is aiohttp.WSMsgType.TEXT:
                            assert message.json() == ["pong", "here"]
                            break
            await there(0)
            async with opened():
                await there(1)
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(until, lambda: not marked(mark))

    with serving(tmp_path) as (process, mark):
        said = process.stderr.readline()
        address = re.search(r"http://\S+", said)
        assert address, said
        process.stderr.readline()
        port = int(re.findall(r":(\d+)/", address[0])[0])

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(listens)
        asyncio.run(use(address[0], mark))
        told = process.stderr.read().splitlines()
    assert len(told) == len(wrong)
    assert all(line.startswith("trnbench: a tab is closed") for line in told)

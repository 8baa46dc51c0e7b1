"""The terminal UI in a browser: each tab is a process of its own, reached with a secret alone.

textual-serve asks nobody who they are. Here a request needs the token of the address that was
printed, or the cookie that it left; a socket must come from a page of this server; a tab that
nobody touches ends.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from trnbench.errors import EnvironmentFault
from trnbench.facts.records import Record
from trnbench.tui.served_tab import LARGEST_BYTES, MalformedMessage, asked_size, tab_class, use_tab

TOKEN = "token"
"""Names the secret in the address."""
MOST_TABS = 8
"""Each is a process that may search millions of layouts."""
TOUCHES = ('["stdin"', '["resize"', '["focus"')
"""How messages of a tab begin that somebody uses."""
_ELSEWHERE = re.compile(r"<link[^>]*//fonts\.googleapis\.com[^>]*>")
"""Link of the page to a font on another server; every browser has a font of its own."""
_HEAD = """<title>trnbench</title><link rel="icon" href="data:,"><script>
new MutationObserver((_, watch) => {
  const keys = document.querySelector(".xterm-helper-textarea");
  if (!keys || !document.body.classList.contains("-first-byte")) return;
  watch.disconnect();
  keys.focus();
}).observe(document, {subtree: true, childList: true, attributeFilter: ["class"]});
</script>"""
"""What the page lacks: a name, and the keyboard, without a click, once something is painted."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self' ws:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Served(Record):
    """Address of the served terminal UI, options of its start, and the end of idle tabs."""

    host: str
    port: int
    idle_s: float
    view: str | None = None
    spec_dirs: Sequence[Path] = ()
    ascii_only: bool = False

    @property
    def words(self) -> list[str]:
        """The command line of a tab, behind `trnbench`."""
        words = ["tui", *([self.view] if self.view else []), *["--ascii"] * self.ascii_only]
        for folder in self.spec_dirs:
            words += ["--spec-dir", str(folder)]
        return words

    @property
    def cookie(self) -> str:
        """The cookie that keeps the secret: those of all ports of a host are one browser's."""
        return f"trnbench-{TOKEN}-{self.port}"

    @property
    def is_local(self) -> bool:
        """True when only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def serve(served: Served, say: Callable[[str], object]) -> int:
    """Serve until a signal ends it; return the exit code."""
    try:
        import textual_serve
    except ImportError:
        raise EnvironmentFault(
            "--serve needs textual-serve", hint="pip install 'trnbench[serve]'"
        ) from None
    assert textual_serve
    _check_free(served)
    token = secrets.token_urlsafe(24)
    server = _server(served, token, say)
    if not served.is_local:
        say(
            f"warning: whoever knows this address acts with your rights, over an unencrypted "
            f"connection. From another machine better: "
            f"ssh -L {served.port}:127.0.0.1:{served.port} THIS_MACHINE"
        )
    say(f"open {server.public_url}/?{TOKEN}={token}")
    say("Ctrl-C ends it")
    server.serve()
    return 0


def _check_free(served: Served) -> None:
    family = socket.AF_INET6 if ":" in served.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((served.host, served.port))
        except OSError as error:
            raise EnvironmentFault(
                f"cannot serve on {served.host}:{served.port}: {error.strerror}",
                hint="choose another with --port",
            ) from error


def _server(served: Served, token: str, say: Callable[[str], object]) -> Any:  # noqa: ANN401 - a class of an extra
    from aiohttp import web
    from textual_serve.server import Server

    name = socket.gethostname() if served.host in ("0.0.0.0", "::") else served.host
    netloc = f"[{name}]" if ":" in name else name
    address = f"http://{netloc}:{served.port}"

    tab_process = tab_class()
    base: Any = Server  # typed or not, as it is installed or not

    class GuardedServer(base):  # type: ignore[misc]
        """A server that lets in who knows the token."""

        tabs = 0

        def initialize_logging(self) -> None:
            """Log nothing: lines of requests would tell the token."""

        async def on_startup(self, app: web.Application) -> None:
            """Say nothing: the server has said its address."""

        async def _make_app(self) -> web.Application:
            app: web.Application = await super()._make_app()
            app.middlewares.append(_guard(address, token, served.cookie))
            return app

        async def handle_index(self, request: web.Request) -> web.StreamResponse:
            response = await super().handle_index(request)
            named = response.text.replace("<html>", '<html lang="en">', 1)
            response.text = _ELSEWHERE.sub(lambda _: _HEAD, named)
            return cast("web.StreamResponse", response)

        async def handle_websocket(self, request: web.Request) -> web.StreamResponse:
            if self.tabs >= MOST_TABS:
                raise web.HTTPServiceUnavailable(text=f"{MOST_TABS} tabs are open already")
            self.tabs += 1
            websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=LARGEST_BYTES)
            try:
                await websocket.prepare(request)
                tab = tab_process(
                    self.command,
                    write_bytes=websocket.send_bytes,
                    write_str=websocket.send_str,
                    close=websocket.close,
                    download_manager=self.download_manager,
                )
                try:
                    await tab.start(*asked_size(request.query))
                    await self.use(websocket, tab)
                except MalformedMessage as error:
                    say(f"trnbench: a tab is closed, for its page sent a message: {error}")
                except (OSError, TimeoutError) as error:
                    say(f"trnbench: a tab is closed: {error or 'its process does not listen'}")
                finally:
                    await tab.stop()
            finally:
                self.tabs -= 1
                await websocket.close()
            return websocket

        async def use(self, websocket: Any, tab: Any) -> None:  # noqa: ANN401
            watched = _Watched(websocket, served.idle_s)
            idle = asyncio.create_task(watched.end_when_idle())
            try:
                await use_tab(watched, tab)
            finally:
                idle.cancel()

    return GuardedServer(
        served.words, host=served.host, port=served.port, title="trnbench", public_url=address
    )


def _guard(address: str, token: str, cookie: str) -> Any:  # noqa: ANN401 - a middleware of an extra
    from aiohttp import web

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # A page of another site that resolves to this machine has another name in `Host`.
        if request.host != address.removeprefix("http://"):
            raise web.HTTPMisdirectedRequest(text=f"this is {address}")
        given = request.query.get(TOKEN, "")
        secret = given or request.cookies.get(cookie, "")
        if not hmac.compare_digest(secret.encode(), token.encode()):
            raise web.HTTPForbidden(text="open the address that trnbench printed, with its token")
        origin = request.headers.get("Origin")
        if (request.path == "/ws" or origin is not None) and origin != address:
            raise web.HTTPForbidden(text="this socket is for pages of this server alone")
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
            if given:
                response.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
        return response

    return guard


class _Watched:
    """A socket of a tab that knows when somebody last used it."""

    def __init__(self, websocket: Any, idle_s: float) -> None:  # noqa: ANN401
        self._websocket = websocket
        self._idle_s = idle_s
        self._touched = asyncio.get_running_loop().time()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self._websocket:
            if message.type.name == "TEXT" and message.data[:12].startswith(TOUCHES):
                self._touched = asyncio.get_running_loop().time()
            yield message

    async def send_json(self, data: object) -> None:
        await self._websocket.send_json(data)

    async def end_when_idle(self) -> None:
        """Close a socket that nobody has used for long; its process then ends."""
        loop = asyncio.get_running_loop()
        while (left := self._touched + self._idle_s - loop.time()) > 0:
            await asyncio.sleep(left)
        await self._websocket.close(message=b"nobody was here")

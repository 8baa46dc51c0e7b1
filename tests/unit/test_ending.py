"""A request to end is heard wherever it comes: in an import, a callback, `__del__`."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HEAD = """
import os, signal, sys, weakref
from trnbench.facts.processes.ending import Requests
def ask(*_): os.kill(os.getpid(), signal.{name})
class Thing:
    pass
with Requests():
"""
CALLBACK = """
    thing = Thing()
    ref = weakref.ref(thing, ask)
    del thing
    while True: pass
"""
DELETED = """
    Thing.__del__ = ask
    thing = Thing()
    del thing
    while True: pass
"""
IMPORT = """
    sys.path.insert(0, {folder!r})
    try:
        import asks
    except BaseException:
        os._exit(4)  # half a module
    while True: pass
"""
PLAIN = """
    ask()
    while True: pass
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("body", [PLAIN, CALLBACK, DELETED, IMPORT])
def test_a_request_to_end_is_never_lost(tmp_path, name, body):
    if body is IMPORT and name == "SIGINT":
        body = CALLBACK  # Ctrl-C in an import is Python's own
    (tmp_path / "asks.py").write_text("import __main__\n__main__.ask()\nfor _ in range(99): pass\n")
    code = HEAD.format(name=name) + body.replace("{folder!r}", repr(str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, timeout=60
    )
    number = getattr(signal, name)
    assert done.returncode in ((-number, 130) if name == "SIGINT" else (128 + number,))
    assert b"ignored" not in done.stderr


def test_what_else_python_ignores_is_told_as_ever(tmp_path):
    code = HEAD.format(name="SIGTERM") + (
        "    def broken(_): raise ValueError('broken')\n"
        "    thing = Thing()\n    ref = weakref.ref(thing, broken)\n    del thing\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "ValueError: broken" in done.stderr

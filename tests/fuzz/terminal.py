"""A command in a real terminal: a pty of its own, what it wrote, and what it leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import suppress

LONGEST_S = 60.0
"""For a start on a busy machine; nothing passes or fails by it."""
AGAIN_S = 2.0
"""A key that did nothing for so long is pressed again."""
LEFT = b"\x1b[?1049l"
"""Written last of all: the screen is given back."""
END = b"\x1b]nothing follows\x07"


class Terminal:
    """Runs a command in a pty of some size."""

    def __init__(self, arguments, environment, *, columns=120, lines=40, cwd=None):
        self.master, self._slave = pty.openpty()
        self._set_size(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        self.written = b""
        self.process = subprocess.Popen(
            arguments,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            # A person sits before it, also where a CI job runs the test.
            env={name: value for name, value in environment.items() if name != "CI"},
            cwd=cwd,
            start_new_session=True,
        )

    def _set_size(self, columns, lines):
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def resize(self, columns, lines):
        self._set_size(columns, lines)
        # In a session of its own, without a terminal that controls it, nobody else tells it.
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys):
        with suppress(OSError):
            os.write(self.master, keys)

    def read(self, wait_s=0.2):
        """Take what the command has written; tell whether it can write more."""
        with suppress(OSError):
            while select.select([self.master], [], [], wait_s)[0]:
                more = os.read(self.master, 65536)
                if not more:
                    return False
                self.written += more
                wait_s = 0
        return self.process.poll() is None

    def until(self, text):
        """Read until a text has been written."""
        end = time.monotonic() + LONGEST_S
        while text not in self.written:
            assert self.read(), f"ended without {text!r}: {self.written[-500:]!r}"
            assert time.monotonic() < end, f"no {text!r}: {self.written[-500:]!r}"

    def ended(self):
        """Read until the command has ended; return its exit code."""
        end = time.monotonic() + LONGEST_S
        while self.process.poll() is None:
            self.read()
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"did not end: {self.written[-500:]!r}")
        self._drain()
        return self.process.returncode

    def _drain(self):
        """Take all that the command has written: a terminal hands it on some time after its end."""
        end = time.monotonic() + LONGEST_S
        os.set_blocking(self._slave, False)
        unsent = END
        while not self.written.endswith(END):
            assert time.monotonic() < end, f"nothing came back: {self.written[-500:]!r}"
            with suppress(BlockingIOError):
                unsent = unsent[os.write(self._slave, unsent) :] if unsent else b""
            self.read(0.05)
        self.written = self.written.removesuffix(END)

    def left_by(self, keys):
        """Press keys until the command leaves; return its exit code.

        Not once it has left the screen: in its usual modes a terminal takes ctrl+c for a signal,
        and drops what is on its way to the screen.
        """
        end = time.monotonic() + LONGEST_S
        left = False
        while not left and self.process.poll() is None and time.monotonic() < end:
            begun, again = len(self.written), time.monotonic() + AGAIN_S
            self.press(keys)
            while not left and self.read() and time.monotonic() < again:
                left = LEFT in self.written[begun:]
        return self.ended()

    @property
    def restored(self):
        """Whether the terminal is as it was: modes, the main screen, no reports of the mouse."""
        modes = termios.tcgetattr(self._slave) == self.before
        screen = self.written.rfind(b"\x1b[?1049l") >= self.written.rfind(b"\x1b[?1049h")
        mouse = self.written.rfind(b"\x1b[?1000l") >= self.written.rfind(b"\x1b[?1000h")
        return modes and screen and mouse

    def vanish(self):
        """Take the terminal away; the command, which it does not control, gets no signal."""
        for handle in (self.master, self._slave):
            os.close(handle)
        self.master = self._slave = -1

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for handle in (self.master, self._slave):
            with suppress(OSError):
                os.close(handle)

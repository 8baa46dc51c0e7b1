"""The terminal UI in a real terminal: what is painted, not only what is meant to be."""

from __future__ import annotations

import signal

import pytest

from tests.fuzz.terminal import LONGEST_S
from tests.tui.screen import ScreenTerminal


@pytest.fixture
def terminal(home):
    opened = []

    def make(*arguments, **size):
        opened.append(ScreenTerminal(*arguments, home=home, **size))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.slow
def test_a_form_is_painted_and_left_and_a_request_to_end_leaves_a_sane_terminal(terminal):
    screen = terminal("matrix")
    screen.shows("trainium1")
    screen.press(b"f")
    screen.shows("sparsity", absent="rate (TFLOP/s)")
    screen.press(b"\x1b")
    screen.shows("rate (TFLOP/s)", absent="sparsity")
    screen.press(b"\x03")
    screen.shows("again leaves")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ended() == 128 + signal.SIGTERM
    assert screen.restored


@pytest.mark.slow
def test_escape_and_a_key_that_follows_at_once_are_two_keys(terminal):
    screen = terminal("matrix")
    screen.shows("trainium1")
    screen.press(b"f")
    screen.shows("sparsity", absent="rate (TFLOP/s)")
    # A terminal sends Alt with the key in the same way.
    screen.press(b"\x1b4")
    screen.shows("[Evidence")
    screen.press(b"\x1b3")
    screen.shows("[Matrix", absent="sparsity")


@pytest.mark.slow
def test_keys_of_one_write_go_where_the_key_before_each_leads(terminal, home):
    screen = terminal("compare")
    screen.shows("trn1.32xlarge")
    for written, led_to in (
        (b"f\t\x15llama2-7b\r", "llama2-7b, 2T > compare"),
        (b"\x1bmllama3.1-8b\r", "llama3.1-8b, 2T > compare"),
        (b"\x1b3f\t\t\x15trainium2\r", "> trainium2 > matrix"),
        (b"\x1b1/trn2\r", "filter: trn2"),
        (b"f\x1b\x1b", "6 rows"),
        (b"\x10view: layouts\r", "[Layouts]"),
        (b"f\x1b?", "keys"),
        (b"\x1b1wone.toml\r", "scenario saved"),
    ):
        screen.press(written)
        screen.shows(led_to)
    assert (home / "one.toml").is_file()
    assert not list(home.glob("*.csv"))


@pytest.mark.slow
def test_where_the_terminal_goes_without_a_word_the_application_ends(terminal):
    screen = terminal("matrix")
    screen.shows("trainium1")
    screen.vanish()
    assert screen.process.wait(LONGEST_S) == 128 + signal.SIGHUP


@pytest.mark.slow
def test_a_request_to_quit_gives_the_screen_back(terminal):
    screen = terminal("matrix")
    screen.shows("trainium1")
    screen.process.send_signal(signal.SIGQUIT)
    assert screen.ended() == 128 + signal.SIGQUIT
    assert screen.restored

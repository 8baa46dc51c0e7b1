"""The only module that writes to stderr and decides exit codes.

0    done
1    well-formed, but the answer is no
2    malformed input
3    the environment
70   our bug
130  interrupted; what was ready has been written
129, 143  asked to end, by SIGHUP or SIGTERM
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import typer

from trnbench.errors import TrnbenchError
from trnbench.facts.processes.ending import ENDED_BY
from trnbench.facts.terminal_text import shown, shown_lines

DEBUG_VARIABLE = "TRNBENCH_DEBUG"
REPORT_TO = "https://github.com/trnbench/trnbench/issues"


class ExitCode(IntEnum):
    """Exit status of the process."""

    DONE = 0
    ANSWER_IS_NO = 1
    MALFORMED = 2
    ENVIRONMENT = 3
    BUG = 70
    INTERRUPTED = 130


def command_group(help: str) -> typer.Typer:
    """Group of commands that shows its help where none of them is named."""
    group = typer.Typer(help=help, invoke_without_command=True, rich_markup_mode=None)

    @group.callback()
    def help_alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit

    return group


def say(text: str) -> None:
    """Write one line of narration to stderr; a closed stderr is nobody's fault."""
    try:
        sys.stderr.write(shown_lines(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def watched() -> bool:
    return sys.stderr.isatty() and not os.environ.get("CI")


def say_in_place(text: str) -> None:
    """Write over the current line of stderr; no text wipes it."""
    try:
        sys.stderr.write(f"\r\x1b[K{shown(text)}")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def guarded(action: Callable[[], object], *, debug: bool) -> int:
    """Run `action` and return its exit code; every failure becomes a line, never a traceback."""
    try:
        code = action()
        with pipe_may_end():
            sys.stdout.flush()
    except TrnbenchError as error:
        return _failed(f"error: {error.message}", error.hint, error.exit_code, debug)
    except typer.TyperException as error:
        return _usage(error, debug)
    except (KeyboardInterrupt, typer.Abort):
        say("trnbench: interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _silent_exit()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # which Typer takes for a failure
            return _silent_exit()
        code = error.code if isinstance(error.code, int) else ExitCode.MALFORMED
        if code > ENDED_BY:
            say("trnbench: interrupted")
        return code
    except OSError as error:
        if error.errno == errno.ENOENT and not error.filename and _folder_is_gone():
            gone = "error: the working folder is gone"
            remedy = "change to a folder that is there"
            return _failed(gone, remedy, ExitCode.ENVIRONMENT, debug)
        place = f"{error.filename}: " if error.filename else ""
        hint = "free some space and run it again" if error.errno == errno.ENOSPC else None
        return _failed(f"error: {place}{error.strerror}", hint, ExitCode.ENVIRONMENT, debug)
    except MemoryError:
        hint = "ask for a smaller size, or use the analytic engine"
        return _failed("error: not enough memory", hint, ExitCode.ENVIRONMENT, debug)
    except Exception as error:
        what = f"internal error: {type(error).__name__}: {error}"
        hint = f"this is a bug in trnbench; run again with --debug and report it at {REPORT_TO}"
        return _failed(what, hint, ExitCode.BUG, debug)
    if code == ExitCode.INTERRUPTED:  # Typer turns Ctrl-C into this value by itself
        say("trnbench: interrupted")
    return code if isinstance(code, int) else ExitCode.DONE


def _failed(what: str, hint: str | None, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    say(f"trnbench: {shown(what)}")
    if hint:
        say(f"  hint: {shown(hint)}")
    return code


def _usage(error: typer.TyperException, debug: bool) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "trnbench"
    message = _of_options(error, context) or " ".join(error.format_message().split())
    for typers, ours in _WORDS.items():
        message = re.sub(typers, ours, message)
    return _failed(f"error: {message}", f"{command} --help", ExitCode.MALFORMED, debug)


def _of_options(error: typer.TyperException, context: Any) -> str:  # noqa: ANN401
    """Message on an option that a verb does not have, or on a word too many; else empty."""
    from trnbench.cli.synonyms import meant_option, stray_word

    if context is None:
        return ""
    verb = context.command_path.partition(" ")[2] or "trnbench"
    known = [name for one in context.command.params for name in one.opts]
    if (typed := getattr(error, "option_name", None)) is not None:
        return f"{verb} has no {typed}; {meant_option(verb, typed, known)}"
    match = _STRAY.match(error.format_message())
    return stray_word(verb, match[1], known) if match else ""


_STRAY = re.compile(r"Got unexpected extra argument\(?s?\)? \((.*)\)", re.DOTALL)
_WORDS = {
    r"^Invalid value for '(-[^ ']*)[^']*'": r"\1",
    r"^Option '(-[^']*)' requires an argument\.": r"\1 needs a value",
    r"^No such command ('[^']*')\.": r"trnbench has no command \1;",
    r"; Did you mean ('[^']*')\?": r"; did you mean \1?",
    r";$": r"; trnbench --help lists them",
    r"^Missing (argument|option) '(.*)'\.": r"\2 is missing",
    r"a valid (int range|integer)": "a whole number",
    r"a valid float( range)?": "a number",
    r"(\S+) is not in the range (\d+)<=x<=(\d+)": r"\1 is not from \2 to \3",
    r"is not in the range x>=(\d+)": r"is below \1",
}
"""What Typer says of types and options -> what this program says of its own."""


@contextlib.contextmanager
def pipe_may_end() -> Iterator[None]:
    """Go on after the block where the reader of stdout is gone (`| head`): the code counts."""
    try:
        yield
    except BrokenPipeError:
        _silent_exit()


def _silent_exit() -> int:
    # Point stdout at nothing, so that the interpreter's last flush does not raise again.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.DONE

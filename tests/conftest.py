"""Settings of every test: CI draws the same examples on each run, a developer's runs explore."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile

# As in the process of a command; what is collected lives to the end.
gc.set_threshold(250_000, 20, 100)

# Tests run side by side, and sums of matrix products depend on how many threads share them. This
# must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Closed forms found by one test run are not there for the next, and none are the user's.
_cache = tempfile.TemporaryDirectory(prefix="trnbench-tests-")
os.environ["XDG_CACHE_HOME"] = _cache.name
# Nor are kept runs: tests of keeping say so, all others keep nothing.
os.environ["XDG_DATA_HOME"] = os.path.join(_cache.name, "data")
os.environ["TRNBENCH_KEEP"] = "0"
os.environ.pop("TRNBENCH_RUNS", None)

# Nor are anybody's defaults read, of the user or of the folder that tests run in.
os.environ["XDG_CONFIG_HOME"] = os.path.join(_cache.name, "config")
for _name in ("REGION", "DISCOUNT", "PRICES", "INSTANCES", "STACK", "SPEC_PATH"):
    os.environ.pop(f"TRNBENCH_{_name}", None)

# Nor is the width of the terminal that tests are started from.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from trnbench.verbs.asking.configuration import CURRENT, Configuration  # noqa: E402

CURRENT.set(Configuration(files=(Path(_cache.name) / "config" / "trnbench.toml",)))

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")


TOP = Path(__file__).parents[1]
AT_START, LEFT = pytest.StashKey[set[str]](), pytest.StashKey[list[str]]()


def shown_at_top() -> set[str]:
    """Names at the top of the project, without those that are hidden: caches of tools."""
    return {path.name for path in TOP.iterdir() if not path.name.startswith(".")}


def pytest_sessionstart(session):
    """Refuse to leave out tests where every program that they need must be there, as in CI."""
    session.config.stash[AT_START] = shown_at_top()
    if os.environ.get("TRNBENCH_TEST_PROGRAMS") == "required":
        missing = [name for name in ("shellcheck", "strace") if shutil.which(name) is None]
        if missing:
            raise pytest.UsageError(f"install what tests need: {', '.join(missing)}")


def pytest_collection_finish():
    """Spare every search for garbage the tests themselves."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fail a run that leaves something at the top of the project: tests write elsewhere."""
    before = session.config.stash.get(AT_START, shown_at_top())
    session.config.stash[LEFT] = sorted(shown_at_top() - before)
    if session.config.stash[LEFT]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Say in one line each what tests left, and what this machine could not run."""
    if left := terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.write_line(f"tests left at the top of the project: {', '.join(left)}")
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missing = sum("no browser" in reason for reason in reasons)
    if missing:
        terminalreporter.write_line(f"not run: {missing} tests in a browser (no Chromium found)")
    missing = sum("no strace" in reason for reason in reasons)
    if missing:
        terminalreporter.write_line(f"not run: {missing} tests of failing calls (no strace found)")

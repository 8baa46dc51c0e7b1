"""A lock beside files: one at a time, no link is followed, no pipe is waited for."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from trnbench.errors import EnvironmentFault
from trnbench.facts.catalog.whole_file import locked


def test_one_at_a_time_reads_changes_and_writes(tmp_path):
    count = tmp_path / "count"
    count.write_text("0")

    def add(_):
        with locked(tmp_path / "deep" / ".lock"):
            before = int(count.read_text())
            os.sched_yield()
            count.write_text(str(before + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(200)))
    assert count.read_text() == "200"


@pytest.mark.parametrize("what", ["pipe", "link", "folder"])
def test_what_is_no_file_is_refused(tmp_path, what):
    lock = tmp_path / ".lock"
    if what == "pipe":
        os.mkfifo(lock)
    elif what == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    else:
        lock.mkdir()
    with pytest.raises(EnvironmentFault, match="cannot lock"), locked(lock):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_is_free_after_a_failure(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / ".lock"):
        _ = 1 / 0
    with locked(tmp_path / ".lock"):
        assert (tmp_path / ".lock").read_bytes() == b""

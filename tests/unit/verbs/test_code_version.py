"""The version that kept answers and cells carry: another program has another one."""

from __future__ import annotations

import os

from trnbench import __version__
from trnbench.verbs.runs.keeping import code_version, version_of


def test_what_is_edited_in_a_checkout_is_another_program(tmp_path):
    package = tmp_path / "trnbench"
    (package / "plan").mkdir(parents=True)
    module = package / "plan" / "cost.py"
    module.write_text("A = 1\n")
    (package / "plan" / "notes.txt").write_text("of no effect")
    first = version_of(tmp_path)
    assert first.startswith(f"{__version__}+")
    stamp = module.stat()
    module.write_text("A = 2\n")
    second = version_of(tmp_path)
    module.write_text("A = 1\n")
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 10**9))
    (package / "plan" / "notes.txt").write_text("of no effect either")
    assert second != first
    assert version_of(tmp_path) == first
    module.rename(package / "cost.py")
    assert version_of(tmp_path) not in (first, second)


def test_the_commit_stands_before_the_digest(tmp_path):
    (tmp_path / "trnbench").mkdir()
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text("0123456789abcdef\n")
    assert version_of(tmp_path).startswith(f"{__version__}+0123456789ab.")
    assert code_version() == code_version()

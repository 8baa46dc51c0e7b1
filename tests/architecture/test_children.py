"""Processes are started in one place, which sees to it that they are safe and end."""

from __future__ import annotations

import ast

from tests.architecture.sources import TOGETHER, nodes, trees

pytestmark = TOGETHER
HOME = "trnbench/facts/processes/children.py"
MAKES = {
    *("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"),
    *("Process", "Pool", "get_context", "Manager", "ProcessPoolExecutor"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"),
}
WHERE = {"subprocess", "multiprocessing", "concurrent", "asyncio", "os", "pty"}


def dotted(called: ast.expr) -> list[str]:
    """Return the parts of a dotted name; none of what is no name."""
    if isinstance(called, ast.Attribute):
        before = dotted(called.value)
        return [*before, called.attr] if before else []
    return [called.id] if isinstance(called, ast.Name) else []


def starts(tree: ast.Module) -> set[str]:
    """Return what in a module can start a process, by its dotted name."""
    names: dict[str, str] = {}
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names |= {
                (one.asname or one.name).partition(".")[0]: one.name.partition(".")[0]
                for one in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            top = node.module.partition(".")[0]
            names |= {one.asname or one.name: f"{top}.{one.name}" for one in node.names}
    # A type is named in annotations and nowhere called.
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            first, *rest = dotted(node.func) or [""]
            whole = ".".join(filter(None, (names.get(first, ""), *rest)))
            if whole.partition(".")[0] in WHERE and whole.rpartition(".")[2] in MAKES:
                found.add(whole)
    return found - {"asyncio.run"}


def test_processes_are_started_in_one_place():
    modules = {path: starts(module) for path, module in trees().items()}
    assert modules.pop(HOME) >= {"subprocess.Popen", "multiprocessing.get_context"}
    assert {path: found for path, found in modules.items() if found} == {}


def test_a_start_elsewhere_would_be_found():
    assert starts(ast.parse("import subprocess as s\ns.run(['x'])")) == {"subprocess.run"}
    assert starts(ast.parse("from subprocess import Popen\nPopen(['x'])")) == {"subprocess.Popen"}
    assert starts(ast.parse("def f():\n  from os import fork as g\n  g()")) == {"os.fork"}
    assert starts(ast.parse("import multiprocessing.pool\nmultiprocessing.pool.Pool()")) != set()
    assert starts(ast.parse("import concurrent.futures as c\nc.ProcessPoolExecutor()")) != set()
    assert starts(ast.parse("from trnbench.main import run\nrun()")) == set()

"""Every benchmark of trnbench's own speed, or those named: `python -m tests.bench.run matrix`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run the benchmarks named on the command line, or all of them."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    for name in sys.argv[1:] or known:
        if name not in known:
            sys.exit(f"no benchmark {name!r}; known: {', '.join(known)}")
        import_module(f"tests.bench.bench_{name}").main()


if __name__ == "__main__":
    main()

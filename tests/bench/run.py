"""Every benchmark of trnbench's own speed, or those named: `python -m tests.bench.run matrix`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from tests.bench.figure import keep, reference_s

HERE = Path(__file__).parent


def main() -> None:
    """Run the benchmarks named on the command line, or all of them."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    names = sys.argv[1:] or known
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no benchmark {unknown[0]!r}; known: {', '.join(known)}")
    print(f"1 U = {reference_s():.3f} s, a fixed mix of work; bars of times and rates are in U")
    try:
        for name in names:
            import_module(f"tests.bench.bench_{name}").main()
    finally:
        keep()


if __name__ == "__main__":
    main()

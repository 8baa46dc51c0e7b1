"""How fast the command answers from a cold process; processor time of all its processes."""

from __future__ import annotations

from tests.bench.figure import processor_s, show

CASES: tuple[tuple[tuple[str, ...], float | None], ...] = (
    (("--version",), None),
    (("--help",), None),
    (("spec", "list"), None),
    (("matrix", "4096x8192x8192", "--on", "trainium2"), None),
    (("collective", "all-reduce", "--on", "trn2.48xlarge:4"), None),
    (
        (
            *("train", "llama3.1-70b", "--on", "trn1.32xlarge:32", "--tp", "32", "--pp", "8"),
            *("--global-batch", "1024", "--sequence", "8192"),
        ),
        0.3,
    ),
    (
        (
            *("compare", "llama3.1-70b", "--tokens", "1T", "--on"),
            "trn1.32xlarge,trn1n.32xlarge,trn2.48xlarge,p4d.24xlarge,p5.48xlarge,p5en.48xlarge",
        ),
        0.85,
    ),
    (
        (
            *("plan", "llama3.1-70b", "--tokens", "1T", "--on"),
            "trn1.32xlarge,trn2.48xlarge,p5.48xlarge",
        ),
        0.6,
    ),
    (("validate",), 2.5),
    (("claims",), 1.2),
)
LONG = (("numerics",), 15.0)
RUNS = 3


def main() -> None:
    """Print each command's fastest run."""
    for (arguments, bar_s), runs in (*((case, RUNS) for case in CASES), (LONG, 1)):
        times = [processor_s(*arguments) for _ in range(runs)]
        show(f"trnbench {' '.join(arguments)[:43]}", min(times), "s", bar_s, "at most")


if __name__ == "__main__":
    main()

"""The process: `trnbench` and `python -m trnbench`."""

INTERRUPTED = 130
"""As `cli.diagnostics` says it, whose imports an interrupt may cut short."""


def run() -> None:
    """Run the process's command line and exit; an interrupt is one from the first import on."""
    try:
        from trnbench.cli.main import main

        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


if __name__ == "__main__":
    run()

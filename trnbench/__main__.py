"""`python -m trnbench`."""

from trnbench.cli.main import run

run()

"""Measurements on this machine's devices, in a worker process: products, chains, collectives.

`suites.py` selects the work, `session.py` runs the worker, `rows.py` writes the results as rows,
and `machine_fits.py` turns these into a chip's and a stack's numbers.
"""

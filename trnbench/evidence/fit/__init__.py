"""Fits of calibrations to measured rows: regularised, robust least squares in logarithms.

`rows.py` selects rows, `problem.py` states the parameters and priors, `solve.py` finds the fit,
`calibrate.py` judges it on left-out rows, and `files.py` writes it. `collectives.py` and
`memory.py` fit links and memory. Begin with `calibrate.py`.
"""

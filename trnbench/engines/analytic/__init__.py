"""Closed forms over whole grids of layouts: seconds and bytes as array formulas, nothing played.

`collective/`: seconds of one collective; `matrix/`: of one matrix product on a chip; `step/`: of a
training step, with its memory. In: a program (`StepProgram`), a platform and a calibration. Out:
seconds by category and bytes by category for every layout at once. Begin with `step/time.py`; the
emulator in `engines/emulate` plays the same model as a check.
"""

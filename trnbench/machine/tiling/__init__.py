"""Cuts of a matrix product and of attention for a core: legality, kernel schedules, split.

Both engines read the same schedule: tiles, loads, descriptor shapes and repetitions are decided
here and nowhere else.
"""

"""How a matrix product is cut up for a core: legality, kernel schedules, split.

Both engines read the same schedule: which tiles there are, what a kernel loads, in which descriptor
shapes and how often is decided here and nowhere else.
"""

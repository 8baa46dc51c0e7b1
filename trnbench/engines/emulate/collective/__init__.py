"""A collective played message by message: fair shares of links, rounds, and data that arrives.

In: a `Placed` collective and a `Tuning`, as in `engines/analytic/collective`. Out: seconds, link
traffic, and a check that every rank ends with the right data (`data.py`). `sharing.py` divides
links among messages, `like_messages.py` groups equal ones, `streams.py` and `under_way.py` move
messages through time. Begin with `play.py`.
"""

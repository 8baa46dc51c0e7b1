"""Seconds of a collective operation in closed form: latency plus bytes over bandwidth, per round.

In:  a `Placed` collective (machine/message_plan: which rank sends what to whom over which links)
     and a `Tuning` (the stack's launch and step seconds, and shares of link speed).
Out: a `Breakdown` for an array of sizes, or a `Sweep` with bandwidths and the lower bound.

    Placed --messages.py--> PhaseProfile ----------.        one per phase
       |                    rounds, classes,       |
       '--profile.py------> memo over placements   v
                                                Profile    (shape.py: free of size and stack)
                                                   |
                                     Tuning --> time.py --> ClosedForm --> seconds by size
                                                   |
                                                sweep.py --> Sweep

A phase is a sequence of rounds, a round a set of messages sent at once. Messages with the same
latency and the same load on their links form one class. Each class is one line over the size,

    seconds |            .  class bound by its link:   small start, steep
            |         .-'
            |      .-' . - - - class bound by latency: large start, flat
            | . - - - '
            +---------------- size

A round takes the largest of its lines, a phase the sum of its rounds. The collective is launch plus
the phases in turn; from the size where the stack cuts it, chunks follow one another through the
phases, and the slowest lane or the busiest shared link sets their pace.

    lane 0   [c0 scatter][c1 scatter][c2 scatter]
    lane 1               [c0 ring   ][c1 ring   ][c2 ring   ]      time -->

Since lines depend on the size only through `start_s + s_per_byte * size`, a closed form is made
once for a group of ranks and then priced for any number of sizes, layouts and samples as arrays.

Begin with `shape.py` (the records), then `time.closed_form` and `time.collective_time`.
The emulator (`engines/emulate/collective`) plays the same messages one by one as a check.
"""

"""Collective algorithms as message plans over ranks: sender, target, blocks and round of a message.

In: groups of ranks on a `Placement`, a collective operation, an algorithm or a stack's table of
them. Out: a `Placed` collective, with the links that every message crosses, or a `Refusal`. There
are no seconds here: `engines.analytic.collective` and `engines.emulate.collective` put them on the
same plan. `MessagePlan.moves` carries real data through it, to prove that the result is right.

    select       stack's table, group, size -> Algorithm
    members      groups -> grids of ranks, and the groups of one node that show all nodes
    stages       Algorithm on a grid -> AlgorithmStages, innermost level first
    build        AlgorithmStages -> Outline: phases in order, each with one pattern
    plan         Outline -> MessagePlan: the pattern on every line of ranks
    placed       Outline on a fabric -> PlacedRounds: links, latency and share of each message

A pattern (`algorithm`) lists the messages of each round on one line of ranks; `ring`, `folded` and
`direct` make them. A stage runs a pattern on all lines of a level at once. All-reduce by
`hierarchical` on two nodes of four ranks:

    level 0, inside nodes      level 1, between nodes
    0 - 1 - 2 - 3              0   1   2   3
                               |   |   |   |
    4 - 5 - 6 - 7              4   5   6   7

    phase 0   scatter on level 0   blocks of 1/4   rank 1 has quarter 1 of its node's sum
    phase 1   reduce  on level 1   blocks of 1/8   rank 1 has quarter 1 of the whole sum
    phase 2   gather  on level 0   blocks of 1/4   every rank has the whole sum

The scatter at one level leaves each rank a share, which is the buffer of the next level. So the
data on slow outer links shrink with every inner level.

Begin with `algorithm` and `ring`, then `build` and `placed`. `rails`, `pieces` and `chunks` serve
the engines: one line for many, waits along a tree, and chunks that overlap phases.
"""

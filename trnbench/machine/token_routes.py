"""What tokens on their way to experts carry over the network, where a token crosses to a node once.

Routers draw all nodes alike, so k copies of a token reach n (1 - (1 - 1/n)^k) of n nodes. A stack
that sends a token to a node once spares the network the other copies; they are handed on inside the
node meanwhile. Answers return the same way.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.machine.rank_groups import RankGroups


class HandedOn(Record, eq=False):
    """The share of an exchange's bytes that crosses, and the groups that hand them on in a node.

    Groups of one rank hand nothing on.
    """

    crossing: FloatArray
    local: RankGroups


def handed_on(groups: RankGroups, per_node: int, copies: int) -> HandedOn:
    """Return how groups of experts' ranks exchange so many copies of each token."""
    nodes, inside = groups.nodes(per_node), groups.ranks_in_node(per_node)
    spread = (nodes > 1) & (nodes * inside == groups.ranks)
    reached = nodes * (1 - (1 - 1 / np.maximum(nodes, 1)) ** copies)
    handing = np.where(spread, inside, 1)
    return HandedOn(
        crossing=np.where(spread, reached / copies, 1.0),
        local=replace(groups, ranks=handing, period=handing * groups.stride),
    )

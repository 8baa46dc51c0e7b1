"""Network traffic of tokens on their way to experts, where a token crosses to a node once.

Routers draw all nodes alike, so k copies of a token reach n (1 - (1 - 1/n)^k) of n nodes. A stack
that sends a token to a node once spares the network the other copies; ranks of the node hand these
on meanwhile. Answers return the same way.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.machine.rank_groups import RankGroups


class HandedOn(Record, eq=False):
    """Split of an exchange into a part over the network and a part inside nodes."""

    crossing: FloatArray  # share of the bytes that crosses the network
    local: RankGroups  # groups in a node; groups of one rank exchange nothing


def handed_on(groups: RankGroups, per_node: int, copies: int) -> HandedOn:
    """Split of an exchange of `copies` of each token among groups of experts' ranks."""
    nodes, inside = groups.nodes(per_node), groups.ranks_in_node(per_node)
    spread = (nodes > 1) & (nodes * inside == groups.ranks)
    reached = nodes * (1 - (1 - 1 / np.maximum(nodes, 1)) ** copies)
    handing = np.where(spread, inside, 1)
    return HandedOn(
        crossing=np.where(spread, reached / copies, 1.0),
        local=replace(groups, ranks=handing, period=handing * groups.stride),
    )

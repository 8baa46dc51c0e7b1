"""The path of a message: which links it crosses, deterministic and the same for every run.

Inside an instance a message goes level by level from the outermost to the innermost, along a torus
axis by axis and the shorter way round (at half way, even places go up and odd ones down, so the
load of an exchange spreads over both directions). To another instance it goes by its adapters, and
through the spine unless both are on one rail. Dead links are gone round on a shortest path.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.hardware.fabric import Direct, FullMesh, Switch, Torus
from trnbench.facts.records import Record
from trnbench.machine.fabric import Fabric


class Routes(Record, eq=False):
    """Paths between all pairs of chips of an instance.

    The number `links_per_node` means no link.
    """

    fabric: Fabric
    tables: tuple[IntArray, ...]  # each [from * chips + to, hop]: links by local number
    table_of_node: dict[int, int]  # node -> index of its table, where not 0

    def between_chips(self, node: IntArray, source: IntArray, target: IntArray) -> IntArray:
        """Links [message, hop] by local number, for chips of the same node."""
        pair = source * self.fabric.chips + target
        links = self.tables[0][pair]
        # Detours may be longer than any usual path: the table then gets more columns.
        for special, table in self.table_of_node.items():
            inside = node == special
            if inside.any():
                wide = max(links.shape[1], self.tables[table].shape[1])
                links = _widened(links, wide, self.fabric.links_per_node)
                links[inside] = _widened(self.tables[table], wide, self.fabric.links_per_node)[
                    pair[inside]
                ]
        return np.asarray(links)

    def between_ranks(self, source: IntArray, target: IntArray) -> tuple[IntArray, FloatArray]:
        """Links [message, hop] by cluster-wide number, and seconds of latency of each path.

        The number `nodes * links_per_node` means no link.
        """
        fabric = self.fabric
        none = fabric.links_per_node
        node_a, local_a = np.divmod(source, fabric.ranks_per_node)
        node_b, local_b = np.divmod(target, fabric.ranks_per_node)
        chip_a, chip_b = local_a // fabric.ranks_per_chip, local_b // fabric.ranks_per_chip
        links = self.between_chips(node_a, chip_a, chip_b)
        remote = node_a != node_b
        same_chip = ~remote & (chip_a == chip_b) & (source != target)
        blocks = bool((fabric.to_spine >= 0).any())
        # Out of an adapter and into one; between them up to the spine and down, where that blocks.
        wide = 4 if blocks and remote.any() else 2
        if links.shape[1] < wide and (remote.any() or same_chip.any()):
            links = _widened(links, wide, none)
        base = node_a[:, None] * none
        numbers = np.where(links == none, fabric.nodes * none, links + base)
        if remote.any():
            numbers[remote] = fabric.nodes * none
            numbers[remote, 0] = (fabric.to_network[chip_a] + node_a * none)[remote]
            numbers[remote, wide - 1] = (fabric.from_network[chip_b] + node_b * none)[remote]
        if remote.any() and blocks:
            crosses = remote & self._leaves_its_leaf(chip_a, chip_b)
            numbers[crosses, 1] = (fabric.to_spine[chip_a] + node_a * none)[crosses]
            numbers[crosses, 2] = (fabric.from_spine[chip_b] + node_b * none)[crosses]
        if same_chip.any():
            numbers[same_chip, 0] = (fabric.rank_out[local_a] + node_a * none)[same_chip]
            numbers[same_chip, 1] = (fabric.rank_in[local_b] + node_b * none)[same_chip]
        return numbers, self.latency(numbers)

    def _leaves_its_leaf(self, source: IntArray, target: IntArray) -> BoolArray:
        """Mask of the messages between chips of two nodes that cross the spine."""
        network = self.fabric.instance.network
        if network is None or not network.rails:
            return np.ones(len(source), dtype=bool)
        return np.asarray(self.fabric.to_network[source] != self.fabric.to_network[target])

    def latency(self, numbers: IntArray) -> FloatArray:
        """Summed latency of paths given by cluster-wide link numbers, s."""
        fabric = self.fabric
        absent = numbers == fabric.nodes * fabric.links_per_node
        per_link = np.append(fabric.latency, 0.0)
        local = np.where(absent, fabric.links_per_node, numbers % fabric.links_per_node)
        return np.asarray(per_link[local].sum(axis=1))


def build_routes(fabric: Fabric) -> Routes:
    """Paths of a fabric; a node with dead links gets a table of its own."""
    usual = _all_pairs(fabric)
    tables = [usual]
    table_of_node = {}
    for node, dead in sorted(fabric.dead_local_links().items()):
        tables.append(_detoured(fabric, usual, dead))
        table_of_node[node] = len(tables) - 1
    return Routes(fabric=fabric, tables=tuple(tables), table_of_node=table_of_node)


def unreachable_pairs(routes: Routes) -> list[tuple[int, int, int]]:
    """(node, chip, chip) for chips that dead links have cut off from each other."""
    cut = []
    chips, none = routes.fabric.chips, routes.fabric.links_per_node
    for node, table in routes.table_of_node.items():
        lost = np.flatnonzero((routes.tables[table] == none).all(axis=1))
        cut += [(node, int(p) // chips, int(p) % chips) for p in lost if p // chips != p % chips]
    return cut


def _all_pairs(fabric: Fabric) -> IntArray:
    chips, none = fabric.chips, fabric.links_per_node
    here = np.repeat(np.arange(chips), chips)
    goal = np.tile(np.arange(chips), chips)
    columns: list[IntArray] = []

    # All pairs walk at once: `here` moves hop by hop towards `goal`, a column of links a hop.
    def take(moving: IntArray, link: IntArray, to: IntArray) -> None:
        if moving.any():
            columns.append(np.where(moving, link, none))
            here[:] = np.where(moving, to, here)

    for index in reversed(range(len(fabric.levels))):
        scale_up = fabric.levels[index]
        level, span, count = scale_up.level, scale_up.span, scale_up.count
        table = fabric.torus_link[index]
        unit, wanted = here // span % count, goal // span % count
        match level:
            case Torus():
                for axis, length in enumerate(level.shape):
                    stride = span * int(np.prod(level.shape[axis + 1 :]))
                    way = _shorter_way(here // stride % length, goal // stride % length, length)
                    for _ in range(length // 2):
                        at = here // stride % length
                        moving = at != goal // stride % length
                        to = here + ((at + way) % length - at) * stride
                        take(moving, table[here, axis, (way < 0).astype(np.int64)], to)
            case Direct():
                take(unit != wanted, table[here, 0, 0], here + (wanted - unit) * span)
            case FullMesh():
                to = here + (wanted - unit) * span
                take(unit != wanted, table[here, wanted, 0], to)
            case Switch():
                # The switch reaches every chip below it, so the inner levels have nothing left.
                moving = unit != wanted
                take(moving, fabric.up[index][here], here)
                take(moving, fabric.down[index][goal], goal)
            case _:
                unhandled(level, "route between two chips")
    if not columns:
        return np.full((chips * chips, 1), none, dtype=np.int64)
    return _packed(np.stack(columns, axis=1), none)


def _shorter_way(at: IntArray, to: IntArray, length: int) -> IntArray:
    # At half way the parity of the place decides, so that opposite messages share both directions.
    forward = (to - at) % length
    up = (2 * forward < length) | ((2 * forward == length) & (at % 2 == 0))
    return np.where(up, 1, -1)


def _packed(links: IntArray, none: int) -> IntArray:
    """Move the links of each path to the left and drop unused columns."""
    order = np.argsort(links == none, axis=1, kind="stable")
    packed = np.take_along_axis(links, order, axis=1)
    longest = max(int((packed != none).sum(axis=1).max()), 1)
    return np.ascontiguousarray(packed[:, :longest])


def _widened(links: IntArray, width: int, none: int) -> IntArray:
    missing = width - links.shape[1]
    return np.pad(links, ((0, 0), (0, missing)), constant_values=none) if missing > 0 else links


def _detoured(fabric: Fabric, usual: IntArray, dead: set[int]) -> IntArray:
    """Table with every path over a dead link replaced by a shortest living one."""
    none = fabric.links_per_node
    broken = np.flatnonzero(np.isin(usual, list(dead)).any(axis=1))
    paths = {int(pair): _living_path(fabric, int(pair), dead) for pair in broken}
    width = max([usual.shape[1], *map(len, paths.values())])
    table = _widened(usual, width, none).copy()
    for pair, path in paths.items():
        table[pair] = none
        table[pair, : len(path)] = path
    return table


def _living_path(fabric: Fabric, pair: int, dead: set[int]) -> list[int]:
    """Shortest path over the instance's living links; empty where there is none."""
    # Breadth first over scale-up links; in link order, so the detour is the same in every run.
    leaving: dict[str, list[int]] = {}
    for number, link in enumerate(fabric.links):
        if number not in dead and link.kind == 1:
            leaving.setdefault(link.source, []).append(number)
    start, goal = f"c{pair // fabric.chips}", f"c{pair % fabric.chips}"
    came: dict[str, int] = {}
    queue = deque([start])
    while queue and goal not in came:
        at = queue.popleft()
        for number in leaving.get(at, []):
            target = fabric.links[number].target
            if target != start and target not in came:
                came[target] = number
                queue.append(target)
    path: list[int] = []
    at = goal
    while at in came:
        path.insert(0, came[at])
        at = fabric.links[came[at]].source
    return path

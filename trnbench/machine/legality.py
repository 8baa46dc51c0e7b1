"""Rules of a platform's software on a collective: reasons against it, and what it allows.

A refusal is a `PlacementVerdict` with reasons, never an exception. Malformed input (a rank that is
not there, groups of different length) is an error, raised in `message_plan.members`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import IntArray, distinct
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.hardware.instance import LegalDegrees, Platform
from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.machine.placement import Groups, Placement
    from trnbench.program.collective import Collective


class PlacementVerdict(Record):
    """Verdict on a placement, legal when it has no reasons; `warnings` do not forbid."""

    reasons: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        return not self.reasons


def _refused(reason: str, alternative: str) -> PlacementVerdict:
    return PlacementVerdict(reasons=(reason,), alternatives=(alternative,))


def cluster_verdict(platform: Platform, nodes: int) -> PlacementVerdict:
    """Verdict on a cluster of this many instances."""
    instance = platform.instance
    network = instance.network
    # Reasons come with the nearest choice that works: a refusal without remedy helps nobody.
    if nodes > 1 and network is None:
        return _refused(f"{instance.name} has no network adapters for {nodes} nodes", "1 node")
    limit = network.max_chips_per_cluster if network else None
    if limit is not None and nodes * instance.chips > limit:
        most = limit // instance.chips
        return _refused(
            f"{nodes} nodes are {nodes * instance.chips} chips; a cluster has at most {limit}",
            f"up to {most} nodes",
        )
    return PlacementVerdict()


def even_groups(placement: Placement, ranks: int, size: int) -> IntArray | PlacementVerdict:
    """Consecutive groups of `size` among `ranks` ranks; a verdict where these do not divide."""
    if ranks > placement.ranks:
        return _refused(
            f"{ranks} ranks asked for, the cluster has {placement.ranks}",
            f"up to {placement.ranks} ranks",
        )
    if size < 1 or ranks % size:
        near = sorted(
            (d for d in range(1, ranks + 1) if ranks % d == 0), key=lambda d: abs(d - size)
        )
        return PlacementVerdict(
            reasons=(f"{ranks} ranks do not divide into groups of {size}",),
            alternatives=tuple(f"groups of {d}" for d in sorted(near[:3])),
        )
    return np.arange(ranks).reshape(-1, size)


def verdict(
    placement: Placement, collective: Collective, groups: Groups, *, pairs: IntArray | None = None
) -> PlacementVerdict:
    """Verdict of the platform on a collective among these replica groups."""
    from trnbench.machine.message_plan.members import checked_groups

    members = checked_groups(placement, groups)
    verdicts = [
        cluster_verdict(placement.platform, placement.nodes),
        _job_size(placement, members),
        _group_shape(placement, members),
        _size(collective, members.shape[1]),
        _links(placement, members),
    ]
    if collective.op == "permute":
        verdicts.append(_permute_ring(placement, members, pairs))
    return PlacementVerdict(
        reasons=tuple(reason for rule in verdicts for reason in rule.reasons),
        alternatives=tuple(choice for rule in verdicts for choice in rule.alternatives),
        warnings=tuple(warning for rule in verdicts for warning in rule.warnings),
    )


def _degrees(placement: Placement) -> LegalDegrees | None:
    cores = placement.platform.chip.unit.separate_cores
    return placement.platform.legal_degrees(cores // placement.ranks_per_chip)


def _job_size(placement: Placement, members: IntArray) -> PlacementVerdict:
    degrees = _degrees(placement)
    if degrees is None or not degrees.ranks_per_job:
        return PlacementVerdict()
    job = int(members.size)
    multiple = degrees.ranks_per_job_multiple
    if job in degrees.ranks_per_job or (multiple and job % multiple == 0):
        return PlacementVerdict()
    few = ", ".join(map(str, degrees.ranks_per_job))
    name = placement.platform.instance.name
    more = f" or a multiple of {multiple}" if multiple else ""
    return _refused(
        f"{name} runs {few}{more} ranks in a job, not {job}", f"{few}{more} ranks in all"
    )


def _group_shape(placement: Placement, members: IntArray) -> PlacementVerdict:
    """Verdict on groups: listed sizes in a host, the same places on each of several hosts."""
    fabric = placement.fabric
    degrees = _degrees(placement)
    size = members.shape[1]
    if degrees is None or size == 1:
        return PlacementVerdict()
    # An UltraServer is one instance of several hosts: its rules are those of the hosts.
    host, local = np.divmod(members, fabric.ranks_per_node // fabric.instance.hosts)
    if not (host == host[:, :1]).all():
        hosts = len(distinct(host[0]))
        cut = local.reshape(len(members), hosts, -1) if size % hosts == 0 else None
        if cut is not None and bool((cut == cut[:, :1]).all()):
            return PlacementVerdict()
        return _refused(
            "a group over several hosts must hold the same ranks on each of them",
            "the same local ranks on every host",
        )
    legal = degrees.tensor_parallel
    warned = degrees.tensor_parallel_warned
    if size in legal:
        return PlacementVerdict()
    name = placement.platform.instance.name
    listed = ", ".join(map(str, legal))
    if size in warned:
        return PlacementVerdict(
            warnings=(f"groups of {size} ranks are not supported by all software on {name}",)
        )
    return _refused(
        f"{name} has no replica groups of {size} ranks in a host", f"groups of {listed} ranks"
    )


def _size(collective: Collective, ranks: int) -> PlacementVerdict:
    # All-reduce, broadcast and the pairs need one element in all, the others one for every rank.
    parts = collective.op in ("all-gather", "reduce-scatter", "all-to-all")
    least = ranks if parts else 1
    if collective.elements >= least:
        return PlacementVerdict()
    least_bytes = least * collective.element_bytes
    return _refused(
        f"{collective.size_bytes:g} bytes are less than one element for each of {ranks} ranks",
        f"from {least_bytes:g} bytes",
    )


def _links(placement: Placement, members: IntArray) -> PlacementVerdict:
    from trnbench.machine.fabric_routes import unreachable_pairs

    fabric = placement.fabric
    cut = unreachable_pairs(placement.routes)
    reasons = [f"node {n}: no living way from chip {a} to chip {b}" for n, a, b in cut[:1]]
    node = members // fabric.ranks_per_node
    far = members[(node != node[:, :1]).any(axis=1)]
    # A dead adapter matters only to chips whose group leaves the node.
    for at, links in fabric.dead_local_links().items():
        ways = np.stack([fabric.to_network, fabric.from_network])
        chips = np.flatnonzero(np.isin(ways, list(links)).any(axis=0)) + at * fabric.chips
        lost = chips[np.isin(chips, far // fabric.ranks_per_chip)]
        if len(lost):
            reasons.append(f"chip {lost[0]} has no living way to the network")
            return PlacementVerdict(reasons=tuple(reasons), alternatives=("groups inside a node",))
    return PlacementVerdict(reasons=tuple(reasons))


def _permute_ring(
    placement: Placement, members: IntArray, pairs: IntArray | None
) -> PlacementVerdict:
    """Verdict on pairs of a permute, which NeuronCores need to be neighbours by wire."""
    match placement.platform.chip.unit:
        case Multiprocessors():
            return PlacementVerdict()
        case NeuronCores():
            return _wired_pairs(placement, members, pairs)
        case unknown:
            unhandled(unknown, "rule for the pairs of a permute")


def _wired_pairs(
    placement: Placement, members: IntArray, pairs: IntArray | None
) -> PlacementVerdict:
    from trnbench.machine.message_plan.ring_orders import neighbour_pairs

    fabric = placement.fabric
    for group in members:
        if pairs is None:
            pairs = neighbour_pairs(fabric, group)
        source, target = group[pairs[:, 0]], group[pairs[:, 1]]
        links, _ = placement.routes.between_ranks(source, target)
        hops = (links != fabric.nodes * fabric.links_per_node).sum(axis=1)
        inside = source // fabric.ranks_per_node == target // fabric.ranks_per_node
        apart = source // fabric.ranks_per_chip != target // fabric.ranks_per_chip
        # Two links lead through a switch, which counts as neighbours.
        far = inside & apart & (hops > (2 if _switched(placement) else 1))
        if far.any():
            at = int(np.flatnonzero(far)[0])
            return _refused(
                f"ranks {source[at]} and {target[at]} of the permute have no link between them",
                "pairs along a ring of neighbouring chips",
            )
    return PlacementVerdict()


def _switched(placement: Placement) -> bool:
    return any(bool((up >= 0).any()) for up in placement.fabric.up)

"""Requests before a run can start: quotas, and limits of the cluster."""

from __future__ import annotations

from trnbench.facts.hardware.instance import Instance, PurchaseOption
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.records import Record


class QuotaRequest(Record):
    """A quota and the virtual processors that a run needs of it, in one region."""

    name: str
    code: str
    vcpus: int


def quota_request(
    instance: Instance, nodes: int, option: PurchaseOption, rules: PurchaseRules | None
) -> QuotaRequest | None:
    """The quota to request; None where none is known for the option."""
    if rules is None or instance.host.vcpus is None:
        return None
    for quota in rules.quota:
        if option in quota.options and instance.name.startswith(quota.families):
            return QuotaRequest(name=quota.name, code=quota.code, vcpus=nodes * instance.host.vcpus)
    return None


def cluster_limit(instance: Instance, nodes: int) -> str | None:
    """The reason why one network cannot join this many instances, or None."""
    network = instance.network
    if nodes > 1 and network is None:
        return f"{instance.name} has no network that joins instances"
    most = network.max_chips_per_cluster if network else None
    if most is not None and nodes * instance.chips > most:
        return f"{nodes * instance.chips:,} chips are more than the {most:,} of one cluster"
    return None

"""What is to be started: a model in a layout on a cluster, and what was predicted of it."""

from __future__ import annotations

import datetime
import re

from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.instance import Instance, Platform
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Attention, Model, Transformer
from trnbench.money.failures import Estimate

AWS = "AWS"


class LaunchPlan(Record):
    """A step in one layout on a cluster, as a framework and a scheduler need to know it.

    `nodes` are instances as they are sold; `hosts` are the machines that a scheduler starts, of
    which an UltraServer has several, `reserved` those of a Capacity Block. `steps` is None where
    the length of the run is not known; `compile_s` is what the first compilation is expected to
    take.
    """

    model: Model
    platform: Platform
    nodes: int
    reserved: bool
    logical_size: int | None
    layout: Layout
    step_time_s: float
    checkpoint_interval_s: float
    compile_s: Estimate
    steps: int | None
    date: datetime.date

    @property
    def name(self) -> str:
        """A name of the run that schedulers take: small letters, digits and dashes."""
        instance = self.platform.instance.name
        return slug(f"{self.model.name}-{instance}-{self.nodes}")

    @property
    def depths(self) -> int:
        """Further tokens that are predicted."""
        return self.model.with_depths(self.layout.mtp_depths).mtp_depths

    @property
    def transformer(self) -> Transformer:
        """The layers; frameworks are asked for decoders alone."""
        assert self.model.transformer is not None
        return self.model.transformer

    @property
    def attention(self) -> Attention:
        """The attention of every layer; frameworks are asked for equal layers alone."""
        assert self.transformer.attention is not None
        return self.transformer.attention

    @property
    def host_type(self) -> str | None:
        """The EC2 type of a host; None where there is none, or none is published."""
        return host_type(self.platform.instance)

    @property
    def hosts(self) -> int:
        """The machines that are started."""
        return self.nodes * self.platform.instance.hosts

    @property
    def host_chips(self) -> int:
        """The chips of a host."""
        return self.platform.instance.chips // self.platform.instance.hosts

    @property
    def host_ranks(self) -> int:
        """The processes that a host runs: one a logical core, or one a GPU."""
        return self.host_chips * self.platform.chip.ranks(self.logical_size)

    @property
    def host_adapters(self) -> int:
        """The EFA interfaces of a host."""
        network = self.platform.instance.network
        if network is None or network.transport != "efa":
            return 0
        return network.adapters // self.platform.instance.hosts

    @property
    def host_cpus(self) -> int | None:
        """The virtual processors of a host, where they are known."""
        cpus = self.platform.instance.host.vcpus
        return None if cpus is None else cpus // self.platform.instance.hosts

    @property
    def host_memory_mib(self) -> int | None:
        """The memory of a host, where it is known."""
        held = self.platform.instance.host.memory_bytes
        return None if held is None else int(held / self.platform.instance.hosts / 2**20)

    @property
    def neuron(self) -> bool:
        """Whether the chips are Trainium."""
        return isinstance(self.platform.chip.unit, NeuronCores)

    @property
    def cores_per_rank(self) -> int:
        """Physical NeuronCores of a logical one."""
        return self.platform.chip.unit.cores_per_rank(self.logical_size)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a replica in a step."""
        return int(self.layout.global_batch // (self.layout.dp * self.layout.micro_batch))

    @property
    def checkpoint_steps(self) -> int:
        """The steps between checkpoints."""
        return max(1, round(self.checkpoint_interval_s / self.step_time_s))


def host_type(instance: Instance) -> str | None:
    """Return the EC2 type of an instance's hosts; None where there is none, or none is published.

    An instance of several hosts is a type of its own only for those who sell it.
    """
    if instance.provider != AWS or (instance.hosts > 1 and instance.host_instance is None):
        return None
    return instance.host_instance or instance.name


def slug(text: str) -> str:
    """Return a text as a label of the domain name system: what every scheduler takes as a name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].rstrip("-") or "run"

"""Plan of a launch: a model in a layout on a cluster, and its prediction."""

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
    """A step in one layout on a cluster, as frameworks and schedulers need it."""

    model: Model
    platform: Platform
    nodes: int
    """Instances as they are sold."""
    reserved: bool
    """True for machines of a Capacity Block."""
    logical_size: int | None
    layout: Layout
    step_time_s: float
    checkpoint_interval_s: float
    compile_s: Estimate
    """Expected time of the first compilation."""
    steps: int | None
    """None where the length of the run is not known."""
    date: datetime.date

    @property
    def name(self) -> str:
        instance = self.platform.instance.name
        return slug(f"{self.model.name}-{instance}-{self.nodes}")

    @property
    def depths(self) -> int:
        """Additional tokens that are predicted (MTP depths)."""
        return self.model.with_depths(self.layout.mtp_depths).mtp_depths

    @property
    def transformer(self) -> Transformer:
        """Layers of the model; plans of other models are refused before."""
        assert self.model.transformer is not None
        return self.model.transformer

    @property
    def attention(self) -> Attention:
        """Attention of every layer; models with unequal layers are refused before."""
        assert self.transformer.attention is not None
        return self.transformer.attention

    @property
    def host_type(self) -> str | None:
        """EC2 type of a host; None where there is none or none is published."""
        return host_type(self.platform.instance)

    @property
    def hosts(self) -> int:
        """Machines that a scheduler starts; an UltraServer has several."""
        return self.nodes * self.platform.instance.hosts

    @property
    def host_chips(self) -> int:
        return self.platform.instance.chips // self.platform.instance.hosts

    @property
    def host_ranks(self) -> int:
        """Processes of a host: one for each logical core or GPU."""
        return self.host_chips * self.platform.chip.ranks(self.logical_size)

    @property
    def host_adapters(self) -> int:
        """EFA interfaces of a host."""
        network = self.platform.instance.network
        if network is None or network.transport != "efa":
            return 0
        return network.adapters // self.platform.instance.hosts

    @property
    def host_cpus(self) -> int | None:
        cpus = self.platform.instance.host.vcpus
        return None if cpus is None else cpus // self.platform.instance.hosts

    @property
    def host_memory_mib(self) -> int | None:
        memory = self.platform.instance.host.memory_bytes
        return None if memory is None else int(memory / self.platform.instance.hosts / 2**20)

    @property
    def neuron(self) -> bool:
        return isinstance(self.platform.chip.unit, NeuronCores)

    @property
    def cores_per_rank(self) -> int:
        return self.platform.chip.unit.cores_per_rank(self.logical_size)

    @property
    def micro_batches(self) -> int:
        return int(self.layout.global_batch // (self.layout.dp * self.layout.micro_batch))

    @property
    def checkpoint_steps(self) -> int:
        return max(1, round(self.checkpoint_interval_s / self.step_time_s))


def host_type(instance: Instance) -> str | None:
    """EC2 type of a host, if published; of several hosts only where the data name one."""
    if instance.provider != AWS or (instance.hosts > 1 and instance.host_instance is None):
        return None
    return instance.host_instance or instance.name


def slug(text: str) -> str:
    """The text as a DNS label, which every scheduler accepts as a name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].rstrip("-") or "run"

"""Facts of frameworks and schedulers: limits, files, commands, and how hosts find each other."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping

from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import Job
from trnbench.facts.workload.layout import KNOBS, Schedule, Value
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.recompute import PLAIN, parts_of
from trnbench.launch.plan import LaunchPlan, host_type

RARE = frozenset(
    {
        *("expert_tp", "shard", "pipeline_layout", "optimizer_offload", "activation_offload"),
        *("dispatcher", "overlapped"),
    }
)
"""Knobs that most frameworks cannot express: values off their defaults are refused."""
Texts = Mapping[str, str]
"""File name -> content."""


class LaunchSoftware(Record, eq=False):
    """A program that launch files are written for, as of a version and a day."""

    name: str
    title: str
    versions: str
    source: str
    date: datetime.date
    defaults: Mapping[str, str] = field(default_factory=dict)
    """User values that the program settles."""
    assumes: tuple[str, ...] = ()


class Framework(LaunchSoftware, eq=False):
    """A training framework; its command on each host is `torchrun ... SCRIPT ARGUMENTS`."""

    jobs: tuple[Job, ...]
    no_jobs: Mapping[Job, str] = field(default_factory=dict)
    """Why a job is missing, where there is a reason to give."""
    fixed: Mapping[str, tuple[Value, str]]
    """Knobs with a single possible value -> (value, reason)."""
    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved")
    recompute: tuple[str, ...] = PLAIN
    """Parts of recompute modes that its configuration can express."""
    precisions: Mapping[str, str]
    refusals: Callable[[LaunchPlan], Iterator[str]]
    """Reasons why a plan cannot be written."""
    files: Callable[[LaunchPlan, str], Texts] = lambda plan, stamp: {}
    """Configuration files, given a plan and a stamp; none where arguments state everything."""
    folder: str
    """Where the command runs."""
    script: tuple[str, ...]
    arguments: Callable[[LaunchPlan], Iterable[str]]
    environment: Callable[[LaunchPlan], Mapping[str, str]]
    own_defaults: Callable[[LaunchPlan], Mapping[str, str]] = lambda plan: {}
    """User values that depend on the plan."""
    compiler: str | None = None
    """Program that compiles before the job, if any."""
    writes: frozenset[str] = frozenset()
    """Knobs among `RARE` that it writes, and `mtp_depths` where it trains depths."""
    not_written: Mapping[str, str] = field(default_factory=dict)
    """Why another knob is not written, where there is a reason to give."""

    def settled(self, given: PartialLayout) -> PartialLayout:
        """The layout with the knobs that have a single possible value here."""
        own = {
            name: value
            for name, (value, _) in self.fixed.items()
            if given[name] is None and KNOBS[name].is_for(given["job"])
        }
        return given.changed(**own)

    def conflicts(self, given: PartialLayout) -> Iterator[str]:
        """Yield knobs of a layout that differ from the framework's only value, except open ones."""
        for name, (value, why) in self.fixed.items():
            if given[name] not in (None, value):
                yield f"{KNOBS[name].title} {given[name]}: {why}; try {value}"

    def reasons(self, plan: LaunchPlan) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._reasons(plan)))

    def _reasons(self, plan: LaunchPlan) -> Iterator[str]:
        model, layout = plan.model, plan.layout
        if model.family != "decoder":
            yield f"{self.title} trains decoders here, and {model.name} is not one"
            return
        if plan.transformer.attention is None or plan.transformer.pattern is not None:
            yield f"{self.title} gets equal layers with attention here; {model.name} has others"
            return
        if layout.job not in self.jobs:
            jobs = ", ".join(self.jobs)
            why = self.no_jobs.get(layout.job)
            because = f": {why}" if why else ""
            yield f"{self.title} has no job {layout.job} here{because}; it has {jobs}"
        # A complete layout has a value for every knob, so that its conflicts are all there are.
        yield from self.conflicts(PartialLayout.of(layout))
        for knob in (KNOBS[name] for name in RARE - self.writes):
            if getattr(layout, knob.name) != knob.default:
                why = self.not_written.get(knob.name)
                what = f"no {knob.title} is written for {self.title}{f': {why}' if why else ''}"
                yield f"{what}; leave {knob.option} out"
        if plan.depths and "mtp_depths" not in self.writes:
            yield f"{self.title} trains no MTP depths here; try --mtp-depths 0"
        if layout.pp > 1 and layout.schedule not in self.schedules:
            jobs = ", ".join(self.schedules)
            yield f"{self.title} has no schedule {layout.schedule}; it has {jobs}"
        for part in parts_of(layout.recompute):
            if part not in self.recompute:
                jobs = ", ".join(self.recompute)
                yield f"{self.title} has no recompute {part} here; it has {jobs}"
        if layout.precision not in self.precisions:
            jobs = ", ".join(self.precisions)
            yield f"{self.title} has no precision {layout.precision}; it has {jobs}"
        yield from self.refusals(plan)


def unwritten(plan: LaunchPlan) -> Iterator[str]:
    """Yield features of a model's layers that a configuration of its shape cannot express."""
    attention = plan.attention
    there = {
        "latent attention (MLA)": attention.latent is not None,
        "attention windows": attention.window is not None or attention.chunk is not None,
        "attention sinks": attention.sinks,
        "output gates": attention.output_gate,
        "norms of what is added": plan.transformer.norm_placement not in ("pre", "post"),
    }
    yield from (
        f"no configuration of {what} is written here"
        for what, is_there in there.items()
        if is_there
    )


def nested(flat: Mapping[str, object]) -> dict[str, object]:
    """Keys with dots as tables in tables."""
    top: dict[str, object] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        table = top
        for parent in parents:
            inner = table.setdefault(parent, {})
            assert isinstance(inner, dict), key
            table = inner
        table[last] = value
    return top


class JobFiles(Record, eq=False):
    """Files of a scheduler, and how to submit them."""

    texts: Texts
    filled: tuple[str, ...] = ()
    """Files that get the user's values before they are submitted."""
    start: tuple[str, ...]
    """Lines of bash that submit the job."""


def ec2(platform: Platform) -> str | None:
    """Refuse platforms that are not a published EC2 instance type."""
    instance = platform.instance
    if host_type(instance) is None:
        return f"{instance.name} is not a published EC2 instance type"
    return None


class Scheduler(LaunchSoftware, eq=False):
    """A way to start processes on hosts."""

    where: tuple[str, ...]
    """Lines of bash that set NODE_RANK, the number of this host, and HEAD, the address of the
    first."""
    cannot: Callable[[Platform], str | None] = ec2
    """Why the scheduler cannot start an instance; None where it can."""
    refusals: Callable[[LaunchPlan], Iterable[str]] = lambda plan: ()
    files: Callable[[LaunchPlan, Framework, str], JobFiles]


LAUNCH_FOLDER, SHARED_FOLDER = "/launch", "/shared"
"""This folder, and the shared file system, as containers see them."""
ON_SHARED: Mapping[str, str] = {
    "CHECKPOINT_DIR": f"{SHARED_FOLDER}/checkpoints",
    "COMPILE_CACHE": f"{SHARED_FOLDER}/compiled",
    "MODEL_DIR": f"{SHARED_FOLDER}/model",
    "TOKENIZER_DIR": f"{SHARED_FOLDER}/model",
    "DATA_DIR": f"{SHARED_FOLDER}/data",
}


def in_turn(framework: Framework, command: str) -> str:
    """Command line that runs a command, after compiling where there is a compiler."""
    return f"COMPILE=1 {command} && {command}" if framework.compiler else command


def environment_of(plan: LaunchPlan, framework: Framework) -> dict[str, str]:
    """Environment of every process: the framework's and the network's.

    FI_* as in the set-up of several Trn1 nodes of the Neuron SDK and torchtitan's Slurm sample.
    """
    environment = dict(framework.environment(plan))
    if plan.host_adapters and plan.hosts > 1:
        environment |= {
            "FI_PROVIDER": "efa",
            "FI_EFA_USE_DEVICE_RDMA": "1",
            "FI_EFA_FORK_SAFE": "1",
        }
    return environment

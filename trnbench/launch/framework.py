"""What is known of a training framework: where it runs, what it cannot do, how it is called."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from trnbench.facts.calibration.frameworks import SOFTWARE
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record, field
from trnbench.facts.workload.jobs import Job
from trnbench.facts.workload.layout import KNOBS, Schedule, Value
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.recompute import PLAIN, parts_of
from trnbench.launch.plan import LaunchPlan

RARE = frozenset({"expert_tp", "shard", "pipeline_layout", "optimizer_offload"})
"""Knobs that most frameworks have no words for: off their defaults they are refused."""
Texts = Mapping[str, str]
"""File name -> content."""


class FrameworkCall(Record):
    """How a framework is started on each host: `torchrun ... SCRIPT ARGUMENTS` in `folder`."""

    folder: str
    script: tuple[str, ...]
    arguments: tuple[str, ...]


def _nothing_more(plan: LaunchPlan) -> Mapping[str, str]:
    return {}


class Framework(Record, eq=False):
    """A training framework, as of a version and a day.

    `fixed` are knobs that it leaves no choice of, with the reason; `recompute` the parts of its
    modes that it has words for. `no_jobs`: why it lacks a job, where there is more to say.
    `refusals` says why a plan cannot be written, `files` is its configuration, and `defaults` the
    user values to which it has something to say, `own_defaults` those that rest on the plan.
    `compiler`: what compiles before the job. `writes`: the knobs among `RARE` that it writes, and
    whether it trains depths; `not_written`: why not another knob, where there is more to say.
    """

    name: str
    title: str
    versions: str
    source: str
    date: datetime.date
    jobs: tuple[Job, ...]
    no_jobs: Mapping[Job, str] = field(default_factory=dict)
    fixed: Mapping[str, tuple[Value, str]]
    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved")
    recompute: tuple[str, ...] = PLAIN
    precisions: Mapping[str, str]
    refusals: Callable[[LaunchPlan], Iterator[str]]
    files: Callable[[LaunchPlan, str], Texts]
    call: Callable[[LaunchPlan], FrameworkCall]
    environment: Callable[[LaunchPlan], Mapping[str, str]]
    defaults: Mapping[str, str]
    own_defaults: Callable[[LaunchPlan], Mapping[str, str]] = _nothing_more
    compiler: str | None = None
    assumes: tuple[str, ...] = ()
    writes: frozenset[str] = frozenset()
    not_written: Mapping[str, str] = field(default_factory=dict)

    def runs_on(self, platform: Platform) -> bool:
        """Whether it runs on a platform."""
        return SOFTWARE[self.name].runs_on(platform)

    def settled(self, given: PartialLayout) -> PartialLayout:
        """Return a layout with the knobs that the framework leaves no choice of."""
        own = {
            name: value
            for name, (value, _) in self.fixed.items()
            if given[name] is None and KNOBS[name].is_for(given["job"])
        }
        return given.changed(**own)

    def conflicts(self, given: PartialLayout) -> Iterator[str]:
        """Yield what of a layout, which may be open in parts, it leaves no choice of."""
        for name, (value, why) in self.fixed.items():
            if given[name] not in (None, value):
                yield f"{KNOBS[name].title} {given[name]}: {why}; try {value}"

    def reasons(self, plan: LaunchPlan) -> tuple[str, ...]:
        """Return why it cannot run a plan; empty where it can."""
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
            known = ", ".join(self.jobs)
            why = self.no_jobs.get(layout.job)
            because = f": {why}" if why else ""
            yield f"{self.title} has no job {layout.job} here{because}; it has {known}"
        yield from self.conflicts(PartialLayout.of(layout))
        for knob in (KNOBS[name] for name in RARE - self.writes):
            if getattr(layout, knob.name) != knob.default:
                why = self.not_written.get(knob.name)
                what = f"no {knob.title} is written for {self.title}{f': {why}' if why else ''}"
                yield f"{what}; leave {knob.option} out"
        if plan.depths and "mtp_depths" not in self.writes:
            yield f"{self.title} trains no MTP depths here; try --mtp-depths 0"
        if layout.pp > 1 and layout.schedule not in self.schedules:
            known = ", ".join(self.schedules)
            yield f"{self.title} has no schedule {layout.schedule}; it has {known}"
        for part in parts_of(layout.recompute):
            if part not in self.recompute:
                known = ", ".join(self.recompute)
                yield f"{self.title} has no recompute {part} here; it has {known}"
        if layout.precision not in self.precisions:
            known = ", ".join(self.precisions)
            yield f"{self.title} has no precision {layout.precision}; it has {known}"
        yield from self.refusals(plan)


def unwritten(plan: LaunchPlan) -> Iterator[str]:
    """Yield what of a model's layers has no words in configurations that spell out its shape."""
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
    """Return keys with dots as tables in tables."""
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

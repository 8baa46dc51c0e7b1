"""Training software: names, chips, and how long its maker supports it, from `specs/software`.

One file per framework. A training stack belongs to the software that has one of its names. Of a
publication's words, the first name of a framework counts: "XTuner (DeepSpeed ZeRO-3)" is XTuner.
Words such as `eager` or `compile` say how it ran, against the framework's habit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from trnbench.facts.calibration.buckets import GradientBuckets
from trnbench.facts.calibration.supports import KEY, SupportLine
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import FlopPerS
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import DataKind
from trnbench.facts.workload.layout import AttentionKernel, LossKernel, ZeroStage

if TYPE_CHECKING:
    from trnbench.facts.calibration.training_stack import TrainingStack
    from trnbench.facts.hardware.instance import Platform

SECTION = "software"
Execution = Literal["tuned", "eager", "compiled", "graph"]
"""How it comes to its kernels: written for the chips, one by one, fused, or as whole graphs."""


class EndOfSupport(Record):
    """The end of support of a software."""

    since: str
    """Release that first came without support."""
    needs: str
    """What still runs it."""


class CommandLine(Record):
    """What a run of some releases does unless its command line says otherwise."""

    since: int
    """First year of these releases."""
    attention: AttentionKernel
    sequence_parallel: bool
    dropout: bool = False
    """Of models that are given by their shapes alone."""

    def holds_of(self, release: str) -> bool:
        """True where a release's words name a year of these."""
        years = re.findall(r"\b20\d\d\b", release)
        return bool(years) and int(years[0]) >= self.since


class LossHabit(Record):
    """Kernel of the logits and their loss, of releases from `since` on."""

    kernel: LossKernel
    since: str | None = None


class MfuPeak(Record):
    """The rate over which a software prints its MFU, by its own convention."""

    chips: tuple[str, ...]
    per_chip_flop_per_s: FlopPerS


class TrainingSoftware(Sourced):
    """A training framework."""

    name: str
    """Its name for `--stack`."""
    title: str
    names: tuple[str, ...]
    """Its names in publications and calibrations, the usual one first."""
    family: str | None = None
    """Word in the names of software that shares its kernels, such as forks."""
    execution: Execution
    zero: ZeroStage | None = None
    """Usual ZeRO stage; None: that of the stack that stands for it."""
    whole_graphs: bool = False
    """True where the compiler takes the passes of a stage as one graph, not module by module."""
    neuron_chips: tuple[str, ...] = ()
    gpus: bool = False
    release: str | None = None
    """Newest release known."""
    ended: EndOfSupport | None = None
    mfu_peak: tuple[MfuPeak, ...] = ()
    loss: LossHabit | None = None
    """None: that of the stack that stands for it."""
    supports: tuple[SupportLine, ...] = ()
    """Features that it runs or refuses wherever its stack names none of them."""
    buckets: GradientBuckets | None = None
    """Messages of gradients and weights at the end of a step; None: one for each layer."""

    rows_on: DataKind | None = None
    """Data of the published steps behind its stacks; None where these are of several kinds."""
    command_line: CommandLine | None = None
    memory_logged: Literal["first", "last"] = "first"
    """Rank whose memory its log tells, of the first pipeline stage or the last."""

    def peak_flop_per_s(self, chip: str) -> float | None:
        """The rate of a chip over which it prints its MFU; None where it says none of its own."""
        peaks = (peak.per_chip_flop_per_s for peak in self.mfu_peak if chip in peak.chips)
        return next(peaks, None)

    def runs_on(self, platform: Platform) -> bool:
        """True when the software runs on the chips of a platform."""
        from trnbench.facts.hardware.compute_unit import NeuronCores  # names alone are quick

        chip = platform.chip
        return chip.name in self.neuron_chips if isinstance(chip.unit, NeuronCores) else self.gpus

    def loss_in(self, told: str) -> LossKernel | None:
        """Kernel of the loss in the release that words name, else the newest; None if unknown."""
        if self.loss is None or self.loss.since is None:
            return self.loss.kernel if self.loss else None
        own = "|".join(re.escape(name.lower()) for name in self.names)
        version = r"(\d+(?:\.\d+)+)"
        named = re.search(rf"(?:{own})\W{{0,3}}v?{version}", told.lower()) or re.search(
            version, told
        )
        new = named is None or _parts(named[1]) >= _parts(self.loss.since)
        return self.loss.kernel if new else None

    @property
    def warning(self) -> str | None:
        """End of support in words; None while it is supported."""
        if self.ended is None:
            return None
        return f"{self.title}: support ended with {self.ended.since}; it needs {self.ended.needs}"


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def run_by(stack: TrainingStack, software: TrainingSoftware | None) -> TrainingStack:
    """The stack with what its software runs or refuses beyond what the stack's file names."""
    named = {feature for line in stack.supports for feature in line.features}
    told = software.supports if software else ()
    lines = [(i, one) for i, one in enumerate(told) if not named & set(one.features)]
    if software is None or not lines:
        return stack
    sources, cited = dict(stack.provenance.sources), dict(stack.provenance.cited)
    for place, (i, _) in enumerate(lines, len(stack.supports)):
        source = software.provenance.source_of(f"{KEY}[{i}].status")
        if source is not None:
            path = f"{KEY}[{place}].status"
            sources[path], cited[path] = source, path
    return replace(
        stack,
        supports=(*stack.supports, *(one for _, one in lines)),
        provenance=replace(stack.provenance, sources=sources, cited=cited),
    )


def all_software(catalog: Catalog) -> tuple[TrainingSoftware, ...]:
    """Every software of a catalogue, by name."""
    entries = catalog.entries(SECTION)
    return tuple(load_once(catalog, entry.path, TrainingSoftware) for entry in entries)


def software_called(catalog: Catalog, name: str) -> TrainingSoftware | None:
    """The software of this `--stack` name; None if there is none."""
    if not catalog.has(SECTION, name):
        return None
    return load_once(catalog, catalog.find(SECTION, name).path, TrainingSoftware)


def software_in(catalog: Catalog, platform: Platform, text: str) -> TrainingSoftware | None:
    """The software on a platform that a publication's words name first; None if they name none."""
    return software_named(all_software(catalog), platform, text)


def software_named(
    known: Iterable[TrainingSoftware], platform: Platform, text: str
) -> TrainingSoftware | None:
    """The same, of some software."""
    words = text.lower()
    places = [
        (place, -len(name), software)
        for software in known
        for name in (*software.names, software.family or "")
        if name.lower() in words  # which most are not
        and (place := _place(name, words, part=name == software.family)) is not None
        and software.runs_on(platform)
    ]
    return min(places, key=lambda one: one[:2])[2] if places else None


def _place(name: str, words: str, *, part: bool) -> int | None:
    """Place of a name in a text in small letters: of a family as a part of words, else whole."""
    name = name.lower()
    bounds = ("", "") if part else (r"(?<![a-z0-9])", r"(?![a-z0-9])")
    at = re.search(f"{bounds[0]}{re.escape(name)}{bounds[1]}", words)
    return at.start() if at and name else None


_EXECUTIONS: dict[Execution, str] = {
    "eager": r"\beager\b|\b(no|not|without)[ -](torch\.)?compiled?\b"
    r"|\bcompile[ =:]*(off|false|no)\b",
    "compiled": r"\bcompiled?\b|\binductor\b|\bjit\b|\bxla\b|\bjax\b",
    "tuned": r"megatron|\btransformer[ -]?engine\b",
}
_ZERO = re.compile(r"zero[ -]?([0123])(?![0-9])|(fsdp2?|full[ _-]shard)|(shard[ _-]grad)|\b(ddp)\b")


def execution_in(text: str) -> Execution | None:
    """Manner (eager, compiled) in which a publication says its software ran; None if unsaid."""
    words = text.lower()
    return next(
        (manner for manner, execution in _EXECUTIONS.items() if re.search(execution, words)), None
    )


def zero_in(text: str) -> ZeroStage | None:
    """ZeRO stage that a publication's words name; None if they name none."""
    found = _ZERO.search(text.lower())
    if found is None:
        return None
    stage, whole, gradients, _ = found.groups()
    return (0, 1, 2, 3)[int(stage) if stage else 3 if whole else 2 if gradients else 0]


def software_on(
    catalog: Catalog, platform: Platform, names: tuple[str, ...]
) -> TrainingSoftware | None:
    """The software on a platform with the first known of these names; None if all are unknown."""
    from trnbench.facts.calibration.transfer import listed_in  # names alone are quick

    wanted = {name.lower() for name in names}
    # Only files that have one of the names become records.
    named = (
        load_once(catalog, entry.path, TrainingSoftware)
        for entry in catalog.entries(SECTION)
        if wanted.intersection(name.lower() for name in listed_in(catalog, entry, "names"))
    )
    runners = {
        name.lower(): software
        for software in named
        if software.runs_on(platform)
        for name in software.names
    }
    return next((runners[name.lower()] for name in names if name.lower() in runners), None)

"""Inputs of a predicted training step: model, cluster and calibrations, read by name.

Also features beyond what a training stack is known to run. A feature that no line of a stack's file
names is untested; a knob at its default runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trnbench.engines.analytic.step.engines import Engines
from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack, stack_of
from trnbench.facts.calibration.compiler import Compiler, compiler_of
from trnbench.facts.calibration.coverage import DEGREES, Spread, load_beyond_rows, together, widest
from trnbench.facts.calibration.hosts import JobRates, load_job_rates
from trnbench.facts.calibration.population import carried_over
from trnbench.facts.calibration.software import (
    TrainingSoftware,
    run_by,
    software_called,
    software_on,
)
from trnbench.facts.calibration.supports import Support
from trnbench.facts.calibration.training_stack import (
    WITH_EXPERTS,
    Basis,
    TrainingEfficiency,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
    passed_over,
    training_stack_of,
)
from trnbench.facts.calibration.transfer import serving_by_name, taken_over
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.choices import REINFORCED
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.weights import parameter_count
from trnbench.predict.assumption import Assumption
from trnbench.predict.common_draws import CommonDraws, drawn_efficiency, sampled_and_drawn
from trnbench.predict.release import of_release
from trnbench.predict.sampling import SAMPLES, sampled

if TYPE_CHECKING:
    from trnbench.engines.emulate.step.compute import RankUse
    from trnbench.engines.emulate.step.exchanges import PlayedSite
    from trnbench.engines.emulate.step.rank import Runs
    from trnbench.predict.fit import MemoryDraws
    from trnbench.predict.prediction import PricedStep
from trnbench.facts.workload.layout import KNOBS
from trnbench.machine.rank_groups import ORDERS
from trnbench.program.features import EXPERTS_APART, features_of, plain_features


def support_of(stack: TrainingStack, feature: str) -> Support:
    if feature == EXPERTS_APART and not ORDERS[stack.order].cuts_experts:
        why = "it counts ranks so that neither context nor data ranks follow tensor ranks"
        return Support(feature=feature, status="refused", note=why)
    stated = stack.support_of(feature)
    if stated is not None:
        return stated
    return Support(feature=feature, status="runs" if feature in plain_features() else "untested")


def runs(stack: TrainingStack, feature: str) -> bool:
    return support_of(stack, feature).status == "runs"


def beyond(stack: TrainingStack, model: Model, layout: PartialLayout) -> tuple[Support, ...]:
    """Features of a model in a layout that a stack is not known to run."""
    supports = (support_of(stack, feature) for feature in features_of(model, layout))
    return tuple(support for support in supports if support.status != "runs")


def refusal(stack: TrainingStack, support: Support) -> str:
    """Refusal of a feature by a stack, with the source of the statement and a remedy."""
    why = f" ({support.words})" if support.words else ""
    instead = ", ".join([*_others(stack, support.feature), "another --stack"])
    return (
        f"{stack.short_name} does not run {support.feature}{why}; try {instead}; train, compare "
        "and plan predict it as if it did with --assume-supported"
    )


def warning(stack: TrainingStack, support: Support) -> str:
    """Warning that a feature is untested with a stack, or assumed to run."""
    why = f" ({support.words})" if support.words else ""
    wider = ""
    if stack.untested is not None:
        ends = f"{stack.untested.low:g} to {stack.untested.high:g}"
        wider = f"; the interval allows for {ends} times the time"
    if support.status == "refused":
        return f"{stack.short_name} does not run {support.feature}{why}, assumed that it did{wider}"
    return f"{support.feature} is untested with {stack.short_name}{why}{wider}"


def _others(stack: TrainingStack, feature: str) -> list[str]:
    """Other values of a feature's knob that a stack's file lists as running."""
    for knob in KNOBS.values():
        of_knob = f"{knob.title} "
        if feature.startswith(of_knob):
            named = (name for line in stack.supports for name in line.features)
            return [name for name in named if name.startswith(of_knob) and runs(stack, name)]
    return []


class SetupMemo(Record, eq=False):
    """Results shared by all predictions of a set-up."""

    engines: Engines = field(default_factory=dict)
    """Closed forms of placed groups."""
    runs: Runs = field(default_factory=Memo)
    """Played products."""
    sites: Memo[tuple[RankUse, int], PlayedSite] = field(default_factory=Memo)
    """Played exchanges, by use of a rank and number of nodes."""
    samples: Memo[int, TrainingEfficiency] = field(default_factory=Memo)
    """Sampled efficiencies, by number of samples."""
    drawn: Memo[CommonDraws, TrainingEfficiency] = field(default_factory=Memo)
    """Efficiencies in common draws."""
    together: Memo[CommonDraws, TrainingEfficiency] = field(default_factory=Memo)
    """Efficiencies by samples and in common draws."""
    steps: Memo[tuple[Model, int, Layout], PricedStep] = field(default_factory=Memo)
    """Steps that are priced both ways, by model, number of nodes and layout."""
    rates: Memo[int | None, JobRates] = field(default_factory=Memo)
    """Rates of a job's phases on the instance, by number of samples."""
    memory: Memo[int | None, MemoryDraws] = field(default_factory=Memo)
    """Draws of the memory of layouts, by logical size."""


class TrainSetup(Record, eq=False):
    """A model on `nodes` instances of a platform, with the calibrations to predict it."""

    model: Model
    platform: Platform
    nodes: int
    logical_size: int | None = None
    efficiency: TrainingEfficiency
    collectives: CollectiveStack
    rates: JobRates
    """Rates of engines that write answers, and of a host."""
    software: TrainingSoftware | None = None
    """Software that the stack belongs to; None where no file names it."""
    compiler: Compiler | None = None
    """Compiler that checks the graphs of the chip; None where none does."""
    own_stack: bool = True
    """False where the stack represents other software."""
    usual_stack: bool = False
    """True where nobody named the stack: it is the platform's usual one."""
    assume_supported: bool = False
    """True predicts what the stack's software refuses as if it ran."""
    release: str | None = None
    """Release that was asked for; `assumed_release`: what is assumed of it."""
    assumed_release: Assumption | None = None
    measured: TrainingStack | None = None
    """Stack from whose measured rows the numbers were carried over; None where they are its own."""
    data: Spread | None = None
    """Spread of data other than that of the stack's rows; None where it is alike or unsaid."""
    draws: CommonDraws | None = None
    """Common draws in which steps are priced beside their samples; None where nobody compares."""
    pace: float = 1.0
    """Multiple of predicted times that is supposed instead; layouts are ranked as predicted."""
    passed_over: tuple[str, ...] = ()
    """Stacks with measured steps on the chips, where the usual one has none."""
    taken_over: tuple[str, ...] = ()
    """Warnings for calibrations that were made for another platform."""
    memo: SetupMemo = field(default_factory=SetupMemo)
    """Valid for any model and number of nodes; a set-up with any other new field needs a new
    memo."""

    @property
    def stack(self) -> TrainingStack:
        return self.efficiency.stack

    @property
    def graph_compiler(self) -> Compiler | None:
        """Compiler of graphs before a step; None where software runs operation by operation."""
        return None if "eager" in self.stack.short_name else self.compiler

    @property
    def basis(self) -> Basis:
        """Kind of evidence behind the stack's numbers here, for models of this kind."""
        if not self.own_stack:
            return "transferred"
        return self.stack.basis_on(self.platform.instance.name, family_of(self.model))

    @property
    def spread(self) -> Spread:
        """Spread of measured over predicted times here, for models of this kind."""
        if not self.own_stack and self.stack.unseen is not None:
            known = self.stack.unseen
        else:
            known = self.stack.spread_on(self.platform.instance.name, family_of(self.model))
        small = self.stack.small_spread
        if small is None or parameter_count(self.model) >= small.parameters:
            return known
        return widest(known, small)

    def beyond(self, layout: PartialLayout) -> tuple[Support, ...]:
        """Features of a layout that the stack's software is not known to run.

        Empty for software that another stack represents, as its features are unknown.
        """
        return beyond(self.stack, self.model, layout) if self.own_stack else ()

    def beyond_rows(self, layout: Layout) -> Mapping[str, tuple[str, ...]]:
        """Settings beyond the measured steps of the stack, in words: degrees, sizes and kinds.

        Empty where the stack's numbers come from elsewhere: its whole spread says so then.
        """
        covers = self.stack.covers
        if covers is None or self.efficiency.beyond_rows is None or not self.own_stack:
            return {}
        degrees = {name: int(getattr(layout, name)) for name in DEGREES}
        ranks = self.platform.ranks(self.logical_size)
        return {
            "degrees": covers.degrees_beyond(degrees, ranks),
            "sizes": covers.sizes_beyond(
                nodes=self.nodes,
                sequence=int(layout.sequence),
                micro_batch=int(layout.micro_batch),
                tokens=int(layout.global_batch * layout.sample_tokens),
            ),
            "kinds": () if layout.job in covers.jobs else (f"job {layout.job}",),
        }

    def spread_in(self, layout: Layout) -> Spread:
        """Spread in a layout: wider beyond the rows, and with features never seen to run."""
        known, untested, amounts = self.spread, self.stack.untested, self.efficiency.beyond_rows
        if amounts is not None:
            past = self.beyond_rows(layout)
            known = together(known, *(getattr(amounts, name) for name in past if past[name]))
        known = known if self.data is None else together(known, self.data)
        if self.chips == 1 and self.efficiency.chip.between_chips is not None:
            known = widest(known, self.efficiency.chip.between_chips)
        if layout.job in REINFORCED:
            known = widest(known, self.rates.answers)
        if untested is None or not self.beyond(PartialLayout.of(layout)):
            return known
        return widest(known, untested)

    @property
    def experts_assumed(self) -> bool:
        """True where the model has experts and no measured step told what these cost here."""
        told = self.stack.provenance.evidence.get("experts.compute")
        has_experts = family_of(self.model).endswith(WITH_EXPERTS)
        return has_experts and told is not None and told.kind == Kind.ASSUMED

    def beside(self, others: Iterable[TrainSetup]) -> TrainSetup:
        """The set-up with the samples of another one by the same calibrations, if there is one."""
        alike = next((one.memo for one in others if one.efficiency == self.efficiency), self.memo)
        shared = {name: getattr(alike, name) for name in ("samples", "drawn", "together")}
        return replace(self, memo=replace(self.memo, **shared))

    @property
    def samples(self) -> TrainingEfficiency:
        return self.memo.samples.of(SAMPLES, lambda: sampled(self.efficiency))

    @property
    def samples_and_draws(self) -> TrainingEfficiency:
        """Efficiency by samples, and then in the set-up's common draws."""
        draws = self.draws or CommonDraws()
        return self.memo.together.of(draws, lambda: sampled_and_drawn(self.efficiency, draws))

    def drawn(self, draws: CommonDraws) -> TrainingEfficiency:
        """Efficiency with a row of common draws for every number that has a range."""
        return self.memo.drawn.of(draws, lambda: drawn_efficiency(self.efficiency, draws))

    @property
    def chips(self) -> int:
        return self.nodes * self.platform.instance.chips

    @property
    def ranks(self) -> int:
        return self.chips * self.platform.chip.ranks(self.logical_size)

    def training(self, layout: Layout | PartialLayout) -> TrainSetup:
        """Set-up of the nodes that train, without those that only generate answers."""
        if isinstance(layout, PartialLayout):
            apart = layout.number("generation_nodes")
        else:
            apart = layout.generation_nodes
        if apart is not None and apart >= self.nodes:
            raise InputError(
                f"--generation-nodes {apart} leaves no node of {self.nodes} to train",
                hint="give fewer of them, or more nodes with --on",
            )
        return replace(self, nodes=self.nodes - apart) if apart else self

    @property
    def domain(self) -> Platform:
        """The platform as exchanges use it: instances joined by one switch count as one."""
        return self.platform.joined(self.platform.domain_of(self.nodes))

    def node_ranks(self, ranks: int) -> int | None:
        """Used ranks of each node of the domain, the first ones; None where all are used.

        A job's ranks are divided evenly among the nodes, unless they fill some nodes or do not
        divide.
        """
        whole = self.platform.ranks(self.logical_size)
        if ranks % whole == 0 or (self.nodes > 1 and ranks % self.nodes):
            return None
        return ranks // self.nodes * self.domain.joined_nodes

    @property
    def evidence(self) -> Kind:
        """The weakest kind of evidence among the numbers of the calibrations."""
        calibrations = (self.efficiency.chip, self.stack, self.collectives)
        return max(calibration.provenance.weakest() for calibration in calibrations)


def train_setup(
    catalog: Catalog,
    model: str | Model,
    instance: str | Platform,
    nodes: int,
    *,
    stack: str | TrainingStack | None = None,
    logical_size: int | None = None,
    assume_supported: bool = False,
    release: str | None = None,
) -> TrainSetup:
    """Set-up of a model on a platform; names are looked up in the catalogue.

    The stack is the platform's own unless one is given.
    """
    platform = load_platform(catalog, instance) if isinstance(instance, str) else instance
    if logical_size is not None:
        from trnbench.machine.placement import place

        place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    efficiency = training_efficiency(catalog, platform, stack)
    efficiency, assumed_release = of_release(catalog, efficiency, release)
    collectives = collectives_of(catalog, platform, efficiency.stack)
    return TrainSetup(
        model=load_model(catalog, model) if isinstance(model, str) else model,
        platform=platform,
        nodes=nodes,
        logical_size=logical_size,
        efficiency=efficiency,
        collectives=collectives,
        rates=load_job_rates(catalog),
        software=software_on(catalog, platform, efficiency.stack.frameworks),
        compiler=compiler_of(catalog, platform.chip.name),
        usual_stack=stack is None,
        assume_supported=assume_supported,
        release=release,
        assumed_release=assumed_release,
        measured=_measured(catalog, efficiency.stack),
        passed_over=passed_over(catalog, efficiency.stack, platform) if stack is None else (),
        taken_over=(
            *strangers(catalog, platform, (efficiency.stack, collectives)),
            *(_first_of_several(catalog, platform) if stack is None else ()),
        ),
    )


def _first_of_several(catalog: Catalog, platform: Platform) -> tuple[str, ...]:
    """Note that several of the user's own stacks serve a platform, and which one is used."""
    own = serving_by_name(catalog, platform.instance.name)
    if not own:
        return ()
    return (
        f"{len(own)} of your own stacks serve {platform.instance.name}: {', '.join(own)}; "
        f"{own[0]}, the first by name, is used: --stack names another",
    )


def strangers(
    catalog: Catalog, platform: Platform, stacks: Iterable[TrainingStack | CollectiveStack]
) -> tuple[str, ...]:
    """Warnings for calibrations that were measured on another platform, or on none."""
    every = tuple(stacks)
    made_for = {stack.name: stack.instances for stack in every}
    remarks = [stack.remark for stack in every if isinstance(stack, CollectiveStack)]
    return (*taken_over(catalog, platform.instance, made_for), *filter(None, remarks))


def _measured(catalog: Catalog, stack: TrainingStack) -> TrainingStack | None:
    """Nearest ancestor of a stack that has measured rows; None if that is the stack itself."""
    for ancestor in _line(catalog, stack):
        if ancestor.fit is not None:
            break
    return None if ancestor is stack else ancestor


def _line(catalog: Catalog, stack: TrainingStack) -> Iterator[TrainingStack]:
    """A stack, and the stacks that it inherits from, the nearest first."""
    yield stack
    # Stacks may name each other as ancestors in a circle: `seen` ends the search.
    seen = {stack.name}
    while stack.inherits_from and stack.inherits_from not in seen:
        seen.add(stack.inherits_from)
        stack = load_training_stack(catalog, stack.inherits_from)
        yield stack


PLAIN = "pytorch"
"""Software of stacks that stand for any: it exchanges as plain PyTorch does."""


def training_efficiency(
    catalog: Catalog, platform: Platform, stack: str | TrainingStack | None
) -> TrainingEfficiency:
    """Calibration of a platform with a stack, or with the platform's own stack."""
    named = None
    if stack is None:
        stack = training_stack_of(catalog, platform.instance.name)
    elif isinstance(stack, str):
        from trnbench.facts.calibration.stack_of import Stacks

        found = Stacks(catalog).by_name(stack, platform)
        stack, named = found.stack, found.software
    stack = carried_over(catalog, stack, platform)
    network = platform.instance.network
    if stack.efa is not None and (network is None or network.transport != "efa"):
        stack = replace(stack, efa=None)
    software = _exchanging(catalog, platform, stack)
    return TrainingEfficiency(
        chip=load_chip_efficiency(catalog, platform.chip.name),
        stack=run_by(stack, named or software),
        beyond_rows=load_beyond_rows(catalog),
        buckets=software.buckets if software else None,
    )


def _exchanging(
    catalog: Catalog, platform: Platform, stack: TrainingStack
) -> TrainingSoftware | None:
    """Software whose exchanges a stack makes: of an unknown name, those of what it began as."""
    for one in _line(catalog, stack):
        software = software_on(catalog, platform, one.frameworks)
        if software is not None:
            return software
    if one.frameworks:
        return None
    plain = software_called(catalog, PLAIN)
    return plain if plain is not None and plain.runs_on(platform) else None


def collectives_of(catalog: Catalog, platform: Platform, stack: TrainingStack) -> CollectiveStack:
    if stack.collectives is not None:
        return load_stack(catalog, stack.collectives)
    return stack_of(catalog, platform.instance.name)


def family_of(model: Model) -> str:
    """Kind of a model: its family, and whether it has experts.

    Measured steps of one model are evidence for others of the same kind.
    """
    experts = model.transformer is not None and model.transformer.moe is not None
    return f"{model.family}{WITH_EXPERTS}" if experts else model.family

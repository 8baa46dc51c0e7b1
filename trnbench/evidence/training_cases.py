"""A row of measured steps as a case for the model: model, layouts, machine, stack.

Blank cells of a row with a `source`, a published one, are habits of its software
(`evidence.published`). Those of a user's row or log are settled as `train` settles them
(`predict.settled`): the prediction that is scored or explained is the one that `train` prints.
"""

from __future__ import annotations

from functools import cached_property

from trnbench.errors import DataFileError, InputError, UnknownNameError
from trnbench.evidence.collectives import fitted
from trnbench.evidence.columns import column_of
from trnbench.evidence.model_of import Models
from trnbench.evidence.published import (
    HALF,
    RowWays,
    by_habit,
    half_assumed,
    mixed,
    stated_precision,
    stated_sequence,
)
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.step_row import StepRow, step_of
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.stack_of import FoundStack, Stacks
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.placement import place
from trnbench.predict.assumption import Assumption
from trnbench.predict.fit import CountedMemory, WhoseMemory
from trnbench.predict.settled import USUAL_STACK, Settled, assumptions, searched_for, settle
from trnbench.predict.setup import TrainSetup, runs, train_setup
from trnbench.program.features import feature_of

NO_LAYOUT = "no layout fits"
"""Begins the reason against a row whose open knobs cannot be settled."""


class EvidenceCase(Record, eq=False):
    """A row as a case for the model."""

    step: StepRow
    setup: TrainSetup
    ways: RowWays
    """Variants per micro-batch to try; the first that fits in memory counts."""
    assumed: tuple[Assumption, ...]
    software: str = ""
    """Software that ran, as it was understood; `kind`: of which kind another stack stands for it.
    """
    kind: str | None = None
    logged: CountedMemory = "first"
    """Rank whose memory a log of the software tells."""

    @property
    def counted(self) -> WhoseMemory:
        """Ranks whose memory was measured; the worst where none was."""
        held = self.step.memory
        return "worst" if held is None else "chip" if held.of == "chip" else self.logged

    @property
    def layout(self) -> Layout:
        return self.ways[0][0][0][1]

    @property
    def configuration(self) -> str:
        """Key of repeats of one experiment, on any nodes and release."""
        one = self.layout
        degrees = (one.tp, one.pp, one.cp, one.ep, one.vpp, one.micro_batch, one.sequence)
        modes = (one.zero, one.sequence_parallel, one.recompute, one.precision)
        sent = (one.dispatcher, one.overlapped)
        setup = self.setup
        where = (setup.model.name, setup.platform.instance.name, setup.stack.name)
        return " ".join(map(str, (*where, *degrees, *modes, *sent)))


class Reader(State, kw_only=False):
    """Converter of rows into cases."""

    catalog: Catalog
    stack: TrainingStack | str | None = None
    """Stack of all rows, if given; rows of another known stack are refused."""
    otherwise: TrainingStack | str | None = None
    """Stack for software unknown to the catalogue."""
    standing: Stacks | None = None
    """Stacks that take the place of the catalogue's."""
    _platforms: Memo[tuple[object, ...], Platform] = field(default_factory=Memo)
    _setups: Memo[tuple[object, ...], TrainSetup] = field(default_factory=Memo)
    _answers: Memo[tuple[object, ...], Settled] = field(default_factory=Memo)

    @cached_property
    def models(self) -> Models:
        return Models(self.catalog)

    @cached_property
    def stacks(self) -> Stacks:
        return self.standing or Stacks(self.catalog, self.stack, self.otherwise)

    def cases(self, file: EvidenceFile) -> tuple[EvidenceCase | str, ...]:
        return tuple(self._case_or_reason(row) for row in file.rows)

    def _case_or_reason(self, row: EvidenceRow) -> EvidenceCase | str:
        try:
            return self._case(step_of(row))
        except DataFileError:
            raise  # A broken file of the catalog is no fault of the row.
        except (RowFault, InputError, ValueError) as fault:
            return str(fault)

    def _case(self, step: StepRow) -> EvidenceCase:
        platform = self._platform(step)
        ranks, nodes = _ranks(step, platform)
        model = self.models.of(step.model, step.shape, step.layout.number("sequence"))
        stack = self.stacks.of(step.framework, step.release, platform)
        line = stack.software.command_line if stack.software else None
        if line is not None and line.dropout and line.holds_of(step.release):
            model = model.with_dropout
        setup = self._setup(model.model, platform, nodes, stack.stack, step.lnc)
        if step.published:
            dp = _replicas(step, ranks)
            ways, assumed = by_habit(step, model.model, stack.stack, dp)
        else:
            ways, assumed = self._settled(step, setup, ranks)
        zero = feature_of(KNOBS["zero"], ways[0][0][0][1].zero)
        own, of_stack = stack.own, _of_stack(stack)
        if step.published and own and not runs(stack.stack, zero):
            own = False
            why = "which cuts weights otherwise"
            of_stack = (Assumption(name="stack", value=stack.stack.short_name, why=why),)
        other, of_data = _of_data(step, setup, stack)
        return EvidenceCase(
            step=step,
            setup=replace(setup, own_stack=own, data=other),
            ways=ways,
            assumed=(*of_stack, *of_data, *model.assumed, *assumed),
            software=stack.software.title if stack.software else step.framework,
            kind=stack.kind,
            logged=stack.software.memory_logged if stack.software else "first",
        )

    def _settled(
        self, step: StepRow, setup: TrainSetup, ranks: int
    ) -> tuple[RowWays, tuple[Assumption, ...]]:
        """The run of a user's row, settled as `train` settles a question."""
        said, of_precision = _said(step, setup, ranks)
        # What ran is supported by the software that ran it.
        asked = replace(setup, assume_supported=step.ran)
        key = (setup.memo, setup.model, setup.nodes, step.ran, said)
        settled = self._answers.of(key, lambda: settle(asked, said))
        if settled.reasons and step.ran:
            raise RowFault(f"{NO_LAYOUT}: {'; '.join(settled.reasons)}; say the one that ran")
        if searched_for(settled.layout):
            raise RowFault("; ".join(settled.reasons) or "no layout is valid on these ranks")
        layout = settled.layout.complete()
        halves = HALF if settled.between else ((1.0, layout.recompute),)
        (variant,) = mixed([halves], {m: replace(layout, recompute=m) for _, m in halves})
        stack = setup.stack
        assumed = assumptions(settled.layout, settled.habitual, settled.chosen, stack.short_name)
        half = (half_assumed(stack),) if settled.between else ()
        return ((variant,),), (*of_precision, *assumed, *half)

    def _setup(
        self, model: Model, platform: Platform, nodes: int, stack: TrainingStack, lnc: int | None
    ) -> TrainSetup:
        """Set-up of a case; cases on one machine and stack share their memo."""
        key = (platform.instance.name, stack.name, stack.release, stack.spread)
        alike = self._setups.of(
            (*key, stack.habits, stack.attention, stack.loss, lnc),
            lambda: train_setup(
                self.catalog, model, platform, nodes, stack=stack, logical_size=lnc
            ),
        )
        return replace(alike, model=model, nodes=nodes)

    def _platform(self, step: StepRow) -> Platform:
        return self._platforms.of(
            (step.instance, step.lnc), lambda: _platform(self.catalog, step.instance, step.lnc)
        )


def _of_stack(found: FoundStack) -> tuple[Assumption, ...]:
    """Assumption about a row's software: none where its own stack is known."""
    if found.own and not found.usual:
        return ()
    why = USUAL_STACK if found.usual else found.why
    return (Assumption(name="stack", value=found.stack.short_name, why=why),)


def _of_data(
    step: StepRow, setup: TrainSetup, found: FoundStack
) -> tuple[Spread | None, tuple[Assumption, ...]]:
    """Spread of a row's data where the rows of its stack ran on mock data, and its assumption."""
    amounts, software = setup.efficiency.beyond_rows, found.software
    on_mock = software is not None and software.rows_on == "mock"
    seen = step.data in (None, "mock") or fitted(found.stack.told_by, step.id)
    if amounts is None or not on_mock or seen:
        return None, ()
    wider: Spread = getattr(amounts, step.data or "")
    why = (
        f"rows of {found.stack.short_name} ran on mock data; the interval allows for "
        f"{wider.low:g} to {wider.high:g} times the time"
    )
    return wider, (Assumption(name="data", value=step.data or "", why=why),)


def _said(
    step: StepRow, setup: TrainSetup, ranks: int
) -> tuple[PartialLayout, tuple[Assumption, ...]]:
    """The stated knobs of a user's row, and what its bare precision is taken for."""
    # A step time of an unknown batch says nothing, so these two are never assumed.
    layout = step.layout
    if layout["global_batch"] is None:
        raise RowFault(f"{column_of('global_batch')}: not given")
    said = layout.changed(sequence=stated_sequence(step, setup.model))
    # Searches fill whole nodes: with idle ranks the degrees have to be said.
    if ranks < setup.ranks and layout["dp"] is None:
        open_ = [name for name in ("tp", "pp") if layout[name] is None]
        if open_:
            columns = " and ".join(column_of(name) for name in open_)
            raise RowFault(f"{columns}: not given, and {ranks} of {setup.ranks} ranks are in use")
        said = said.changed(dp=_replicas(step, ranks), cp=layout.degree("cp"))
    elif all(layout[name] is not None for name in ("tp", "pp", "dp")):
        said = said.changed(cp=layout.degree("cp"), dp=_replicas(step, ranks))
    if not step.precision:
        return said, ()
    precision, assumed = stated_precision(step, setup.stack)
    return said.changed(precision=precision), (assumed,) if assumed else ()


def _platform(catalog: Catalog, name: str, logical_size: int | None) -> Platform:
    instance = load_published(catalog, name, "")
    if instance is None:
        raise UnknownNameError("instance", name, catalog.names("instances"))
    platform = Platform(instance=instance, chip=load_chip(catalog, instance.chip))
    place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    return platform


def _ranks(step: StepRow, platform: Platform) -> tuple[int, int]:
    """Ranks in use, and their nodes."""
    per_node = platform.instance.chips * platform.chip.ranks(step.lnc)
    dp = step.layout.number("dp")
    told = step.ranks or (dp and dp * step.layout.replica_ranks)
    ranks = told or (step.nodes or 1) * per_node
    nodes = step.nodes or -(-ranks // per_node)
    if ranks > nodes * per_node:
        name = platform.instance.name
        raise RowFault(f"{ranks} ranks do not fit on {nodes} nodes of {name}, {per_node} each")
    return ranks, nodes


def _replicas(step: StepRow, ranks: int) -> int:
    """Replicas of a layout, which must fill the ranks."""
    layout = step.layout
    others = layout.replica_ranks
    dp = layout.number("dp") or max(ranks // others, 1)
    if others * dp != ranks:
        tp, pp, cp = (layout.degree(name) for name in ("tp", "pp", "cp"))
        parts = f"{tp} x {pp} x {dp} x {cp}"
        raise RowFault(f"tp x pp x dp x cp = {parts} = {others * dp}, and there are {ranks} ranks")
    return dp

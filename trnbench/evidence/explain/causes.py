"""The table of causes: effects on a prediction, usual magnitudes, and revealing experiments.

A cause changes a prediction in one or several ways. A way with a magnitude has a median and the
ends of an 80 % interval in the file; a way without lists its alternatives.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from trnbench.errors import InputError, did_you_mean, unhandled
from trnbench.facts.calibration.training_stack import RankOrder, number_keys
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.catalog.schema import BY_TAG
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import MAX_SIZE, Record, field, replace, tag_of
from trnbench.facts.workload.layout import KNOBS

if TYPE_CHECKING:
    from trnbench.predict.ranges import Range

Convention = Literal[
    "attention in full",
    "no attention",
    "6 FLOP a weight and token",
    "recompute",
    "attention in full and recompute",
    "headline peak",
]
_SEVERAL = 3
"""Compilations between steps from which on a run is seen to compile again and again."""
Each = Literal["once", "sample of a node", "sample"]


class Scaled(Record, tag="scaled"):
    """Calibration numbers, by key, times a factor."""

    numbers: tuple[str, ...]
    by: Ratio

    def __post_init__(self) -> None:
        """Refuse unknown keys."""
        _refuse_unknown(*self.numbers)


class Added(Record, tag="added"):
    """A calibration number, by key, plus a cost: once, or per sample of a node or the job."""

    number: str
    each: Each = "once"
    cost_s: Seconds

    def __post_init__(self) -> None:
        """Refuse an unknown key."""
        _refuse_unknown(self.number)


class AtLeast(Record, tag="least"):
    """A lower bound of the step time: concurrent work per sample."""

    each: Each
    cost_s: Seconds


class SlowLaunch(Record, tag="launch"):
    """A slower host launch of a pass through a layer, partly hidden by computing."""

    cost_s: Seconds


class SlowLink(Record, tag="link"):
    """Bandwidth or latency of the network, or of links inside a node, times a factor."""

    part: Literal["network", "node"]
    figure: Literal["bandwidth", "latency"]
    by: Ratio


class SlowNode(Record, tag="straggler"):
    """Slowdown of computing on the slowest of several nodes, as a factor."""

    by: Ratio


class Scatter(Record, tag="scatter"):
    """Extra relative scatter of computing times between nodes."""

    by: Ratio


class Setting(Record, tag="setting"):
    """Another value of a layout's knob: one of `to`, or a multiple of its own."""

    knob: str
    to: tuple[str, ...] = ()
    times: tuple[Ratio, ...] = ()
    also: dict[str, str] = field(default_factory=dict)
    """Dependent knobs."""

    def __post_init__(self) -> None:
        """Refuse unknown knobs, and a way without an alternative."""
        for name in (self.knob, *self.also):
            if name not in KNOBS:
                raise ValueError(f"a layout has no {name!r}")
        if not self.to and not self.times:
            raise ValueError("expected `to` or `times`")


class OtherOrder(Record, tag="order"):
    """Another order of ranks."""

    to: tuple[RankOrder, ...]


class Apart(Record, tag="apart"):
    """Tensor-parallel groups spread evenly over several nodes instead of one."""

    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse numbers of nodes out of range."""
        wrong = [one for one in self.nodes if not 2 <= one < MAX_SIZE]
        if wrong:
            raise ValueError(f"`nodes` must be from 2 to {MAX_SIZE - 1}, found {wrong[0]}")


class Counted(Record, tag="counted"):
    """A measured time derived from an MFU or throughput with another convention."""

    by: tuple[Convention, ...] = ()
    """Other FLOP, or another peak: either in the stated figure or in the derived time."""
    times: tuple[Ratio, ...] = ()
    """Factors on the peak, devices or tokens."""

    def __post_init__(self) -> None:
        """Refuse a way without an alternative."""
        if not self.by and not self.times:
            raise ValueError("expected `by` or `times`")


class TimedOtherwise(Record, tag="timed"):
    """The measurement covers a part of the step, or more than the step."""

    by: Ratio


ListedWay: TypeAlias = Setting | OtherOrder | Apart | Counted
"""Ways that list their alternatives."""
CauseWay: TypeAlias = (
    Scaled
    | Added
    | AtLeast
    | SlowLaunch
    | SlowLink
    | SlowNode
    | Scatter
    | Setting
    | OtherOrder
    | Apart
    | Counted
    | TimedOtherwise
)
"""All ways, in the order in which those of a cause are tried."""


class Cause(Record):
    """A cause: its ways, prior weight, revealing experiment and remedy."""

    id: str
    title: str
    weight: float
    """Relative prior probability; `seen_weight` where the log shows compilations between steps."""
    seen_weight: float | None = None
    experiment: str
    remedy: str
    ways: Annotated[tuple[CauseWay, ...], BY_TAG]

    def __post_init__(self) -> None:
        """Refuse a cause without weight."""
        if min(self.weight, self.seen_weight or self.weight) <= 0:
            raise ValueError("`weight` must be above 0, `seen_weight` too")


class CauseList(Sourced):
    """Causes, with prior probabilities and error sizes."""

    name: str
    title: str
    nothing: Ratio
    """Prior probability of no cause; `second`: of a second cause besides a first."""
    second: Ratio
    repeat: Ratio
    """Log standard deviation of repeated steps of a run; `memory`: of a rank's memory."""
    memory: Ratio
    calibration: Ratio
    """Share of a calibration's own deviations that counts as error."""
    cause: tuple[Cause, ...]

    def __post_init__(self) -> None:
        """Refuse duplicate ids, and shares out of range."""
        ids = [cause.id for cause in self.cause]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"{name!r} is given twice")
        for name in ("nothing", "second", "repeat", "memory", "calibration"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be above 0 and below 1")

    def told(self, recompilations: int) -> CauseList:
        """The causes, weighed by what a log shows of compilations between steps."""
        if recompilations < _SEVERAL:
            return self
        causes = tuple(replace(one, weight=one.seen_weight or one.weight) for one in self.cause)
        return replace(self, cause=causes)

    def ways(self) -> tuple[tuple[Cause, CauseWay, Range | None], ...]:
        """Every way of every cause, with its usual magnitude if any."""
        found: list[tuple[Cause, CauseWay, Range | None]] = []
        for i, cause in enumerate(self.cause):
            count: Counter[str] = Counter()
            for way in cause.ways:
                tag = tag_of(way)
                found.append((cause, way, self._usual(f"cause[{i}].{tag}[{count[tag]}]", way)))
                count[tag] += 1
        return tuple(found)

    @property
    def part_of_calibration(self) -> Range:
        """Share of a calibration's own deviations that counts as error."""
        return self._range("calibration", self.calibration)

    def _usual(self, path: str, way: CauseWay) -> Range | None:
        match way:
            case Setting() | OtherOrder() | Apart() | Counted():
                return None
            case Added() | AtLeast() | SlowLaunch():
                return self._range(f"{path}.cost", way.cost_s)
            case Scaled() | SlowLink() | SlowNode() | Scatter() | TimedOtherwise():
                return self._range(f"{path}.by", way.by)
            case unknown:
                unhandled(unknown, "magnitude")

    def _range(self, key: str, value: float) -> Range:
        # Checking a file of causes takes no numpy.
        from trnbench.predict.ranges import Range

        known = self.provenance.evidence.get(key)
        if known is None or known.low is None or known.high is None:
            raise InputError(f"{self.name}: {key} needs `low` and `high`")
        return Range(value=value, low=known.low, high=known.high, linear=known.low <= 0)


def load_causes(catalog: Catalog) -> CauseList:
    """Causes of unexpected step times."""
    return load_once(catalog, catalog.find("explain", "steps").path, CauseList)


def _refuse_unknown(*keys: str) -> None:
    known = number_keys()
    for key in keys:
        if key not in known:
            raise ValueError(f"a calibration has no number {key!r}{did_you_mean(key, known)}")

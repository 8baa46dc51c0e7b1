"""The table of causes: what each changes in a prediction, how much of it, what would show it.

A cause changes a prediction in one or several ways. A way with a magnitude has one middle value and
the ends of an 80 % interval in the file; a way without lists its alternatives.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from trnbench.errors import InputError, did_you_mean
from trnbench.facts.calibration.training_stack import RankOrder, number_keys
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, field, fields
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.sizes import MAX_SIZE

Convention = Literal[
    "attention in full",
    "no attention",
    "6 FLOP a weight and token",
    "recompute",
    "attention in full and recompute",
    "headline peak",
]
Each = Literal["once", "sample of a node", "sample"]


class Scaled(Record):
    """Numbers of the calibration, by key, are multiplied."""

    numbers: tuple[str, ...]
    by: Ratio

    def __post_init__(self) -> None:
        """Refuse keys of no number."""
        _refuse_unknown(*self.numbers)


class Added(Record):
    """A number of the calibration, by key, grows: once, or for each sample of a node or the job."""

    number: str
    each: Each = "once"
    cost_s: Seconds

    def __post_init__(self) -> None:
        """Refuse the key of no number."""
        _refuse_unknown(self.number)


class AtLeast(Record):
    """A step takes no less: what is done beside it takes so long for each sample."""

    each: Each
    cost_s: Seconds


class SlowLaunch(Record):
    """The host takes longer to launch a pass through a layer; computing hides what it can."""

    cost_s: Seconds


class SlowLink(Record):
    """Bandwidth or latency of the network, or of what joins chips of a node, is multiplied."""

    part: Literal["network", "node"]
    figure: Literal["bandwidth", "latency"]
    by: Ratio


class SlowNode(Record):
    """Computing on the slowest of several nodes takes so many times as long."""

    by: Ratio


class Scatter(Record):
    """Computing times of nodes scatter by so much more, as a share."""

    by: Ratio


class Setting(Record):
    """A knob of the layout had another value: one of `to`, or its own multiplied.

    `also` are knobs that go with it.
    """

    knob: str
    to: tuple[str, ...] = ()
    times: tuple[Ratio, ...] = ()
    also: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no knob, and a way without an alternative."""
        for name in (self.knob, *self.also):
            if name not in KNOBS:
                raise ValueError(f"a layout has no {name!r}")
        if not self.to and not self.times:
            raise ValueError("expected `to` or `times`")


class OtherOrder(Record):
    """Ranks are counted in another order."""

    to: tuple[RankOrder, ...]


class Apart(Record):
    """Tensor-parallel groups lie on so many nodes instead of one, evenly."""

    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse numbers of nodes that are not apart, or none there are."""
        wrong = [one for one in self.nodes if not 2 <= one < MAX_SIZE]
        if wrong:
            raise ValueError(f"`nodes` must be from 2 to {MAX_SIZE - 1}, found {wrong[0]}")


class Counted(Record):
    """The measured time was worked out from an MFU or a throughput that counts otherwise.

    `by`: other FLOP, or another peak; `times`: a peak, devices or tokens that are so many times as
    many. Each is met both ways: by whoever states the figure, and by whoever works out the time.
    """

    by: tuple[Convention, ...] = ()
    times: tuple[Ratio, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a way without an alternative."""
        if not self.by and not self.times:
            raise ValueError("expected `by` or `times`")


class TimedOtherwise(Record):
    """What was measured is a part of the step, or more than the step."""

    by: Ratio


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


class Cause(Record):
    """A cause: its ways, how often it is met beside others, what shows it, what to do about it."""

    id: str
    title: str
    weight: float
    experiment: str
    remedy: str
    scaled: tuple[Scaled, ...] = ()
    added: tuple[Added, ...] = ()
    least: tuple[AtLeast, ...] = ()
    launch: tuple[SlowLaunch, ...] = ()
    link: tuple[SlowLink, ...] = ()
    straggler: tuple[SlowNode, ...] = ()
    scatter: tuple[Scatter, ...] = ()
    setting: tuple[Setting, ...] = ()
    order: tuple[OtherOrder, ...] = ()
    apart: tuple[Apart, ...] = ()
    counted: tuple[Counted, ...] = ()
    timed: tuple[TimedOtherwise, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a cause that changes nothing, or is never met."""
        if not any(getattr(self, kind) for kind in KINDS):
            raise ValueError(f"expected one of {', '.join(KINDS)}")
        if self.weight <= 0:
            raise ValueError("`weight` must be above 0")


KINDS = tuple(one.name for one in fields(Cause) if one.default == ())
"""The fields that hold ways."""


class UsualRange(Record):
    """What is met of a magnitude: the middle, and the ends of an 80 % interval."""

    value: float
    low: float
    high: float


class CauseList(Sourced):
    """Causes, and what is believed beside them.

    `nothing`: how likely none is at work; `second`: a second one beside a first. Errors, as
    standard deviations of logarithms: `repeat` of steps of one run that are repeated, `memory` of a
    rank's memory. `calibration`: the part of a calibration's own deviations that counts as error.
    """

    name: str
    title: str
    nothing: Ratio
    second: Ratio
    repeat: Ratio
    memory: Ratio
    calibration: Ratio
    cause: tuple[Cause, ...]

    def __post_init__(self) -> None:
        """Refuse an id that stands twice, and shares that are none."""
        ids = [cause.id for cause in self.cause]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"{name!r} stands twice")
        for name in ("nothing", "second", "repeat", "memory", "calibration"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be above 0 and below 1")

    def ways(self) -> tuple[tuple[Cause, CauseWay, UsualRange | None], ...]:
        """Every way of every cause, with what is met of its magnitude where it has one."""
        found: list[tuple[Cause, CauseWay, UsualRange | None]] = []
        for i, cause in enumerate(self.cause):
            for kind in KINDS:
                for j, way in enumerate(getattr(cause, kind)):
                    found.append((cause, way, self._usual(f"cause[{i}].{kind}[{j}]", way)))
        return tuple(found)

    @property
    def part_of_calibration(self) -> UsualRange:
        """The part of a calibration's own deviations that counts as error."""
        return self._range("calibration", self.calibration)

    def _usual(self, path: str, way: CauseWay) -> UsualRange | None:
        match way:
            case Setting() | OtherOrder() | Apart() | Counted():
                return None
            case Added() | AtLeast() | SlowLaunch():
                value, key = way.cost_s, "cost"
            case _:
                value, key = way.by, "by"
        return self._range(f"{path}.{key}", value)

    def _range(self, key: str, value: float) -> UsualRange:
        known = self.provenance.evidence.get(key)
        if known is None or known.low is None or known.high is None:
            raise InputError(f"{self.name}: {key} needs `low` and `high`")
        return UsualRange(value=value, low=known.low, high=known.high)


def load_causes(catalog: Catalog) -> CauseList:
    """The causes of steps that do not take what was predicted."""
    return load_once(catalog, catalog.find("explain", "steps").path, CauseList)


def _refuse_unknown(*keys: str) -> None:
    known = number_keys()
    for key in keys:
        if key not in known:
            raise ValueError(f"a calibration has no number {key!r}{did_you_mean(key, known)}")

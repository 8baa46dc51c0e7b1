"""Figures of answers by row key: title, unit, and how their numbers are written.

Tables name keys only, so a figure reads the same wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension
from trnbench.facts.workload.layout import KNOBS

NOTHING = "-"
"""In a cell that has no value."""
LOW, HIGH = "low_", "high_"
"""Before the key of a figure: the ends of its interval."""
VERDICT_WORDS = {"does not": "does not hold"}
"""Verdicts on claims, as machines get them -> as people read them."""


class Figure(Record):
    """Title, unit and format in which people read one key of a row.

    A column of numbers shares one prefix, which stands in the heading; `own_prefix` gives every
    cell its own, and `unit` keeps to one. `flags` stand for yes and no, `absent` for nothing,
    `joint` between the parts of a list. `smaller` are titles of smaller
    units, each with its size in the first: a column is in the first of which its middle number is
    1 or more. `end_of` is the key of the figure whose interval ends here, `words` what people read
    for a text that machines get.
    """

    key: str
    title: str
    dimension: Dimension | None = None
    digits: int = 4
    unit: str | None = None
    own_prefix: bool = False
    flags: tuple[str, str] = ("yes", "no")
    absent: str = NOTHING
    joint: str = ", "
    smaller: tuple[tuple[str, float], ...] = ()
    end_of: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)


def figure_of(key: str) -> Figure:
    """Return the figure of a key, or the end of an interval; raises KeyError for any other."""
    for prefix, word in ((LOW, "low"), (HIGH, "high")):
        of = FIGURES.get(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if of is not None and key not in FIGURES:
            return replace(of, key=key, title=f"{of.title}, {word}", end_of=of.key)
    return FIGURES[key]


def _titled(**titles: str) -> tuple[Figure, ...]:
    return tuple(Figure(key=key, title=title) for key, title in titles.items())


def _named(*keys: str) -> tuple[Figure, ...]:
    return tuple(Figure(key=key, title=key) for key in keys)


def _share(key: str, title: str, *, digits: int = 3) -> Figure:
    return Figure(key=key, title=title, dimension=Dimension.RATIO, digits=digits)


def _seconds(key: str, title: str, *, end_of: str | None = None) -> Figure:
    return Figure(key=key, title=title, dimension=Dimension.SECONDS, own_prefix=True, end_of=end_of)


def _size(key: str, title: str) -> Figure:
    return Figure(key=key, title=title, dimension=Dimension.BYTES, digits=3)


def _bandwidth(key: str, title: str) -> Figure:
    return Figure(key=key, title=title, dimension=Dimension.BYTES_PER_S, unit="GB/s")


_WHERE = (
    *_named("case", "model", "instance", "nodes", "chip", "chips", "ranks", "dtype", "engine"),
    *_named("cores", "region", "suite", "title", "rank", "on"),
    *_titled(lnc="logical core size", asked="asked for"),
)
_LAYOUT = _titled(**{name: knob.title for name, knob in KNOBS.items()})
_STEP = (
    Figure(key="step_time_s", title="step", dimension=Dimension.SECONDS, unit="s"),
    Figure(key="ranked_s", title="ranked as", dimension=Dimension.SECONDS, unit="s", absent=""),
    *_titled(tokens_per_s="tokens/s", sequences_per_s="sequences/s"),
    *(_share("mfu", "MFU"), _share("goodput", "goodput"), _share("efficiency", "efficiency")),
    *(_size("memory_bytes", "memory"), _size("memory_available_bytes", "available")),
    _size("memory_peak_bytes", "peak memory"),
    *_named("bottleneck", "feasible", "evidence"),
    _share("bottleneck_share", "of step", digits=2),
    Figure(key="basis", title="speed from", words={"transferred": "carried over"}),
    *_named("framework", "schedulers", "jobs", "versions"),
)
_RUN = (
    Figure(key="days", title="days", digits=3, smaller=(("hours", 1 / 24), ("minutes", 1 / 1440))),
    _share("run_share", "of run", digits=3),
    Figure(key="cost_usd", title="cost", dimension=Dimension.USD, digits=3),
    Figure(key="usd_per_million_tokens", title="USD/M tokens", digits=3),
    Figure(key="relative_time", title="x time", digits=3),
    Figure(key="relative_cost", title="x cost", digits=3),
    _share("break_even_mfu", "break-even MFU"),
    Figure(key="purchase", title="purchase", absent="no price"),
    *_titled(price_date="price date", terms="terms", zones="zones"),
    *_titled(starts_on="from", ends_on="to", job="job"),
    *_titled(date_from="read from", date_to="read on"),
    Figure(key="before_usd_per_hour", title="USD/h before", digits=6),
    Figure(key="blocks_days", title="blocks (d)", joint=" + "),
    Figure(key="usd_per_hour", title="USD/h", digits=6),
    Figure(key="billed_hours", title="hours", digits=5),
    Figure(key="chosen_plan", title="", flags=("*", "")),
    Figure(key="mark", title=""),
    _share("cheapest_probability", "cheapest", digits=2),
    _share("on_time_probability", "on time", digits=2),
    Figure(key="mean_cost_usd", title="mean cost", dimension=Dimension.USD, digits=3),
    Figure(key="regret_usd", title="regret", dimension=Dimension.USD, digits=2),
    Figure(key="marks", title="marks", absent=""),
)
_REAL_NUMBERS = (
    *_named("step", "tokens"),
    Figure(key="loss", title="loss", digits=6),
    _seconds("modelled_time_s", "modelled time"),
    Figure(key="modelled_cost_usd", title="modelled USD", digits=3),
)
_HELD = (
    *_titled(job_phase="phase"),
    *(_seconds("phase_time_s", "time"), _share("phase_share", "of step")),
    *_named("slot", "phase"),
    *_titled(micro_batch_number="micro-batch", chunk="chunk", in_flight="in flight"),
    *(_seconds("start_s", "from"), _seconds("end_s", "to")),
    Figure(key="peak", title="", flags=("peak", "")),
)
_MATRIX = (
    *_titled(shape="m x k x n", kernels="kernels"),
    _seconds("time_s", "time"),
    _seconds("time_low_s", "time, low", end_of="time_s"),
    _seconds("time_high_s", "time, high", end_of="time_s"),
    Figure(key="flop_per_s", title="rate", dimension=Dimension.FLOP_PER_S),
    Figure(
        key="sheet_flop_per_s",
        title="by data sheet",
        dimension=Dimension.FLOP_PER_S,
        unit="TFLOP/s",
    ),
    Figure(key="peak_bf16_flop_per_s", title="peak bf16", dimension=Dimension.FLOP_PER_S),
    _share("utilization", "of peak"),
    Figure(key="bytes", title="memory traffic", dimension=Dimension.BYTES, own_prefix=True),
    *_named("binds", "check", "folds", "cycles"),
    Figure(key="rms_relative_error", title="rms error", digits=3),
    _share("bound_use", "of bound"),
    *_titled(cycles_per_fold="cycles per fold"),
    _share("mapping_efficiency", "mapping", digits=6),
    _share("compute_utilization", "compute", digits=6),
)
_MEASURED = (
    _bandwidth("bytes_per_s", "memory"),
    _share("spread", "spread", digits=2),
    *_named("repeats", "outliers"),
    _seconds("processor_s", "processors"),
)
_COLLECTIVE = (
    *_named("op", "algorithm"),
    *_titled(size_bytes="size (B)", elements="count"),
    *(_seconds("together_s", "at once"), _share("of_bound", "of bound")),
    *(_bandwidth("algbw_bytes_per_s", "algbw"), _bandwidth("busbw_bytes_per_s", "busbw")),
)
_EVIDENCE = (
    *_named("id", "set", "calibration", "number", "fitted", "reason", "claim"),
    Figure(key="verdict", title="verdict", words=VERDICT_WORDS),
    *(_seconds("measured_s", "measured"), _seconds("predicted_s", "predicted")),
    _seconds("low_s", "predicted, low", end_of="predicted_s"),
    _seconds("high_s", "predicted, high", end_of="predicted_s"),
    *(_share("error", "error"), _share("difference", "difference")),
    _seconds("closed_s", "closed form"),
    _share("measured_share", "of peak, measured"),
    _share("played_share", "played"),
    _share("closed_share", "closed form"),
    *_titled(played_as="played as"),
    *(_size("memory_measured_bytes", "memory"), _size("memory_predicted_bytes", "predicted")),
    Figure(key="instructions_measured", title="instructions", digits=3),
    Figure(key="instructions_predicted", title="predicted", digits=3),
    _share("fit_probability", "fits", digits=2),
    *_titled(memory_of="per", outcome="outcome", data="data"),
    *_titled(prior="before", text="what is claimed", says="what specs, prices or model say"),
    Figure(key="prior_low", title="before, low", digits=3, end_of="prior"),
    Figure(key="prior_high", title="before, high", digits=3, end_of="prior"),
    Figure(key="low", title="value, low", digits=3, end_of="value"),
    Figure(key="high", title="value, high", digits=3, end_of="value"),
    Figure(key="data_share", title="data share", digits=2),
)
_EXPLANATION = (
    *_named("cause", "change", "experiment", "remedy"),
    *_titled(beside="with"),
    _share("probability", "likely", digits=2),
    _share("explained", "of the gap", digits=2),
)
_NUMERICS = (
    Figure(key="final_loss", title="final loss", digits=5),
    Figure(key="gap", title="gap to fp32", digits=2),
    _share("learned", "learned"),
    *_titled(state_bytes="bytes/weight"),
)
_FILES = _titled(rests_on="rests on", stack="stack", measured_rows="rows") + _named(
    *("section", "name", "aliases", "origin", "file", "fault", "figure"),
    *("key", "value", "kind", "source", "range", "note", "family", "status"),
    *("parameters", "active", "context"),
)
_RUNS_KEPT = (
    *_named("verb", "version", "tag", "row", "before", "after", "by"),
    *_titled(headline="answer", started_at="when", instances="instances", command="command"),
    _seconds("seconds", "took"),
)

FIGURES: Mapping[str, Figure] = {
    figure.key: figure
    for figure in (
        *(*_WHERE, *_LAYOUT, *_STEP, *_RUN, *_REAL_NUMBERS, *_HELD, *_MATRIX, *_COLLECTIVE),
        *(*_MEASURED, *_EVIDENCE, *_EXPLANATION, *_NUMERICS, *_FILES, *_RUNS_KEPT),
    )
}
"""By key; the ends of an interval are found by `figure_of`."""

"""Knobs that a question leaves open are settled here, for every verb, in one order.

    1  what the user says
    2  what the file or the job folder says
    3  the habits of the software, and what is usual: every knob that no search chooses
    4  of all others, the fastest layout that fits in memory and that the software runs
    5  otherwise the question is refused, with the name of what is missing or too large

Steps 1 and 2 arrive as one partial layout. A published row has one rule more, in
`evidence.published`: what its authors left out is the habit of their software.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import lcm
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from trnbench.errors import InputError
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.facts.units import BITS_PER_BYTE
from trnbench.facts.workload.choices import job_defaults
from trnbench.facts.workload.layout import KNOBS, AttentionKernel, FrozenFormat, Value
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.assumption import Assumption
from trnbench.program.keeping import recompute_that_runs
from trnbench.program.precision import recipe_named

if TYPE_CHECKING:
    from trnbench.predict.search.result import SearchResult
    from trnbench.predict.setup import TrainSetup
import math

SearchProgress: TypeAlias = Callable[[int, int, str], None]
DEFAULT_BATCH = 1024
"""What the examples of NxD Training use for their decoders."""
MOST_BATCH = 1.125
"""Largest factor by which a batch may be raised: more would be another run."""
DEFAULT_SEQUENCE = 8192
"""Decoders with longer contexts see most of their training below this."""
SEARCHED = tuple(name for name, knob in KNOBS.items() if knob.searched)
"""Knobs that a search chooses where they are open; the others have habits or usual values."""
Prefer: TypeAlias = Literal["fast", "simple"]
TAKEN: Mapping[Prefer, str] = {
    "fast": "the fastest that fits",
    "simple": "the simplest within 3 % of the fastest",
}
"""Reason for a knob that a search chose, by which of nearly equally fast layouts is preferred."""
USUAL_STACK = "usual on this instance"
UNSAID = "usual, as nothing was said"
_OF_SOFTWARE = ("attention", "loss", "stage_split", "precision", "frozen_format")
"""Knobs whose open value is a habit of the software."""
_OF_LAYERS = tuple(
    name for name, knob in KNOBS.items() if knob.part == "layers" and not knob.searched
)


class Settled(Record):
    """A layout with nothing left open, or the nearest one and the reasons against it."""

    layout: PartialLayout
    """Said, habitual and chosen knobs; some stay open where no layout is valid."""
    habitual: tuple[str, ...]
    """Names of knobs settled by habit or usual values."""
    chosen: tuple[str, ...] = ()
    """Names of knobs that the search chose."""
    between: tuple[str, ...] = ()
    """Modes of recompute whose mean is meant, for software that repeats half of a pass."""
    before: PartialLayout
    """The layout before the search."""
    result: SearchResult | None = None
    """Result of the search; None where nothing was left to choose."""

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.result.reasons if self.result and self.result.best is None else ()


def settle(
    setup: TrainSetup,
    said: PartialLayout,
    *,
    progress: SearchProgress = lambda *_: None,
    prefer: Prefer | None = None,
) -> Settled:
    """The layout of a step of which `said` is known, by the order of this module.

    With a preference the search keeps simpler layouts too. `progress` hears of (layouts done,
    layouts in all, what they are).
    """
    refuse_senseless(setup.model, said)
    layout, habitual = with_habits(setup.model, setup.stack, said, setup.training(said).ranks)
    between = modes_between(setup.stack, said)
    settled = Settled(layout=layout, habitual=habitual, between=between, before=layout)
    return _searched(setup, settled, progress, prefer) if searched_for(layout) else settled


def _searched(
    setup: TrainSetup, settled: Settled, progress: SearchProgress, prefer: Prefer | None
) -> Settled:
    from trnbench.predict.search.question import question_of
    from trnbench.predict.search.search import SearchHooks, search

    question = question_of(setup, settled.before, (setup.nodes,), plainer=prefer is not None)
    # The same search as of `compare` and `plan`: one question has one fastest layout.
    result = search(question, top=1, hooks=SearchHooks(progress=progress), best="of each")
    result = result.preferring_simple if prefer == "simple" else result
    best = result.best or result.nearest
    return Settled(
        layout=settled.before if best is None else PartialLayout.of(best.layout),
        habitual=settled.habitual,
        chosen=searched_for(settled.before) if result.best else (),
        between=settled.between,
        before=settled.before,
        result=result,
    )


def modes_between(stack: TrainingStack, said: PartialLayout) -> tuple[str, ...]:
    """Modes of recompute whose mean a stack means by `selective`, if that was said; else none."""
    half = said["recompute"] == "selective" and stack.habits.selective == "half"
    return ("none", "full") if half else ()


def searched_for(layout: PartialLayout) -> tuple[str, ...]:
    """Open knobs that a search chooses: those of every search, and those asked for."""
    return tuple(name for name in layout.open if name in SEARCHED or name in layout.wanted)


def refuse_senseless(model: Model, layout: PartialLayout) -> None:
    """Refuse knobs that act on a part the model, or on a job the question, does not have."""
    job = layout["job"] or KNOBS["job"].default
    for name, value in layout.said.items():
        knob = KNOBS[name]
        if not knob.is_for(job) and value != knob.default:
            raise InputError(
                f"{knob.option} {value} is for --job {' or '.join(knob.of_jobs)}, and the job is "
                f"{job}",
                hint=f"add --job {knob.of_jobs[0]}, or leave {knob.option} out",
            )
    if layout["pipeline_layout"] is not None and "stage_split" in layout.said:
        raise InputError("--pipeline-layout says what each stage has; leave --stage-split out")
    if "loss" in layout.said and model.vocabulary is None:
        raise InputError(f"{model.name} has no logits of words; leave {KNOBS['loss'].option} out")
    moe = model.transformer is not None and model.transformer.moe is not None
    for name in layout.said:
        if KNOBS[name].part == "experts" and not moe:
            raise InputError(f"{model.name} has no experts; leave {KNOBS[name].option} out")
        if name in _OF_LAYERS and model.recommender is not None:
            noun = name.partition("_")[0]
            raise InputError(f"{model.name} is a recommender: it has no {noun}")


def with_habits(
    model: Model, stack: TrainingStack, said: PartialLayout, ranks: int
) -> tuple[PartialLayout, tuple[str, ...]]:
    """The layout with every knob that no search chooses, and the names of those added.

    An open batch is one that this many ranks divide well. Recompute that has nothing to repeat is
    `none`: an answer shows what is run.
    """
    sequence = said["sequence"] or usual_sequence(model)
    precision = said.text("precision") or recipe_named(stack.habits.precision).name
    of_job = _of_job(model, said.changed(sequence=sequence))
    own: dict[str, Value | None] = {
        "global_batch": fitted_batch(DEFAULT_BATCH, free_ranks(said, ranks), step=batch_step(said)),
        "sequence": sequence,
        "attention": stack.attention,
        "loss": stack.loss,
        "stage_split": None if said["pipeline_layout"] is not None else stack.stage_split,
        **of_job,
        "precision": precision,
    }
    if (frozen := frozen_habit(stack, said["job"], precision)) is not None:
        own["frozen_format"] = frozen
    left = set(searched_for(said))
    usual = {name: own.get(name, KNOBS[name].default) for name in said.open if name not in left}
    added = {name: value for name, value in usual.items() if value is not None}
    layout = said.changed(**added)
    recompute, attention = layout.text("recompute"), layout.text("attention")
    if recompute is not None:
        runs = recompute_that_runs(recompute, cast("AttentionKernel", attention))
        layout = layout.changed(recompute=runs)
    return layout, tuple(name for name, value in added.items() if not _is_plain_job(name, value))


def frozen_habit(stack: TrainingStack, job: object, precision: str) -> FrozenFormat | None:
    """The software's format of frozen weights in a LoRA job with fp8 products; else None."""
    try:
        narrow = format_named(recipe_named(precision).linear).bits <= BITS_PER_BYTE
    except ValueError:
        return None  # An unknown recipe is refused where it is used.
    return stack.habits.fp8_frozen if job == "lora" and narrow else None


def _is_plain_job(name: str, value: Value) -> bool:
    """True for a value that only says that nothing but pre-training was asked for."""
    return value == KNOBS[name].default and (name == "job" or bool(KNOBS[name].of_jobs))


def _of_job(model: Model, said: PartialLayout) -> Mapping[str, Value]:
    usual = job_defaults(said.given)
    return {**usual, **adapter_places(model)} if "adapter_on" in usual else usual


def adapter_places(model: Model) -> Mapping[str, Value]:
    """Usual places of adapters where they are not on all projections: attention, with experts."""
    moe = model.transformer is not None and model.transformer.moe is not None
    return {"adapter_on": "attention"} if moe else {}


def batch_step(said: PartialLayout) -> int:
    """Samples that a global batch is a multiple of, by the stated knobs."""
    group = said["samples_per_prompt"] or job_defaults(said.given).get("samples_per_prompt", 1)
    update = said.degree("dp") * said.degree("micro_batch") * said.degree("mini_batches")
    return lcm(update, int(group))


def free_ranks(said: PartialLayout, ranks: int) -> int:
    """Ranks that are left to split a batch over; 1 where the replicas are stated."""
    if said["dp"] is not None:
        return 1
    taken = said.replica_ranks
    return ranks // taken if ranks % taken == 0 else ranks


def usual_sequence(model: Model) -> int:
    """Tokens of a sample of a model where none are stated."""
    if model.transformer is None:
        return 1
    length = model.transformer.position.length
    return length if model.image is not None else min(length, DEFAULT_SEQUENCE)


def assumptions(
    layout: PartialLayout,
    habitual: Iterable[str],
    chosen: Iterable[str],
    software: str,
    *,
    taken: str = TAKEN["fast"],
) -> tuple[Assumption, ...]:
    """Knobs settled without being stated: by habit, and by a search.

    Knobs without an effect in the layout are left out.
    """
    habits, searched = set(habitual), set(chosen)
    listed = []
    for name, value in layout.given.items():
        plain = _is_plain_job(name, value)
        if name in searched | habits and not plain and _acts(layout, name):
            why = taken if name in searched else _why(layout, name, value, software)
            listed.append(Assumption(name=name, value=value, why=why))
    return tuple(listed)


def implied(setup: TrainSetup, layout: PartialLayout) -> tuple[Assumption, ...]:
    """Release of a stack, and its habit where a layout leaves a knob open without a value."""
    release = () if setup.assumed_release is None else (setup.assumed_release,)
    if layout["dispatcher"] is not None or not _acts(layout, "dispatcher"):
        return release
    name, why = setup.stack.dispatcher_of(None), f"habit of {setup.stack.short_name}"
    return (*release, Assumption(name="dispatcher", value=name, why=why))


def _acts(layout: PartialLayout, name: str) -> bool:
    # A model without experts has nothing to spread: 1 is no choice.
    if name == "ep":
        return layout.degree("ep") > 1
    degrees = ("pp",) if name == "vpp" else KNOBS[name].acts_with
    return not degrees or any(layout.degree(degree) > 1 for degree in degrees)


def _why(layout: PartialLayout, name: str, value: Value, software: str) -> str:
    if name in _OF_SOFTWARE:
        return f"habit of {software}"
    if name == "sequence":
        return "usual for this model"
    if name == "global_batch" and value != DEFAULT_BATCH:
        return f"the next above {DEFAULT_BATCH:,} that the ranks divide well"
    if KNOBS[name].of_jobs:
        return f"usual of --job {layout['job'] or KNOBS['job'].default}"
    return "usual"


def fitted_batch(wanted: int, ranks: int, *, step: int = 1) -> int:
    """Samples of the next batch that the ranks divide well, a multiple of `step`.

    A batch is split over replicas, so an odd factor of the ranks that the batch lacks must go into
    tensor or pipeline parallelism, at any cost. Of batches at most an eighth above the wanted one,
    the multiple of the odd factor times the largest power of two is taken: 1,152 for 1,024 on
    9 x 2^k ranks. Where no such batch is near, it is the next multiple of `step`.
    """
    least = -(-wanted // step) * step
    odd = ranks // (ranks & -ranks)
    if odd == 1:
        return least
    best = least
    unit = math.lcm(odd, step)
    while (batch := -(-wanted // unit) * unit) <= MOST_BATCH * wanted:
        best = batch
        unit *= 2
    return best

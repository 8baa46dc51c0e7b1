"""Knobs of a training step that nobody gave and no search chooses: their defaults."""

from __future__ import annotations

from typing import cast

from trnbench.calibration.training_stack import TrainingStack
from trnbench.errors import InputError
from trnbench.plan.batch import fitted_batch
from trnbench.program.keeping import recompute_that_runs
from trnbench.workload.layout import KNOBS, AttentionKernel, Recompute
from trnbench.workload.model import Model
from trnbench.workload.partial_layout import PartialLayout

DEFAULT_BATCH = 1024
"""What the examples of NxD Training use for their decoders."""
DEFAULT_SEQUENCE = 8192
"""Decoders with longer contexts see most of their training below this."""
DEFAULT_PRECISION = "bf16-master"
SEARCHED = tuple(name for name, knob in KNOBS.items() if knob.searched)
"""Knobs that a search chooses where they are open; the others have defaults."""
_OF_LAYERS = tuple(
    name for name, knob in KNOBS.items() if knob.part == "layers" and not knob.searched
)


def refuse_senseless(model: Model, layout: PartialLayout) -> None:
    """Refuse knobs that act on a part the model does not have."""
    moe = model.transformer is not None and model.transformer.moe is not None
    for name in layout.given:
        title = KNOBS[name].title
        if KNOBS[name].part == "experts" and not moe:
            raise InputError(f"a {title} acts on experts, and {model.name} has none")
        if name in _OF_LAYERS and model.recommender is not None:
            noun = name.partition("_")[0]
            raise InputError(f"{model.name} is a recommender: it has no {noun}")


def with_defaults(
    model: Model, stack: TrainingStack, given: PartialLayout, ranks: int
) -> tuple[PartialLayout, tuple[str, ...]]:
    """Return the layout with all that is not searched for, and the names of what was added.

    An open batch is one that this many ranks divide well. Recompute that has nothing to repeat is
    `none`: an answer shows what is run.
    """
    own = {
        "global_batch": fitted_batch(
            DEFAULT_BATCH, free_ranks(given, ranks), step=batch_step(given)
        ),
        "sequence": _sequence(model),
        "attention": stack.attention,
        "precision": DEFAULT_PRECISION,
    }
    defaults = {
        name: own.get(name, KNOBS[name].default) for name in given.open if name not in SEARCHED
    }
    added = {name: value for name, value in defaults.items() if value is not None}
    layout = given.changed(**added)
    recompute, attention = layout.text("recompute"), layout.text("attention")
    if recompute is not None:
        runs = recompute_that_runs(cast("Recompute", recompute), cast("AttentionKernel", attention))
        layout = layout.changed(recompute=runs)
    return layout, tuple(added)


def batch_step(given: PartialLayout) -> int:
    """Return the samples that a global batch is a multiple of, by the degrees that are given."""
    return given.degree("dp") * given.degree("micro_batch")


def free_ranks(given: PartialLayout, ranks: int) -> int:
    """Return how many ranks are left to split a batch over; 1 where the replicas are given."""
    if given["dp"] is not None:
        return 1
    taken = given.replica_ranks
    return ranks // taken if ranks % taken == 0 else ranks


def _sequence(model: Model) -> int:
    if model.transformer is None:
        return 1
    length = model.transformer.position.length
    return length if model.image is not None else min(length, DEFAULT_SEQUENCE)

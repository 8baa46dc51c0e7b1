"""Knobs of a training step that nobody gave and no search chooses: their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import cast

from trnbench.errors import InputError
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.workload.choices import job_defaults
from trnbench.facts.workload.layout import KNOBS, AttentionKernel, Value
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.batch import fitted_batch
from trnbench.program.keeping import recompute_that_runs

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


def searched_for(layout: PartialLayout) -> tuple[str, ...]:
    """Return the open knobs that a search chooses: those it always does, and those asked for."""
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
        raise InputError(
            "--pipeline-layout says what each stage has; leave --stage-split out",
        )
    moe = model.transformer is not None and model.transformer.moe is not None
    for name in layout.said:
        if KNOBS[name].part == "experts" and not moe:
            raise InputError(f"{model.name} has no experts; leave {KNOBS[name].option} out")
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
    sequence = given["sequence"] or _sequence(model)
    of_job = _of_job(model, given.changed(sequence=sequence))
    own = {
        "global_batch": fitted_batch(
            DEFAULT_BATCH, free_ranks(given, ranks), step=batch_step(given)
        ),
        "sequence": sequence,
        "attention": stack.attention,
        "stage_split": None if given["pipeline_layout"] is not None else stack.stage_split,
        **of_job,
        "precision": DEFAULT_PRECISION,
    }
    left = set(searched_for(given))
    defaults = {name: own.get(name, KNOBS[name].default) for name in given.open if name not in left}
    added = {name: value for name, value in defaults.items() if value is not None}
    layout = given.changed(**added)
    recompute, attention = layout.text("recompute"), layout.text("attention")
    if recompute is not None:
        runs = recompute_that_runs(recompute, cast("AttentionKernel", attention))
        layout = layout.changed(recompute=runs)
    return layout, tuple(name for name, value in added.items() if not _is_plain_job(name, value))


def _is_plain_job(name: str, value: Value) -> bool:
    """Return whether a default only says that nothing but pre-training was asked for."""
    return value == KNOBS[name].default and (name == "job" or bool(KNOBS[name].of_jobs))


def _of_job(model: Model, given: PartialLayout) -> Mapping[str, Value]:
    moe = model.transformer is not None and model.transformer.moe is not None
    found = job_defaults(given.given)
    return {**found, "adapter_on": "attention"} if moe and "adapter_on" in found else found


def batch_step(given: PartialLayout) -> int:
    """Return the samples that a global batch is a multiple of, by the knobs that are given."""
    group = given["samples_per_prompt"] or job_defaults(given.given).get("samples_per_prompt", 1)
    update = given.degree("dp") * given.degree("micro_batch") * given.degree("mini_batches")
    return lcm(update, int(group))


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

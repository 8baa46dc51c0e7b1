"""Settings of a training step: what is searched for, what has a default, what layout they make."""

from __future__ import annotations

from dataclasses import replace

from trnbench.answers.train import Setting
from trnbench.errors import InputError
from trnbench.program.grid import DEGREES, Choices
from trnbench.spec.training_stack import TrainingStack
from trnbench.workload.layout import Layout
from trnbench.workload.model import Model

DEFAULT_BATCH = 1024
"""What the examples of NxD Training use for their decoders."""
DEFAULT_SEQUENCE = 8192
"""Decoders with longer contexts see most of their training below this."""
DEFAULT_PRECISION = "bf16-master"
SEARCHED = (
    *("tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch", "zero", "sequence_parallel"),
    *("recompute", "schedule"),
)
"""Settings that a search chooses where they are open; the others have defaults."""


def refuse_senseless(model: Model, setting: Setting) -> None:
    """Refuse settings that act on a part the model does not have."""
    moe = model.transformer is not None and model.transformer.moe is not None
    if setting.capacity_factor is not None and not moe:
        raise InputError(f"a capacity factor acts on experts, and {model.name} has none")
    if model.recommender is not None:
        for name in ("sequence", "attention", "context_parallel"):
            if getattr(setting, name) is not None:
                raise InputError(
                    f"{model.name} is a recommender: it has no {name.partition('_')[0]}"
                )


def with_defaults(
    model: Model, stack: TrainingStack, given: Setting
) -> tuple[Setting, tuple[str, ...]]:
    """Return the setting with all that is not searched for, and the names of what was added."""
    defaults: dict[str, object] = {
        "global_batch": _batch(given),
        "sequence": _sequence(model),
        "attention": stack.attention,
        "context_parallel": Choices().context_parallel,
        "precision": DEFAULT_PRECISION,
    }
    added = {name: v for name, v in defaults.items() if getattr(given, name) is None}
    return replace(given, **added), tuple(added)  # type: ignore[arg-type]


def _batch(given: Setting) -> int:
    """Return the usual batch, or the next above that the given degrees divide."""
    step = (given.dp or 1) * (given.micro_batch or 1)
    return -(-DEFAULT_BATCH // step) * step


def _sequence(model: Model) -> int:
    if model.transformer is None:
        return 1
    length = model.transformer.position.length
    return length if model.image is not None else min(length, DEFAULT_SEQUENCE)


def setting_of(layout: Layout, choices: Choices) -> Setting:
    """Return the setting of a layout whose degrees are single numbers."""
    degrees = {name: int(getattr(layout, name)) for name in DEGREES}
    return Setting(
        **degrees,
        zero=layout.zero,
        sequence_parallel=layout.sequence_parallel,
        context_parallel=choices.context_parallel,
        recompute=layout.recompute,
        schedule=layout.schedule,
        attention=layout.attention,
        capacity_factor=layout.capacity_factor,
        precision=layout.precision,
    )


def layout_of(setting: Setting) -> Layout:
    """Return the layout of a setting that leaves nothing open."""
    plain = setting.plain
    del plain["context_parallel"]
    return Layout(**plain)  # type: ignore[arg-type]


def choices_of(setting: Setting) -> Choices:
    """Return what a setting says beside its layout."""
    return Choices(context_parallel=setting.context_parallel or "ring")

"""Which models are of one kind, as far as measured steps of one tell of another."""

from __future__ import annotations

from trnbench.workload.model import Model


def family_of(model: Model) -> str:
    """Return the kind of a model: its family, and whether it has experts."""
    experts = model.transformer is not None and model.transformer.moe is not None
    return f"{model.family} with experts" if experts else model.family

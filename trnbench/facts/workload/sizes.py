"""Sizes of plain text models: models that differ in nothing else are one, with arrays as sizes.

A plain text model has layers that are alike and dense, with heads of attention, and no tower. What
is lowered of such models is lowered of all of them together, along one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from trnbench.facts.records import force_setattr
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import TABLES


class SizedModels(Model, eq=False):
    """Models that differ in sizes alone, as one: such sizes are arrays, with a row for each."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def sizes_of(model: Model) -> tuple[int, ...]:
    """Sizes of a plain text model; none of any other.

    Layers, hidden, heads, key-value heads, head size, MLP columns, tokens of the vocabulary, and
    rows of the table of positions if it has one.
    """
    transformer, vocabulary = model.transformer, model.vocabulary
    if transformer is None or vocabulary is None or model.tower is not None or model.mtp_depths:
        return ()
    attention, mlp, position = transformer.attention, transformer.mlp, transformer.position
    if attention is None or attention.latent is not None or mlp is None:
        return ()
    if transformer.pattern is not None or transformer.moe is not None:
        return ()
    heads = attention.heads, attention.kv_heads, attention.head_size
    rows = position.length if position.encoding in TABLES else 1
    return transformer.layers, transformer.hidden, *heads, mlp.hidden, vocabulary.size, rows


def resized(model: Model, sizes: Sequence[Any]) -> SizedModels:
    """A plain text model with other sizes, numbers or arrays, which nobody checks."""
    transformer = model.transformer
    assert transformer is not None
    layers, hidden, heads, kv_heads, head_size, columns, words, rows = sizes
    position, attention = transformer.position, transformer.attention
    return SizedModels(
        name=model.name,
        title="",
        head=model.head,
        vocabulary=_changed(model.vocabulary, size=words),
        transformer=_changed(
            transformer,
            layers=layers,
            hidden=hidden,
            attention=_changed(attention, heads=heads, kv_heads=kv_heads, head_size=head_size),
            mlp=_changed(transformer.mlp, hidden=columns),
            position=_changed(position, length=rows, rotary_base=None),
        ),
    )


def _changed(record: Any, **values: Any) -> Any:  # noqa: ANN401
    """A copy of a record with other values, without its checks."""
    made = copy(record)
    for name, value in values.items():
        force_setattr(made, name, value)
    return made

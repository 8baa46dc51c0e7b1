"""Generation of answers by a policy: memory, reads, FLOP and exchanges of its engines.

Model. The ranks of a tensor-parallel group are an engine. Together they hold a copy of all layers
in the format of activations, whatever the layout of training, and keys and values (or scan states)
of the answers they write. An engine writes one token of each answer in a round, up to
`generation_batch` answers at once; the next answers follow when those are done. All answers have
the same length. A prompt is read once for all its answers. In a round a rank reads its part of the
weights (of experts, those that some token is likely to visit) and everything kept of the answers,
and sums two results a layer with the others of its engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import REINFORCED
from trnbench.facts.workload.model import Attention, Model, Transformer
from trnbench.facts.workload.weights import active_parameter_count, parameter_count, weights
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, collective_op
from trnbench.program.tensor import Tensor, array, element_bytes, total

_PAIR = 2
"""Key and value; sums after mixer and MLP; multiply and add: two of each."""


class LayerCache(Record, eq=False):
    """Keys and values, or scan states, that layers of one kind keep of an answer."""

    layers: int
    token_bytes: FloatArray  # bytes per token on a rank
    window: float  # tokens kept at most; 1 for a state, which is read and written
    flop: FloatArray  # FLOP of a new token per token that it looks at


class Generation(Record, eq=False):
    """Engines of a job in each layout of a grid; bytes and FLOP are those of one rank."""

    grid: Grid
    hidden: int
    layers: int
    words: int  # size of the vocabulary
    response: int  # tokens of an answer
    dense_bytes: FloatArray  # weights outside experts
    expert_bytes: FloatArray  # weights of experts
    experts: int
    visited: int  # experts that a token visits in a layer
    token_flop: FloatArray  # FLOP of a token with weights
    kept: tuple[LayerCache, ...]

    @property
    def weights_bytes(self) -> FloatArray:
        """Bytes of a rank's part of its engine's copy of the policy."""
        return array(self.dense_bytes + self.expert_bytes)

    @property
    def prompt(self) -> FloatArray:
        return array(self.grid.sequence - self.response)

    @property
    def engines(self) -> FloatArray:
        """Number of engines, where the training ranks write answers too."""
        return array(self.grid.ranks("world") / self.grid.tp)

    def answers(self, engines: FloatArray) -> FloatArray:
        return np.ceil(self.grid.global_batch / engines)

    def at_once(self, engines: FloatArray) -> FloatArray:
        """Answers that an engine writes at the same time."""
        return np.minimum(self.answers(engines), self.grid.generation_batch or 1)

    def rounds(self, engines: FloatArray) -> FloatArray:
        """Rounds of an engine in a step, one token of each answer at a time."""
        return array(np.ceil(self.answers(engines) / self.at_once(engines)) * self.response)

    def cache_bytes(self) -> FloatArray:
        """Bytes that a rank keeps of one answer once it is written."""
        tokens = self.grid.sequence
        each = (k.layers * k.token_bytes * np.minimum(tokens, k.window) for k in self.kept)
        return total(each)

    def read_bytes(self, engines: FloatArray) -> FloatArray:
        """Bytes that a rank reads from memory in a step."""
        # Chance that no token of a round visits a given expert, whose weights are then not read.
        missed = (1 - self.visited / self.experts) ** self.at_once(engines)
        read = self.dense_bytes + self.expert_bytes * (1 - missed)
        looked = (k.layers * k.token_bytes * self._looked_at(k) for k in self.kept)
        of_answers = self.answers(engines) * total(looked)
        return array(self.rounds(engines) * read + of_answers)

    def flop(self, engines: FloatArray) -> FloatArray:
        """FLOP that a rank carries out in a step."""
        looked = (k.layers * k.flop * self._looked_at(k) for k in self.kept)
        # Prompts are not in here: their time is taken as a share of the scoring pass.
        each = self.response * self.token_flop + total(looked)
        return array(self.answers(engines) * each)

    def _looked_at(self, kept: LayerCache) -> FloatArray:
        """Tokens of a cache read over all rounds of one answer."""

        def first(tokens: FloatArray) -> FloatArray:
            # Token i reads min(i, window) tokens: a triangle, then full windows.
            inside = np.minimum(tokens, kept.window)
            return array(inside * (inside + 1) / 2 + (tokens - inside) * inside)

        # The first written token looks at the prompt, the last at all tokens before it.
        return array(first(array(self.grid.sequence - 1)) - first(array(self.prompt - 1)))

    def sums(self, engines: FloatArray) -> tuple[CollectiveOp, ...]:
        """Exchanges of an engine in a round: sums in layers, and gathered logits."""
        at_once, grid = self.at_once(engines), self.grid
        stream = _tensor(grid, "generated", at_once * self.hidden)
        logits = _tensor(grid, "generated.logits", at_once * self.words)
        own = _tensor(grid, "generated.logits.slice", at_once * self.words / grid.tp)
        several = grid.tp > 1
        return (
            _exchange("all-reduce", grid, stream, stream, array(_PAIR * self.layers * several)),
            _exchange("all-gather", grid, own, logits, array(several)),
        )

    def refreshed(self) -> tuple[CollectiveOp, ...]:
        """Exchanges that bring trained weights to the engines, once a step.

        Ranks gather the stages they lack, under ZeRO 3 the slices too. Engines on nodes of their
        own get all weights from the training ranks, along a chain of ranks.
        """
        grid, size = self.grid, self.weights_bytes / element_bytes(self.grid.recipe.activations)
        whole, stage = _tensor(grid, "engine", size), _tensor(grid, "engine.stage", size / grid.pp)
        # Tensor-parallel cuts are the same in training and writing, so only stages and slices move.
        apart = grid.generation_nodes is not None
        share = _tensor(grid, "engine.slice", size / grid.pp / grid.ranks("data"))
        found = [_exchange("all-gather", grid, stage, whole, array(grid.pp > 1), axis="pp")]
        if some(sliced := grid.zero == 3):
            several = array(sliced & (grid.ranks("data") > 1))
            found.append(_exchange("all-gather", grid, share, stage, several, axis="data"))
        if apart:
            several = array(grid.ranks("world") > 1)
            found.append(_exchange("broadcast", grid, whole, whole, several, axis="world"))
        return tuple(one for one in found if some(one.count))


def generation_of(model: Model, grid: Grid) -> Generation | None:
    """Engines that write a job's answers; None for jobs that train on given data."""
    transformer = model.transformer
    if grid.job not in REINFORCED or transformer is None or model.vocabulary is None:
        return None
    size = element_bytes(grid.recipe.activations)
    moe = transformer.moe
    routed = sum(one.total for one in weights(model) if moe and one.name.startswith("experts."))
    return Generation(
        grid=grid,
        hidden=transformer.hidden,
        layers=transformer.layers,
        words=model.vocabulary.size,
        response=grid.response or 1,
        dense_bytes=array((parameter_count(model) - routed) * size / grid.tp),
        expert_bytes=array(routed * size / grid.tp),
        experts=moe.experts if moe else 1,
        visited=moe.top_k if moe else 1,
        token_flop=array(_PAIR * active_parameter_count(model) / grid.tp),
        kept=tuple(_kept(transformer, grid)),
    )


def _kept(transformer: Transformer, grid: Grid) -> Iterator[LayerCache]:
    order = transformer.order
    for kind in dict.fromkeys(order):
        one = transformer.of_kind(kind)
        if one.attention is not None:
            heads = np.ceil(one.attention.heads / grid.tp)
            yield LayerCache(
                layers=order.count(kind),
                token_bytes=_token_bytes(one.attention, grid),
                window=float(one.attention.window or one.attention.chunk or np.inf),
                flop=array(2 * _PAIR * heads * one.attention.head_size),
            )
        if one.scan is not None:
            state = np.ceil(one.scan.heads / grid.tp) * one.scan.head_size * one.scan.state_size
            yield LayerCache(
                layers=order.count(kind),
                token_bytes=array(_PAIR * state * element_bytes(grid.recipe.statistics)),
                window=1.0,
                flop=array(2 * _PAIR * state),
            )


def _token_bytes(attention: Attention, grid: Grid) -> FloatArray:
    size = element_bytes(grid.recipe.activations)
    if attention.latent is not None:
        # Every rank of an engine has the latent that all heads share.
        return array((attention.latent.kv_rank + attention.latent.rope_head_size) * size)
    return array(_PAIR * np.ceil(attention.kv_heads / grid.tp) * attention.head_size * size)


def _tensor(grid: Grid, name: str, elements: FloatArray) -> Tensor:
    dim = grid.dim(name, np.ceil(elements))
    return Tensor(name=name, dims=(dim,), format=grid.recipe.activations)


def _exchange(
    op: Literal["all-reduce", "all-gather", "broadcast"],
    grid: Grid,
    read: Tensor,
    write: Tensor,
    count: FloatArray,
    *,
    axis: str = "tp",
) -> CollectiveOp:
    ranks, name = grid.ranks(axis), f"{write.name}.{op}"
    return collective_op(op, axis, "F", (read, write), ranks, name=name, count=count)

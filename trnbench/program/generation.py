"""How a policy writes answers: what its engines hold, read, compute and exchange, by the round.

Model. The ranks of a tensor-parallel group are an engine: together they hold a copy of all layers
in the format of activations, whatever the layout of training, and keys and values (or states of
scans) of the answers they write. An engine writes a token of each answer in a round, up to
`generation_batch` answers at once; the next ones follow when those are done. All answers have the
same length. A prompt is read once for all answers to it. In a round a rank reads its part of the
weights (of experts, those that some token is likely to visit) and all that is kept of the answers,
and sums two results a layer with the others of its engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.facts.workload.jobs import REINFORCED
from trnbench.facts.workload.model import Attention, Model, Transformer
from trnbench.facts.workload.weights import active_parameter_count, parameter_count, weights
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp
from trnbench.program.tensor import Tensor, array, element_bytes

_PAIR = 2
"""A key and a value; a sum behind the mixer and one behind the MLP; a multiply and an add."""


class LayerCache(Record, eq=False):
    """What so many layers keep of an answer: bytes of each token on a rank, at most of `window`.

    `flop` of a token that looks at one of them. A state (`window` 1) is read and written.
    """

    layers: int
    token_bytes: FloatArray
    window: float
    flop: FloatArray


class Generation(Record, eq=False):
    """The engines of a job in each layout of a grid: bytes and FLOP are those of one rank."""

    grid: Grid
    hidden: int
    layers: int
    words: int
    response: int
    dense_bytes: FloatArray
    expert_bytes: FloatArray
    experts: int
    visited: int
    token_flop: FloatArray
    kept: tuple[LayerCache, ...]

    @property
    def weights_bytes(self) -> FloatArray:
        """A rank's part of its engine's copy of the policy."""
        return array(self.dense_bytes + self.expert_bytes)

    @property
    def prompt(self) -> FloatArray:
        """Tokens of a prompt."""
        return array(self.grid.sequence - self.response)

    @property
    def engines(self) -> FloatArray:
        """Engines, where the ranks that train write answers too."""
        return array(self.grid.ranks("world") / self.grid.tp)

    def answers(self, engines: FloatArray) -> FloatArray:
        """Return the answers that an engine writes in a step."""
        return np.ceil(self.grid.global_batch / engines)

    def at_once(self, engines: FloatArray) -> FloatArray:
        """Return how many of them it writes at once."""
        return np.minimum(self.answers(engines), self.grid.generation_batch or 1)

    def rounds(self, engines: FloatArray) -> FloatArray:
        """Return the rounds of an engine in a step."""
        return array(np.ceil(self.answers(engines) / self.at_once(engines)) * self.response)

    def cache_bytes(self) -> FloatArray:
        """Return what a rank keeps of an answer once it is written."""
        tokens = self.grid.sequence
        each = (k.layers * k.token_bytes * np.minimum(tokens, k.window) for k in self.kept)
        return array(sum(each, start=np.zeros(())))

    def read_bytes(self, engines: FloatArray) -> FloatArray:
        """Return what a rank reads in a step."""
        missed = (1 - self.visited / self.experts) ** self.at_once(engines)
        read = self.dense_bytes + self.expert_bytes * (1 - missed)
        looked = (k.layers * k.token_bytes * self._looked_at(k) for k in self.kept)
        of_answers = self.answers(engines) * sum(looked, start=np.zeros(()))
        return array(self.rounds(engines) * read + of_answers)

    def flop(self, engines: FloatArray) -> FloatArray:
        """Return what a rank computes in a step."""
        looked = (k.layers * k.flop * self._looked_at(k) for k in self.kept)
        each = self.response * self.token_flop + sum(looked, start=np.zeros(()))
        return array(self.answers(engines) * each)

    def _looked_at(self, kept: LayerCache) -> FloatArray:
        """Return of how many tokens all rounds of an answer together read what is kept."""

        def first(tokens: FloatArray) -> FloatArray:
            inside = np.minimum(tokens, kept.window)
            return array(inside * (inside + 1) / 2 + (tokens - inside) * inside)

        return array(first(array(self.grid.sequence - 1)) - first(array(self.prompt - 1)))

    def sums(self, engines: FloatArray) -> tuple[CollectiveOp, ...]:
        """Return the exchanges of an engine in a round: sums in layers, and logits gathered."""
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
        """Return the exchanges that bring the weights of training to the engines, once a step.

        Ranks gather the stages they lack, under ZeRO 3 the slices too; engines on nodes of their
        own get all from those that train, along a chain of ranks.
        """
        grid, size = self.grid, self.weights_bytes / element_bytes(self.grid.recipe.activations)
        whole, stage = _tensor(grid, "engine", size), _tensor(grid, "engine.stage", size / grid.pp)
        apart = grid.generation_nodes is not None
        share = _tensor(grid, "engine.slice", size / grid.pp / grid.ranks("data"))
        found = [_exchange("all-gather", grid, stage, whole, array(grid.pp > 1), axis="pp")]
        if grid.zero == 3:
            several = array(grid.ranks("data") > 1)
            found.append(_exchange("all-gather", grid, share, stage, several, axis="data"))
        if apart:
            several = array(grid.ranks("world") > 1)
            found.append(_exchange("broadcast", grid, whole, whole, several, axis="world"))
        return tuple(one for one in found if np.any(one.count))


def generation_of(model: Model, grid: Grid) -> Generation | None:
    """Return how a job's policy writes answers; None of a job that reads what is there."""
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
    return CollectiveOp(
        name=f"{write.name}.{op}",
        op=op,
        axis=axis,
        phase="F",
        read=read,
        write=write,
        ranks=grid.ranks(axis),
        count=count,
    )

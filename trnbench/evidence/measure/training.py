"""Timed steps of a decoder in JAX, laid out by hand over tensor- and data-parallel devices.

Every exchange is explicit, as `trnbench.program` lowers it: tensor-parallel ranks hold slices of
heads, of the MLP and of the vocabulary, sum activations forward and gradients backward, and share
the statistics of the loss; replicas sum gradients once a step. `shard_map` derives the backward
exchanges from the forward ones. Losses must fall, and the compiler's FLOP are recorded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy

from trnbench.evidence.measure.device import peak_memory_bytes
from trnbench.evidence.measure.loops import AllDevices, Timing, timed
from trnbench.evidence.measure.pieces import Array, Pieces
from trnbench.evidence.measure.suites import DecoderCase
from trnbench.facts.records import Record, replace
from trnbench.program.precision import recipe_named
from trnbench.program.tensor import element_bytes

Weights = Mapping[str, Any]
_SCALE = 0.02
_FIRST_STEPS = 3
_STATES = 4
"""Copies of all weights in fp32 during a step: master, gradient and two moments."""
_SCORES = 6
"""Copies of a layer's scores or activations, at most."""


class Decoder(Record, eq=False):
    """A decoder on a mesh of `dp` x `tp` devices."""

    machine: AllDevices
    case: DecoderCase
    pieces: Pieces
    mesh: Any

    @classmethod
    def on(cls, machine: AllDevices, case: DecoderCase) -> Decoder:
        axes = {name: size for name, size in (("dp", case.dp), ("tp", case.tp)) if size > 1}
        mesh = machine.mesh(**(axes or {"dp": 1}))
        return cls(machine=machine, case=case, pieces=Pieces(machine.jax), mesh=mesh)

    @property
    def head_size(self) -> int:
        return self.case.hidden // self.case.heads

    def shapes(self) -> dict[str, tuple[tuple[int, ...], tuple[str | None, ...]]]:
        """Each weight's whole shape, and the axis that cuts each of its dimensions."""
        case, size = self.case, self.head_size
        found: dict[str, tuple[tuple[int, ...], tuple[str | None, ...]]] = {
            "embedding": ((case.vocab, case.hidden), ("tp", None)),
            "norm": ((case.hidden,), (None,)),
            "head": ((case.hidden, case.vocab), (None, "tp")),
        }
        for i in range(case.layers):
            found |= {
                f"{i}.norm.attention": ((case.hidden,), (None,)),
                f"{i}.query-key-value": ((case.hidden, 3, case.heads * size), (None, None, "tp")),
                f"{i}.output": ((case.heads * size, case.hidden), ("tp", None)),
                f"{i}.norm.mlp": ((case.hidden,), (None,)),
                f"{i}.gate-up": ((case.hidden, 2, case.ffn), (None, None, "tp")),
                f"{i}.down": ((case.ffn, case.hidden), ("tp", None)),
            }
        return found

    def specs(self) -> dict[str, Any]:
        spec = self.machine.jax.sharding.PartitionSpec
        return {name: spec(*map(self._axis, axes)) for name, (_, axes) in self.shapes().items()}

    def _axis(self, name: str | None) -> str | None:
        return name if name in self.mesh.axis_names else None

    def _sum(self, array: Array, axis: str) -> Array:
        return self.machine.jax.lax.psum(array, axis) if self._axis(axis) else array

    def loss(self, weights: Weights, words: Array) -> Array:
        """Sum of the losses of a device's own tokens; `words` has one more token per sample."""
        np, lax, case = self.machine.jax.numpy, self.machine.jax.lax, self.case
        given, targets = words[:, :-1], words[:, 1:]
        branch = self._sum(self._looked_up(weights["embedding"], given), "tp")
        stream = np.zeros_like(branch)
        for i in range(case.layers):
            stream, normed = self.pieces.joined(stream, branch, weights[f"{i}.norm.attention"])
            branch = self._sum(self._attended(weights, i, normed), "tp")
            stream, normed = self.pieces.joined(stream, branch, weights[f"{i}.norm.mlp"])
            wide = normed @ weights[f"{i}.gate-up"].reshape(case.hidden, -1)
            branch = self._sum(self.pieces.gated(wide) @ weights[f"{i}.down"], "tp")
        _, normed = self.pieces.joined(stream, branch, weights["norm"])
        logits = normed @ weights["head"]
        largest = lax.stop_gradient(logits.astype(np.float32).max(axis=-1))
        if self._axis("tp"):
            largest = lax.pmax(largest, "tp")
        place = self._place(targets, logits.shape[-1])
        whole = self._sum(self.pieces.statistics(logits, place, largest), "tp")
        return (np.log(whole[0]) + largest - whole[1]).sum()

    def _place(self, words: Array, held: int) -> Array:
        rank = self.machine.jax.lax.axis_index("tp") if self._axis("tp") else 0
        place = words - rank * held
        return self.machine.jax.numpy.where((place >= 0) & (place < held), place, -1)

    def _looked_up(self, table: Array, words: Array) -> Array:
        place = self._place(words, table.shape[0])
        rows = table[self.machine.jax.numpy.maximum(place, 0)]
        return self.machine.jax.numpy.where((place < 0)[..., None], 0, rows)

    def _attended(self, weights: Weights, layer: int, normed: Array) -> Array:
        mixed = normed @ weights[f"{layer}.query-key-value"].reshape(self.case.hidden, -1)
        query, key, value = self.pieces.heads(mixed, self.head_size)
        if self.case.attention == "fused":
            context = self.pieces.fused(query, key, value, self.machine.can.fused_attention)
        else:
            scores = query @ key.swapaxes(2, 3)
            context = self.pieces.merged(self.pieces.probabilities(scores) @ value)
        return context @ weights[f"{layer}.output"]

    def step(self) -> Callable[..., Any]:
        """The program of a step: (state, words) -> (state, loss).

        The state is a count, the weights as multiplied, masters (empty if the same), and means and
        squares of gradients; `words` are [micro-batch, sample, token] of all replicas.
        """
        jax, case = self.machine.jax, self.case
        spec, specs = jax.sharding.PartitionSpec, self.specs()
        tokens = case.global_batch * case.sequence
        layout = (spec(), specs, specs, specs, specs)
        if case.precision == "fp32":
            layout = (spec(), specs, {}, specs, specs)

        def run(state: tuple[Any, ...], words: Array) -> tuple[tuple[Any, ...], Array]:
            count, weights, masters, means, squares = state
            own = jax.tree.map(self._varying, weights)
            loss, gradients = 0.0, None
            for micro_batch in range(case.micro_batches):
                found = jax.value_and_grad(self.loss)(own, words[micro_batch])
                wide = jax.tree.map(lambda gradient: gradient.astype(jax.numpy.float32), found[1])
                loss = loss + found[0]
                gradients = (
                    wide if gradients is None else jax.tree.map(jax.numpy.add, gradients, wide)
                )
            gradients = jax.tree.map(lambda gradient: self._sum(gradient, "dp") / tokens, gradients)
            clip = 1.0 / jax.numpy.maximum(1.0, self._norm(gradients))
            kept = masters or weights
            updated = {
                name: self.pieces.updated(
                    kept[name], gradients[name], (means[name], squares[name]), count, clip
                )
                for name in kept
            }
            new = {name: weight[0] for name, weight in updated.items()}
            moments = [{name: update[1][i] for name, update in updated.items()} for i in (0, 1)]
            narrow = {name: weight.astype(weights[name].dtype) for name, weight in new.items()}
            state = (count + 1, narrow, new if masters else {}, *moments)
            return state, self._sum(loss, "dp") / tokens

        words = spec(None, self._axis("dp"))
        parted = jax.shard_map(
            run, mesh=self.mesh, in_specs=(layout, words), out_specs=(layout, spec())
        )
        return jax.jit(parted, donate_argnums=0)  # type: ignore[no-any-return]

    def _norm(self, gradients: Weights) -> Array:
        """Norm of all gradients; slices are summed over their ranks."""
        np = self.machine.jax.numpy
        whole, cut = np.zeros(()), np.zeros(())
        for name, (_, axes) in self.shapes().items():
            square = np.sum(gradients[name] * gradients[name])
            whole, cut = (whole, cut + square) if "tp" in axes else (whole + square, cut)
        return np.sqrt(whole + self._sum(cut, "tp"))

    def state(self, seed: int) -> tuple[Any, ...]:
        """State before the first step; equal for a seed in every layout."""
        jax, np = self.machine.jax, self.machine.jax.numpy
        kind = np.float32 if self.case.precision == "fp32" else np.bfloat16
        places = {
            name: jax.sharding.NamedSharding(self.mesh, spec) for name, spec in self.specs().items()
        }
        masters = {}
        for i, (name, (shape, _)) in enumerate(self.shapes().items()):
            if len(shape) == 1:
                masters[name] = np.ones(shape, device=places[name])
            else:
                drawn = self.machine.normal(shape, np.float32, places[name], seed + i)
                masters[name] = drawn * _SCALE
        weights = {name: one.astype(kind) for name, one in masters.items()}
        zeros = [{name: np.zeros_like(one) for name, one in masters.items()} for _ in range(2)]
        whole = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        count = jax.device_put(np.zeros(()), whole)
        return (count, weights, {} if kind is np.float32 else masters, *zeros)

    def words(self, seed: int) -> Array:
        """Tokens of a step; equal for a seed and a global batch in every layout."""
        jax, case = self.machine.jax, self.case
        shape = (case.micro_batches, case.micro_batch * case.dp, case.sequence + 1)
        drawn = numpy.random.default_rng(seed).integers(0, case.vocab, shape, dtype=numpy.int32)
        spec = jax.sharding.PartitionSpec(None, self._axis("dp"))
        return jax.device_put(drawn, jax.sharding.NamedSharding(self.mesh, spec))

    def _varying(self, array: Array) -> Array:
        """A weight whose gradients stay separate per replica, for one sum per step."""
        lax = self.machine.jax.lax
        if not self._axis("dp"):
            return array
        if hasattr(lax, "pcast"):
            return lax.pcast(array, "dp", to="varying")
        return lax.pvary(array, "dp")


class StepRun(Record):
    """A decoder's step on all devices."""

    case: DecoderCase
    timing: Timing
    compile_s: float
    losses: tuple[float, ...]
    compiled_flop: float | None
    """FLOP of one device by the compiler's cost analysis, if available."""
    peak_memory_bytes: float | None
    """Peak of a device so far, if the backend reports it."""

    @property
    def check(self) -> float:
        """0 if losses are finite and fell, else infinite."""
        sound = all(map(math.isfinite, self.losses)) and self.losses[-1] < self.losses[0]
        return 0.0 if sound else math.inf


def training(machine: AllDevices, case: DecoderCase, *, seed: int) -> Iterator[StepRun]:
    """Yield the timing of a decoder's step: compiled, warmed up, repeated on the same words."""
    machine.check_memory(_needed_bytes(case), f"a decoder {case.shape}")
    decoder = Decoder.on(machine, case)
    state, words = decoder.state(seed), decoder.words(seed + 1)
    begun = time.perf_counter()
    program = decoder.step().lower(state, words).compile()  # type: ignore[attr-defined]
    compile_s = time.perf_counter() - begun
    losses: list[float] = []

    def step() -> None:
        nonlocal state
        state, loss = program(state, words)
        losses.append(float(machine.jax.block_until_ready(loss)))

    for _ in range(_FIRST_STEPS):
        step()
    timing = timed(step, machine.rule)
    state, loss = program(state, words)
    timing = replace(timing, state=machine.watch())
    losses.append(float(loss))
    counted = program.cost_analysis()
    counted = counted[0] if isinstance(counted, list) else counted
    yield StepRun(
        case=case,
        timing=timing,
        compile_s=compile_s,
        losses=tuple(losses),
        compiled_flop=float(counted["flops"]) if counted and "flops" in counted else None,
        peak_memory_bytes=peak_memory_bytes(machine.devices),
    )


def _needed_bytes(case: DecoderCase) -> float:
    """Estimated minimum memory of a device for a step, bytes."""
    layer = case.hidden * (4 * case.hidden + 3 * case.ffn)
    weights = (case.layers * layer + 2 * case.vocab * case.hidden) / case.tp
    tokens = case.micro_batch * case.sequence
    width = element_bytes(recipe_named(case.precision).activations)
    scores = case.heads * case.sequence if case.attention == "naive" else 0
    held = case.layers * _SCORES * (2 * case.hidden + case.ffn + scores) * width
    return 4.0 * _STATES * weights + tokens * (held / case.tp + 4.0 * 3 * case.vocab / case.tp)

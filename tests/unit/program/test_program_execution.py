"""The program executed with real arrays on every rank: right losses, gradients, shapes and bytes.

The executor is a table from what an operation is called to a numpy function. The reference is the
model written down once more, undivided.
"""

from __future__ import annotations

from itertools import product
from math import prod

import attrs
import numpy as np
import pytest

from trnbench.program.grid import Choices
from trnbench.program.ops import Attention, CollectiveOp, Elementwise, Gather, MatMul
from trnbench.program.step import training_step
from trnbench.program.tensor import element_bytes
from trnbench.workload.layout import Layout
from trnbench.workload.model import Attention as Heads
from trnbench.workload.model import Latent, Mlp, Model, Moe, Position, Transformer, Vocabulary
from trnbench.workload.weights import weights

SEQUENCE, BASE, EPSILON = 16, 10000.0, 1e-5


def decoder(
    *, gpt: bool = False, kv_heads: int = 2, latent: bool = False, experts: int = 0
) -> Model:
    """Two layers of width 8: 4 heads of 2, an MLP of 16, 32 words."""
    rotary = Position(encoding="rotary", length=64, rotary_base=BASE)
    learned = Position(encoding="learned", length=64)
    mlp = Mlp(hidden=16, gated=not gpt, activation="gelu" if gpt else "silu", biases=gpt)
    low = Latent(kv_rank=4, query_rank=6, rope_head_size=2, value_head_size=2)
    return Model(
        name="hand",
        title="hand",
        transformer=Transformer(
            layers=2,
            hidden=8,
            norm="layer" if gpt else "rms",
            residual="parallel" if gpt and kv_heads == 1 else "sequential",
            attention=Heads(
                heads=4,
                kv_heads=4 if latent else kv_heads,
                head_size=2,
                causal=True,
                biases="all" if gpt else "none",
                latent=low if latent else None,
            ),
            mlp=None if experts else mlp,
            moe=Moe(experts=experts, top_k=2, expert=mlp, shared_experts=1) if experts else None,
            position=learned if gpt else rotary,
        ),
        vocabulary=Vocabulary(size=32, tied=gpt),
    )


# Functions both the reference and the executor use


def normed(x, scale, shift=None):
    if shift is None:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * scale
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * scale + shift


def turned(x, first):
    """Rotate pairs of each head's dimensions by the token's position."""
    half = x.shape[-1] // 2
    angle = (first + np.arange(x.shape[1]))[:, None] / BASE ** (np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def turned_tail(x, first, plain):
    return np.concatenate([x[..., :plain], turned(x[..., plain:], first)], -1)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def slope(function, x, step=1e-6):
    return (function(x + step) - function(x - step)) / (2 * step)


def masked(scores, size, first):
    rows = first + np.arange(scores.shape[-2])[:, None]
    seen = np.arange(scores.shape[-1]) <= rows
    return np.where(seen, scores / np.sqrt(size), -1e30)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# The reference


def reference_loss(model, w, ids, targets):
    """Return the mean loss; w[name] is a list with one array a layer, or one array."""
    t = model.transformer
    heads = t.attention
    x = w["embedding.token"][0][ids]
    if "embedding.position" in w:
        x = x + w["embedding.position"][0][: ids.shape[1]]
    for i in range(t.layers):

        def at(name, default=None, i=i):
            return w[name][i] if name in w else default

        def attend(n, at=at):
            if heads.latent is None:
                q = np.einsum("bsh,hnd->bsnd", n, at("attention.query")) + at(
                    "attention.query.bias", 0
                )
                k = np.einsum("bsh,hnd->bsnd", n, at("attention.key")) + at("attention.key.bias", 0)
                v = np.einsum("bsh,hnd->bsnd", n, at("attention.value")) + at(
                    "attention.value.bias", 0
                )
                if t.position.encoding == "rotary":
                    q, k = turned(q, 0), turned(k, 0)
            else:
                low_q = normed(n @ at("attention.query_down"), at("attention.query_down_norm"))
                low_kv = normed(n @ at("attention.kv_down"), at("attention.kv_down_norm"))
                q = np.einsum("bsr,rnd->bsnd", low_q, at("attention.query_up"))
                k = np.einsum("bsr,rnd->bsnd", low_kv, at("attention.key_up"))
                v = np.einsum("bsr,rnd->bsnd", low_kv, at("attention.value_up"))
                rope = turned((n @ at("attention.key_rope"))[:, :, None], 0)
                k = np.concatenate([k, np.repeat(rope, heads.heads, 2)], -1)
                q = turned_tail(q, 0, heads.head_size)
            groups = q.shape[2] // k.shape[2]
            k, v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
            p = softmax(masked(np.einsum("bsnd,btnd->bnst", q, k), q.shape[-1], 0))
            out = np.einsum("bnst,btnd,ndh->bsh", p, v, at("attention.output"))
            return out + at("attention.output.bias", 0)

        def mixed(n, at=at):
            logits = n @ at("router")
            choice = np.argsort(-logits, -1)[..., : t.moe.top_k]
            p = softmax(np.take_along_axis(logits, choice, -1))
            out = 0
            for e in range(t.moe.experts):
                inner = silu(n @ at("experts.gate")[e]) * (n @ at("experts.up")[e])
                share = (p * (choice == e)).sum(-1, keepdims=True)
                out = out + share * (inner @ at("experts.down")[e])
            inner = silu(n @ at("shared_experts.gate")[0]) * (n @ at("shared_experts.up")[0])
            return out + inner @ at("shared_experts.down")[0]

        def feed(n, at=at, mixed=mixed):
            if t.moe is not None:
                return mixed(n)
            up = n @ at("mlp.up") + at("mlp.up.bias", 0)
            inner = silu(n @ at("mlp.gate")) * up if t.mlp.gated else gelu(up)
            return inner @ at("mlp.down") + at("mlp.down.bias", 0)

        first = normed(x, at("norm.attention"), at("norm.attention.bias"))
        if t.residual == "parallel":
            x = x + attend(first) + feed(normed(x, at("norm.mlp"), at("norm.mlp.bias")))
        else:
            x = x + attend(first)
            x = x + feed(normed(x, at("norm.mlp"), at("norm.mlp.bias")))
    final = w.get("norm.final.bias", [None])[0]
    x = normed(x, w["norm.final"][0], final)
    logits = x @ (w["embedding.token"][0].T if model.vocabulary.tied else w["head"][0])
    top = logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (np.log(np.exp(logits - top).sum(-1)) + top[..., 0] - chosen).mean()


# The executor


MESH = ("dp", "cp", "tp")
ENDS = {"embedding", "head"}


class Ranks:
    """Every rank of one replica-and-stage mesh (dp, cp, tp), with its tensors by name."""

    def __init__(self, program, full):
        layout = program.layout
        self.degree = {
            "dp": layout.dp,
            "cp": layout.cp,
            "tp": layout.tp,
            "ep": layout.ep,
            "expert_data": layout.dp * layout.cp // layout.ep,
        }
        self.places = list(product(*(range(self.degree[axis]) for axis in MESH)))
        self.full = full

    def at(self, place, axis):
        """Return a rank's coordinate; the ranks of ep lie next to each other."""
        if axis in MESH:
            return place[MESH.index(axis)]
        number = place[0] * self.degree["cp"] + place[1]
        if axis == "ep":
            return number % self.degree["ep"]
        return number // self.degree["ep"]

    def spread(self, name):
        """Return whether a weight is one that the ranks of ep share out."""
        return name.startswith("experts.") and self.degree["ep"] > 1

    def first(self, dim, place):
        """Index of the first element of a dimension that this rank holds."""
        number = 0
        for axis in dim.axes:
            number = number * self.degree[axis] + self.at(place, axis)
        # Ranks beyond the number of pieces hold copies.
        held = prod(self.degree[axis] for axis in dim.axes)
        copies = max(1, int(held * dim.size / dim.whole))
        return number // copies * int(dim.size)

    def shard(self, tensor, array, place):
        starts = [self.first(dim, place) for dim in tensor.dims]
        sizes = [int(dim.size) for dim in tensor.dims]
        return array[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]

    def group(self, place, axis):
        """Return the ranks that differ from this one along an axis only, in order."""
        others = [other for other in MESH if other != axis]
        if axis in ("ep", "expert_data"):
            others = ["tp", "expert_data" if axis == "ep" else "ep"]

        def key(place):
            return [self.at(place, other) for other in others]

        return [member for member in self.places if key(member) == key(place)]

    def run(self, ops, values):
        for op in ops:
            if isinstance(op, CollectiveOp):
                self.exchange(op, values)
                continue
            for place in self.places:
                read = {t: values[place][t.name] for t in op.reads}
                written = self.compute(op, read, place)
                assert len(written) == len(op.writes)
                for tensor, array in zip(op.writes, written, strict=True):
                    check(tensor, array)
                    values[place][tensor.name] = array

    def exchange(self, op, values):
        """Join what a group holds (side by side, or summed) and cut it as the result is cut."""
        new = {}
        for place in self.places:
            group = self.group(place, op.axis)
            assert len(group) == op.ranks
            pieces = [values[member][op.read.name] for member in group]
            if op.op == "all-to-all":
                new[place] = swapped(op, pieces, self.at(place, op.axis))
                check(op.write, new[place])
                continue
            if op.axis in op.read.shards:
                joined = np.concatenate(pieces, dimension(op.read, op.axis))
            else:
                assert op.axis in op.read.partial
                joined = np.max(pieces, 0) if op.reduction == "max" else np.sum(pieces, 0)
            if op.axis in op.write.shards:
                i = dimension(op.write, op.axis)
                part = np.split(joined, len(group), i)
                joined = part[self.at(place, op.axis)]
            new[place] = joined
            check(op.write, joined)
        for place, array in new.items():
            values[place][op.write.name] = array

    def compute(self, op, read, place):
        match op:
            case MatMul():
                out: dict = {}
                for term in op.terms:
                    value = np.einsum(term.letters, read[term.left], read[term.right])
                    bias = [b for b in op.bias if b.name == f"{term.right.name}.bias"]
                    out[term.out] = out.get(term.out, 0) + value + sum(read[b] for b in bias)
                return [out[t] for t in op.writes]
            case Attention():
                return self.attention(op, read, place)
            case Gather():
                return [self.gather(op, read, place)]
            case Elementwise():
                return getattr(self, op.function)(op, place, *read.values())
        raise AssertionError(op)

    def attention(self, op, read, place):
        q, k, v, *rest = read.values()
        groups = q.shape[2] // k.shape[2]
        wide_k, wide_v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
        size, first = q.shape[-1], self.first(op.query.dims[1], place)
        p = softmax(masked(np.einsum("bsnd,btnd->bnst", q, wide_k), size, first))
        if not rest:
            return [np.einsum("bnst,btnd->bsnd", p, wide_v), p.sum(-1)]
        gradient = rest[-1]
        d_p = np.einsum("bsnd,btnd->bnst", gradient, wide_v)
        d_s = p * (d_p - (d_p * p).sum(-1, keepdims=True)) / np.sqrt(size)
        d_q = np.einsum("bnst,btnd->bsnd", d_s, wide_k)
        d_k = np.einsum("bnst,bsnd->btnd", d_s, q)
        d_v = np.einsum("bnst,bsnd->btnd", p, gradient)
        return [d_q, unrepeated(d_k, groups), unrepeated(d_v, groups)]

    def gather(self, op, read, place):
        first, index = read.values()
        if op.name == "slots":
            return chosen_by(index, op.writes[0]) * first.reshape(-1, first.shape[-1])
        if op.reads[0].dims[0].name == "expert":
            mine = (chosen_by(index, op.reads[0]) * first).sum(0)
            return mine.reshape([int(n) for n in op.writes[0].shape])
        if op.function == "scatter_add":
            table = op.writes[0]
            out = np.zeros([int(n) for n in table.shape])
            rows = index - self.first(table.dims[0], place)
            here = (rows >= 0) & (rows < len(out))
            np.add.at(out, rows[here], first[here])
            return out
        table = op.reads[0]
        rows = index - self.first(table.dims[0], place)
        here = (rows >= 0) & (rows < len(first))
        return np.where(here[..., None], first[np.where(here, rows, 0)], 0)

    # One function a name

    def add(self, op, place, *arrays):
        total = 0
        for tensor, array in zip(op.reads, arrays, strict=True):
            total = total + self.placed(tensor, array, op.writes[0], place)
        return [total]

    def placed(self, tensor, array, like, place):
        if tensor.dims[0].name != "position":
            return array
        first = self.first(like.dims[1], place)
        return array[first : first + int(like.dims[1].size)]

    def d_add(self, op, place, gradient):
        out = []
        for tensor in op.writes:
            summed = gradient.sum(tuple(range(gradient.ndim - len(tensor.dims))))
            if tensor.dims[0].name == "position":
                table = np.zeros([int(n) for n in tensor.shape])
                first = self.first(op.reads[0].dims[1], place)
                table[first : first + len(summed)] = summed
                summed = table
            out.append(summed)
        return out

    def sum_rows(self, op, place, gradient):
        return [gradient.sum(tuple(range(gradient.ndim - len(op.writes[0].dims))))]

    def norm(self, op, place, x, *scale):
        return [normed(x, *scale)]

    def d_norm(self, op, place, gradient, x, scale):
        layer = len(op.writes) == 3
        centred = x - x.mean(-1, keepdims=True) if layer else x
        root = np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        unit, g = centred / root, gradient * scale
        d_x = (g - unit * (g * unit).mean(-1, keepdims=True)) / root
        if layer:
            d_x = d_x - d_x.mean(-1, keepdims=True)
        out = [d_x, (gradient * unit).sum((0, 1))]
        return [*out, gradient.sum((0, 1))] if layer else out

    def rotary(self, op, place, *heads):
        first = self.first(op.reads[0].dims[1], place)
        return [self.turn(t, x, first) for t, x in zip(op.reads, heads, strict=True)]

    def turn(self, tensor, x, first):
        return (
            turned_tail(x, first, 2)
            if tensor.dims[3].name == "query_head_size"
            else turned(x, first)
        )

    def d_rotary(self, op, place, *gradients):
        first = self.first(op.reads[0].dims[1], place)
        return [
            unturned(lambda y, t=t: self.turn(t, y, first), g)
            for t, g in zip(op.reads, gradients, strict=True)
        ]

    def join_rotated(self, op, place, plain, shared):
        first = self.first(op.reads[0].dims[1], place)
        rope = turned(shared[:, :, None], first)
        return [np.concatenate([plain, np.repeat(rope, plain.shape[2], 2)], -1)]

    def d_join_rotated(self, op, place, gradient):
        first = self.first(op.reads[0].dims[1], place)
        tail = gradient[..., 2:].sum(2, keepdims=True)
        return [gradient[..., :2], unturned(lambda y: turned(y, first), tail)[:, :, 0]]

    def silu_gate(self, op, place, gate, up):
        return [silu(gate) * up]

    def d_silu_gate(self, op, place, gradient, gate, up):
        return [gradient * up * slope(silu, gate), gradient * silu(gate)]

    def gelu(self, op, place, x):
        return [gelu(x)]

    def d_gelu(self, op, place, gradient, x):
        return [gradient * slope(gelu, x)]

    def scale_mask(self, op, place, scores):
        return [masked(scores, 2, self.first(op.reads[0].dims[2], place))]

    def d_scale_mask(self, op, place, gradient):
        return [gradient / np.sqrt(2)]

    def softmax(self, op, place, x):
        return [softmax(x)]

    def d_softmax(self, op, place, gradient, p):
        return [p * (gradient - (gradient * p).sum(-1, keepdims=True))]

    def repeat_heads(self, op, place, x):
        return [np.repeat(x, int(op.writes[0].shape[2]) // x.shape[2], 2)]

    def d_repeat_heads(self, op, place, gradient):
        return [unrepeated(gradient, gradient.shape[2] // int(op.writes[0].shape[2]))]

    def route(self, op, place, logits):
        choice = np.argsort(-logits, -1)[..., : int(op.writes[0].shape[2])]
        return [softmax(np.take_along_axis(logits, choice, -1)), choice]

    def d_route(self, op, place, gradient, p, choice):
        d_top = p * (gradient - (gradient * p).sum(-1, keepdims=True))
        out = np.zeros([int(n) for n in op.writes[0].shape])
        np.put_along_axis(out, choice, d_top, -1)
        return [out]

    def combine(self, op, place, done, p, choice):
        return [(p[..., None] * answers(done, choice)).sum(2)]

    def d_combine(self, op, place, gradient, done, p, choice):
        d_done = np.zeros_like(done)
        token = np.arange(done.shape[1]).reshape(choice.shape[:2])[..., None]
        np.add.at(d_done, (choice, token), p[..., None] * gradient[:, :, None])
        return [d_done, (answers(done, choice) * gradient[:, :, None]).sum(-1)]

    def row_max(self, op, place, logits):
        return [logits.max(-1)]

    def exponential_sums(self, op, place, logits, top, targets):
        rows = targets - self.first(op.reads[0].dims[2], place)
        here = (rows >= 0) & (rows < logits.shape[-1])
        chosen = np.take_along_axis(logits, np.where(here, rows, 0)[..., None], -1)[..., 0] - top
        total = np.exp(logits - top[..., None]).sum(-1)
        return [np.stack([total, np.where(here, chosen, 0)], -1)]

    def d_exponential_sums(self, op, place, gradient, logits, top, targets):
        rows = targets - self.first(op.writes[0].dims[2], place)
        chosen = np.arange(logits.shape[-1]) == rows[..., None]
        return [gradient[..., :1] * np.exp(logits - top[..., None]) + gradient[..., 1:] * chosen]

    def cross_entropy(self, op, place, sums):
        return [np.log(sums[..., 0]) - sums[..., 1]]

    def d_cross_entropy(self, op, place, gradient, sums):
        return [np.stack([gradient / sums[..., 0], -gradient], -1)]

    def slice(self, op, place, gradient):
        """Return a rank's part of a gradient that all ranks of a group hold."""
        of, to = op.reads[0], op.writes[0]
        (axis,) = set(to.shards) - set(of.shards)
        i = dimension(to, axis)
        return [np.split(gradient, self.degree[axis], i)[self.at(place, axis)]]


def swapped(op, pieces, number):
    """Join the pieces along what is whole afterwards, and take this rank's part of the rest."""
    sizes = list(zip(op.read.shape, op.write.shape, strict=True))
    (grows,) = [i for i, (before, after) in enumerate(sizes) if after > before]
    (shrinks,) = [i for i, (before, after) in enumerate(sizes) if after < before]
    return np.split(np.concatenate(pieces, grows), len(pieces), shrinks)[number]


def dimension(tensor, axis):
    """Number of the dimension an axis cuts, which must be the last axis to cut it."""
    (i,) = [i for i, dim in enumerate(tensor.dims) if axis in dim.axes]
    assert tensor.dims[i].axes[-1] == axis
    return i


def answers(done, choice):
    """Return [batch, token, choice, hidden] from [expert, slot, hidden]."""
    token = np.arange(done.shape[1]).reshape(choice.shape[:2])[..., None]
    return done[choice, token]


def chosen_by(choice, slots):
    """Return [expert, slot, 1]: whether a token chose an expert; a token's slot is its number."""
    flat = choice.reshape(-1, choice.shape[-1])
    experts = np.arange(int(slots.shape[0]))
    return (flat == experts[:, None, None]).any(-1)[..., None]


def unturned(linear, gradient):
    """The transpose of a rotation is the rotation back; found by applying it to unit vectors."""
    size = gradient.shape[-1]
    basis = np.stack([linear(np.broadcast_to(row, gradient.shape)) for row in np.eye(size)], -2)
    return np.einsum("bsnd,bsnid->bsni", gradient, basis)


def unrepeated(x, groups):
    return x.reshape(*x.shape[:2], -1, groups, x.shape[3]).sum(3)


def check(tensor, array):
    """The array has the program's shape, and so its bytes."""
    assert array.shape == tuple(int(n) for n in tensor.shape), tensor.name
    assert array.size * element_bytes(tensor.format) == tensor.bytes


def execute(program, full, ids, targets):
    """Return the loss and the gradients of every weight, from all ranks of all stages."""
    model, layout = program.model, program.layout
    ranks = Ranks(program, full)
    chain = [
        ("embedding", 0),
        *((next(iter(set(program.blocks) - ENDS)), i) for i in range(model.transformer.layers)),
        ("head", 0),
    ]
    rounds = int(program.micro_batches)
    loss = 0.0
    gradients: dict = {}
    for step in range(rounds):
        rows = slice(
            step * layout.dp * layout.micro_batch, (step + 1) * layout.dp * layout.micro_batch
        )
        flow: dict = {place: {} for place in ranks.places}
        held = []
        for kind, i in chain:
            block = program.blocks[kind]
            values = {place: dict(flow[place]) for place in ranks.places}
            load(ranks, block, values, i, {"tokens": ids[rows], "targets": targets[rows]})
            ranks.run(block.phase("F"), values)
            keep = {t.name for t in block.kept.tensors}
            held.append({p: {k: v for k, v in values[p].items() if k in keep} for p in values})
            out = block.leaving[0].name
            flow = {place: {"stream": values[place][out]} for place in ranks.places}
        loss += sum(flow[p]["stream"].sum() for p in flow if ranks.at(p, "tp") == 0)
        seed = 1 / (ids.size)
        back = {p: np.full(flow[p]["stream"].shape, seed) for p in flow}
        for (kind, i), kept in zip(reversed(chain), reversed(held), strict=True):
            block = program.blocks[kind]
            # Only what the program keeps is still there; everything else was dropped.
            values = {place: dict(kept[place]) for place in ranks.places}
            load(ranks, block, values, i, {})
            for place in values:
                values[place][f"d.{block.leaving[0].name}"] = back[place]
            ranks.run(block.kept.ops, values)
            collect(ranks, block, values, i, gradients)
            if block.entering:
                back = {p: values[p][entering_gradient(block)] for p in values}
    return loss / ids.size, gradients


def entering_gradient(block):
    return block.entering_gradients["stream"].name


def load(ranks, block, values, layer, given):
    for place in ranks.places:
        for name, member in block.parameters.items():
            values[place][name] = ranks.shard(member.weight, ranks.full[name][layer], place)
        reads = {t.name: t for op in block.ops for t in op.reads}
        for name, array in given.items():
            if name in reads:
                values[place][name] = ranks.shard(reads[name], array, place)


def collect(ranks, block, values, layer, gradients):
    """Add each rank's part of a weight's gradient, where the program says it is a part."""
    for name, gradient in block.gradients.items():
        whole = gradients.setdefault(name, {}).setdefault(
            layer, np.zeros_like(ranks.full[name][layer])
        )
        copies = int(block.parameters[name].copies)
        assert gradient.shards == block.parameters[name].weight.shards
        for place in ranks.places:
            alone = all(
                ranks.at(place, axis) == 0
                for axis in (("ep", "expert_data", "tp") if ranks.spread(name) else MESH)
                if axis not in gradient.partial and axis not in gradient.shards
            )
            assert copies == 1 or "tp" in gradient.shards
            if alone:
                starts = [ranks.first(dim, place) for dim in gradient.dims]
                part = values[place][gradient.name]
                where = tuple(slice(a, a + n) for a, n in zip(starts, part.shape, strict=True))
                whole[where] += part


DENSE_LAYOUTS = {
    "one rank": {},
    "hand example": {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True, "zero": 1},
    "no sequence parallelism": {"tp": 2},
    "naive, core again": {
        "tp": 2,
        "attention": "naive",
        "recompute": "selective",
        "sequence_parallel": True,
    },
    "all again": {"tp": 2, "recompute": "full", "sequence_parallel": True},
    "naive, all again": {"tp": 4, "recompute": "full", "attention": "naive"},
    "ring": {"cp": 2, "tp": 2, "sequence_parallel": True},
    "ring, all again": {"cp": 4, "recompute": "full"},
}
LATENT_LAYOUTS = {k: v for k, v in DENSE_LAYOUTS.items() if "naive" not in k}
MIXED_LAYOUTS = {
    "one rank": {},
    "experts cut": {"tp": 2, "dp": 2},
    "experts cut, sequence parallelism": {"tp": 2, "dp": 2, "sequence_parallel": True},
    "experts spread": {"tp": 2, "dp": 4, "ep": 2},
    "experts spread, sequence parallelism": {
        "tp": 2,
        "dp": 2,
        "cp": 2,
        "ep": 4,
        "sequence_parallel": True,
    },
    "experts spread, all again": {"dp": 4, "ep": 2, "recompute": "full"},
}
CASES = [
    pytest.param(model, layout, id=f"{name}, {how}")
    for name, model, layouts in (
        ("llama", decoder(), DENSE_LAYOUTS),
        ("one key head", decoder(kv_heads=1), DENSE_LAYOUTS),
        ("gpt", decoder(gpt=True, kv_heads=4), DENSE_LAYOUTS),
        ("parallel residual", decoder(gpt=True, kv_heads=1), DENSE_LAYOUTS),
        ("latent", decoder(latent=True), LATENT_LAYOUTS),
        ("mixture", decoder(experts=4), MIXED_LAYOUTS),
    )
    for how, layout in layouts.items()
]


@pytest.mark.parametrize(("model", "layout"), CASES)
def test_executing_the_program_gives_the_losses_and_gradients_of_the_model(model, layout):
    run_and_compare(model, layout)


def test_heads_that_change_places_between_context_ranks_give_the_same():
    choices = Choices(context_parallel="all-to-all")
    for attention in ("fused", "naive"):
        run_and_compare(decoder(kv_heads=4), {"cp": 2, "tp": 2, "attention": attention}, choices)


def run_and_compare(model, degrees, choices=None):
    layout = Layout(**{"global_batch": 8, "sequence": SEQUENCE, "precision": "fp32", **degrees})
    if model.transformer.moe is not None:
        # Every expert has room for every token.
        layout = attrs.evolve(layout, capacity_factor=2.0)
    program = training_step(model, layout, choices=choices)
    assert program.legal, program.refusals()
    random = np.random.default_rng(7)
    full = {}
    for weight in weights(model):
        shape = [size for _, size in weight.dims]
        full[weight.name] = [random.normal(0.3, 0.4, shape) for _ in range(weight.count)]
    ids, targets = random.integers(0, 32, (2, 8, SEQUENCE))
    loss, gradients = execute(program, full, ids, targets)
    assert loss == pytest.approx(reference_loss(model, full, ids, targets), rel=1e-12)
    assert set(gradients) == set(full)
    for name, arrays in full.items():
        for layer, array in enumerate(arrays):
            direction = random.normal(size=array.shape)
            step = 1e-5
            ends = []
            for sign in (1, -1):
                moved = {**full, name: list(arrays)}
                moved[name][layer] = array + sign * step * direction
                ends.append(reference_loss(model, moved, ids, targets))
            expected = (ends[0] - ends[1]) / (2 * step)
            assert (gradients[name][layer] * direction).sum() == pytest.approx(
                expected, rel=2e-5, abs=1e-8
            ), name

"""The program executed with real arrays on every rank: right losses, gradients, shapes and bytes.

The emulator executes it in float64 and holds every array to the program's shape. The reference is
the model written down once more, undivided.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.steps import take_weights
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Attention as Heads
from trnbench.facts.workload.model import Latent, Mlp, Model, Moe, Position, Transformer, Vocabulary
from trnbench.facts.workload.weights import weights
from trnbench.program.step import training_step

BATCH, SEQUENCE, BASE, EPSILON = 8, 16, 10000.0, 1e-5
TEXT = text_of("markov", 32, seed=7)


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
DENSE_LAYOUTS["norms and activations again"] = {
    "tp": 2,
    "sequence_parallel": True,
    "recompute": "norms,activations",
}
LATENT_LAYOUTS = {k: v for k, v in DENSE_LAYOUTS.items() if "naive" not in k}
LATENT_LAYOUTS["projected up again"] = {"tp": 2, "recompute": "norms,up-projection"}
LATENT_LAYOUTS["projected up again, sequence parallelism"] = {
    "tp": 2,
    "recompute": "norms,up-projection",
    "sequence_parallel": True,
}
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
    for attention in ("fused", "naive"):
        degrees = {"cp": 2, "tp": 2, "context_parallel": "all-to-all", "attention": attention}
        run_and_compare(decoder(kv_heads=4), degrees)


@cache
def reference(model):
    """Return weights of a model, and its loss and directional derivatives from the model itself."""
    random = np.random.default_rng(7)
    full = {}
    for weight in weights(model):
        shape = [size for _, size in weight.dims]
        full[weight.name] = [random.normal(0.3, 0.4, shape) for _ in range(weight.count)]
    batch = TEXT.batch(0, BATCH, SEQUENCE)
    ids, targets = batch[:, :-1], batch[:, 1:]
    derivatives = []
    for name, arrays in full.items():
        for layer, array in enumerate(arrays):
            direction = random.normal(size=array.shape)
            step = 1e-5
            ends = []
            for sign in (1, -1):
                moved = {**full, name: list(arrays)}
                moved[name][layer] = array + sign * step * direction
                ends.append(reference_loss(model, moved, ids, targets))
            derivatives.append((name, layer, direction, (ends[0] - ends[1]) / (2 * step)))
    return full, reference_loss(model, full, ids, targets), derivatives


def run_and_compare(model, degrees):
    layout = Layout(**{"global_batch": BATCH, "sequence": SEQUENCE, "precision": "fp32", **degrees})
    if model.transformer.moe is not None:
        # Every expert has room for every token.
        layout = replace(layout, capacity_factor=2.0)
    program = training_step(model, layout)
    assert program.legal, program.refusals()
    trainer = Trainer(program, TrainingRun(text=TEXT, optimizer=AdamW(), exact=True))
    full, expected_loss, derivatives = reference(model)
    take_weights(trainer, {(name, i): w for name, ws in full.items() for i, w in enumerate(ws)})
    loss, gradients = trainer.gradients()
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert {name for name, _ in gradients} == set(full)
    for name, layer, direction, expected in derivatives:
        assert (gradients[name, layer] * direction).sum() == pytest.approx(
            expected, rel=2e-5, abs=1e-8
        ), name

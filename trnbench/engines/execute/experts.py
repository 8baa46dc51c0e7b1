"""A mixture of experts: which tokens go where, and their way there and back.

Each rank sorts its own tokens: an expert takes as many as it has slots, in the order of the tokens;
those beyond are dropped. With room for every token none is.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.facts.arrays import IntArray

One = TypeVar("One", bound=np.generic)


def route(top_k: int, logits: Numbers, steering: Numbers | None = None) -> list[Numbers]:
    """Shares and the numbers of each token's experts, the likeliest first."""
    ranked = logits if steering is None else logits + steering[:, None, None]
    choice = np.argsort(-ranked, axis=-1, kind="stable")[..., :top_k]
    chosen = np.take_along_axis(logits, choice, axis=-1)
    shares = np.exp(chosen - chosen.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return [shares, choice]


def d_route(experts: int, gradient: Numbers, shares: Numbers, choice: Numbers) -> list[Numbers]:
    """Gradient of the logits."""
    into = shares * (gradient - (gradient * shares).sum(axis=-1, keepdims=True))
    out = np.zeros((*choice.shape[:-1], experts), dtype=gradient.dtype)
    np.put_along_axis(out, _index(choice), into, axis=-1)
    return [out]


def dispatch(tokens: Numbers, choice: Numbers, experts: int, slots: int) -> Numbers:
    """[rank, expert, slot, hidden]: the tokens sorted by expert; empty slots are zero."""
    rank, expert, slot, token, _ = _visits(choice, experts, slots)
    out = np.zeros((len(tokens), experts, slots, tokens.shape[-1]), dtype=tokens.dtype)
    out[rank, expert, slot] = _flat(tokens)[rank, token]
    return out


def d_dispatch(gradient: Numbers, choice: Numbers, shape: tuple[int, ...]) -> Numbers:
    """Gradient of the tokens, of this shape, from that of the slots."""
    rank, expert, slot, token, _ = _visits(choice, gradient.shape[1], gradient.shape[2])
    out = np.zeros((shape[0], shape[1] * shape[2], shape[3]), dtype=gradient.dtype)
    np.add.at(out, (rank, token), gradient[rank, expert, slot])
    return out.reshape(shape)


def combine(done: Numbers, shares: Numbers, choice: Numbers) -> Numbers:
    return np.asarray((shares[..., None] * _answers(done, choice)).sum(axis=3))


def d_combine(gradient: Numbers, done: Numbers, shares: Numbers, choice: Numbers) -> list[Numbers]:
    """Gradients of the answers and of the shares."""
    rank, expert, slot, token, visit = _visits(choice, done.shape[1], done.shape[2])
    d_done = np.zeros_like(done)
    of_token = _flat(gradient)[rank, token]
    d_done[rank, expert, slot] = of_token * _flat(shares)[rank, token, visit][:, None]
    d_shares = (_answers(done, choice) * gradient[:, :, :, None]).sum(axis=-1)
    return [d_done, np.asarray(d_shares)]


def _answers(done: Numbers, choice: Numbers) -> Numbers:
    """Answers [rank, batch, token, visit, hidden]; dropped tokens have the answer zero."""
    rank, expert, slot, token, visit = _visits(choice, done.shape[1], done.shape[2])
    shape = (len(done), choice.shape[1] * choice.shape[2], choice.shape[3], done.shape[3])
    out = np.zeros(shape, dtype=done.dtype)
    out[rank, token, visit] = done[rank, expert, slot]
    return out.reshape(*choice.shape, done.shape[3])


def _visits(
    choice: Numbers, experts: int, slots: int
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """(rank, expert, slot, token, visit) of every visit that finds a slot."""
    # A visit's slot is the number of earlier tokens with the same expert, by a running sum.
    flat = _flat(_index(choice))
    chosen = (flat[..., None] == np.arange(experts)).any(axis=2)
    order = np.cumsum(chosen, axis=1) - 1
    slot: IntArray = np.take_along_axis(order, flat, axis=2)
    rank, token, visit = (at.astype(np.int64, copy=False) for at in np.nonzero(slot < slots))
    at = (rank, token, visit)
    return rank, flat[at], slot[at], token, visit


def _flat(numbers: NDArray[One]) -> NDArray[One]:
    return numbers.reshape(len(numbers), -1, *numbers.shape[3:])


def _index(choice: Numbers) -> IntArray:
    return choice.astype(np.int64, copy=False)

"""Times training steps of PyTorch, or of transformers' Llama, on one device.

`trnbench measure steps` runs this file; it needs torch alone, and may be run by itself:

    python steps.py --framework torch --budget 120

Each line of output is an event as JSON; those with "event": "row" hold a measured step.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

GIB = 2**30
_FIRST_STEPS = 3
_FEWEST, _MOST, _BLOCK = 4, 10, 3
"""Blocks of steps, and steps of a block."""
_QUICK = 4
"""Shapes of the quick suite."""
_SHARE = 0.6
"""Share of the budget for repeats; building models takes the rest."""


@dataclass(frozen=True)
class DecoderShape:
    """A decoder and its batch."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequence: int
    micro_batch: int
    micro_batches: int = 1
    recompute: str = "none"

    @property
    def name(self) -> str:
        kept = "" if self.recompute == "none" else f"-{self.recompute}"
        return (
            f"L{self.layers}-H{self.hidden}-F{self.ffn}-V{self.vocab}-S{self.sequence}"
            f"-B{self.micro_batch}x{self.micro_batches}{kept}"
        )


_USUAL = DecoderShape(
    layers=8, hidden=2048, heads=16, kv_heads=8, ffn=5632, vocab=32000, sequence=2048, micro_batch=4
)
ON_ACCELERATOR = (
    _USUAL,
    replace(_USUAL, micro_batch=1),
    replace(_USUAL, layers=4, hidden=4096, heads=32, ffn=14336, micro_batch=2),
    replace(_USUAL, layers=16, sequence=4096, micro_batch=2, recompute="full"),
    replace(_USUAL, vocab=128256, layers=4, micro_batch=2),
    replace(_USUAL, micro_batch=2, micro_batches=2),
)
_SMALL = DecoderShape(
    layers=2, hidden=128, heads=4, kv_heads=4, ffn=352, vocab=1024, sequence=128, micro_batch=2
)
ON_HOST = (_SMALL, replace(_SMALL, layers=4, micro_batch=1), replace(_SMALL, recompute="full"))


class OneDevice:
    """The device at hand: CUDA, a NeuronCore, or the host."""

    def __init__(self, choice: str) -> None:
        import torch

        self.torch = torch
        kinds = {"cuda": torch.cuda.is_available, "neuron": self._has_neuron, "cpu": lambda: True}
        asked = list(kinds) if choice == "auto" else [choice]
        self.kind = next((kind for kind in asked if kinds[kind]()), "")
        if not self.kind:
            raise LookupError(f"PyTorch finds no {choice} device")
        self.xla: Any = None
        self.name = platform.processor() or platform.machine()
        self.place: Any = torch.device("cpu")
        if self.kind == "cuda":
            self.name, self.place = torch.cuda.get_device_name(0), torch.device("cuda", 0)
        elif self.kind == "neuron":
            import torch_xla.core.xla_model as xla_model

            self.xla, self.name, self.place = xla_model, "neuron", xla_model.xla_device()

    @staticmethod
    def _has_neuron() -> bool:
        from importlib.util import find_spec

        return find_spec("torch_neuronx") is not None

    def wait(self) -> None:
        """Return when all work is done."""
        if self.kind == "cuda":
            self.torch.cuda.synchronize()
        elif self.xla is not None:
            self.xla.mark_step()
            self.xla.wait_device_ops()

    def forget(self) -> None:
        """Free memory, and begin a new peak."""
        gc.collect()
        if self.kind == "cuda":
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def peak_gib(self) -> float | None:
        """Peak memory that tensors took, GiB, if the device tells."""
        return self.torch.cuda.max_memory_allocated() / GIB if self.kind == "cuda" else None


def plain_decoder(torch: Any, shape: DecoderShape) -> Any:  # noqa: ANN401
    """A Llama-like decoder in plain PyTorch; called with tokens, it gives the loss."""
    nn, functional = torch.nn, torch.nn.functional
    from torch.utils.checkpoint import checkpoint

    size = shape.hidden // shape.heads

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            width = size * shape.kv_heads
            self.before, self.between = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
            self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
            self.key = nn.Linear(shape.hidden, width, bias=False)
            self.value = nn.Linear(shape.hidden, width, bias=False)
            self.output = nn.Linear(shape.hidden, shape.hidden, bias=False)
            self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False)
            self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
            self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:  # noqa: ANN401
            normed = self.before(x)
            query, key, value = (
                part(normed).unflatten(-1, (-1, size)).transpose(1, 2)
                for part in (self.query, self.key, self.value)
            )
            query, key = turned(query, cosine, sine), turned(key, cosine, sine)
            context = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=shape.kv_heads != shape.heads
            )
            x = x + self.output(context.transpose(1, 2).flatten(2))
            normed = self.between(x)
            return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    def turned(x: Any, cosine: Any, sine: Any) -> Any:  # noqa: ANN401
        low, high = x.chunk(2, dim=-1)
        return (x * cosine + torch.cat((-high, low), dim=-1) * sine).to(x.dtype)

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape.vocab, shape.hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(shape.layers))
            self.last = nn.RMSNorm(shape.hidden)
            self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
            turns = 10000.0 ** (-torch.arange(0, size, 2) / size)
            angle = torch.outer(torch.arange(shape.sequence), turns).repeat(1, 2)
            self.register_buffer("cosine", angle.cos(), persistent=False)
            self.register_buffer("sine", angle.sin(), persistent=False)

        def forward(self, tokens: Any) -> Any:  # noqa: ANN401
            x = self.embedding(tokens)
            for layer in self.layers:
                if shape.recompute == "full":
                    x = checkpoint(layer, x, self.cosine, self.sine, use_reentrant=False)
                else:
                    x = layer(x, self.cosine, self.sine)
            logits = self.head(self.last(x)).float()
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Decoder()


def llama_of_transformers(shape: DecoderShape) -> Callable[[Any], Any]:
    """transformers' Llama of a shape; called with tokens, it gives the loss."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        max_position_embeddings=shape.sequence,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).train()
    if shape.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model  # type: ignore[no-any-return]


def measured(device: OneDevice, shape: DecoderShape, asked: argparse.Namespace) -> dict[str, Any]:
    """Time of a step and peak memory, by column."""
    torch, framework = device.torch, asked.framework
    device.forget()
    torch.manual_seed(asked.seed)
    # Weights are drawn where they are kept: a host takes seconds for them.
    with torch.device("cpu" if device.kind == "neuron" else device.place):
        built: Any = (
            plain_decoder(torch, shape) if framework == "torch" else llama_of_transformers(shape)
        )
    model = built.to(device.place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    batch = (shape.micro_batches, shape.micro_batch, shape.sequence)
    tokens = torch.randint(0, shape.vocab, batch).to(device.place)
    narrow = device.kind != "cpu"
    losses = []

    def step() -> None:
        whole = torch.zeros((), device=device.place)
        for part in tokens:
            kind = "xla" if device.kind == "neuron" else device.kind
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=narrow):
                loss = model(part) if framework == "torch" else model(part, labels=part).loss
            (loss / shape.micro_batches).backward()
            whole += loss.detach() / shape.micro_batches
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(whole)

    def taken_s() -> float:
        begun = time.perf_counter()
        step()
        device.wait()
        return time.perf_counter() - begun

    first = taken_s()
    for _ in range(_FIRST_STEPS - 1):
        taken_s()
    begun = time.perf_counter()
    blocks: list[float] = []
    while len(blocks) < _MOST and (
        len(blocks) < _FEWEST or time.perf_counter() - begun < asked.each_s
    ):
        blocks.append(statistics.median(taken_s() for _ in range(_BLOCK)))
    told = [float(loss) for loss in losses]
    sound = all(map(math.isfinite, told)) and told[-1] < told[0]
    return {
        "step_time_s": min(blocks),
        "spread": (max(blocks) - min(blocks)) / 2 / min(blocks),
        "repeats": len(blocks) * _BLOCK,
        "compile_s": first,
        "memory_gb": device.peak_gib(),
        "first_loss": told[0],
        "last_loss": told[-1],
        "check": 0.0 if sound else math.inf,
        "outcome": "measured",
    }


def row(
    device: OneDevice, framework: str, shape: DecoderShape, found: dict[str, Any]
) -> dict[str, str]:
    """A measured step as cells of evidence."""
    cells = {
        "kind": "train",
        "id": f"measured-{framework}-{shape.name}",
        "model": "measured-decoder",
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn": shape.ffn,
        "mlp": "swiglu",
        "vocab": shape.vocab,
        "tied": 0,
        "shape": shape.name,
        "seq": shape.sequence,
        "mbs": shape.micro_batch,
        "gbs": shape.micro_batch * shape.micro_batches,
        **dict.fromkeys(("tp", "pp", "dp"), 1),
        "zero": 0,
        "recompute": shape.recompute,
        "attention": "fused",
        "precision": "fp32" if device.kind == "cpu" else "bf16-autocast",
        "framework": "PyTorch" if framework == "torch" else "transformers",
        "release": release(framework),
        **found,
    }
    return {name: str(cell) for name, cell in cells.items() if cell is not None}


def release(framework: str) -> str:
    from importlib.metadata import version

    return version(framework)


def shared(device: OneDevice) -> dict[str, str]:
    """Cells of all rows: device, software, date."""
    names = ("CUDA_VISIBLE_DEVICES", "NEURON_CC_FLAGS", "PYTORCH_CUDA_ALLOC_CONF")
    return {
        "source": "trnbench measure steps",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "nodes": "1",
        "ranks": "1",
        "device": device.name,
        "backend": device.kind,
        "software": f"python {platform.python_version()}; torch {device.torch.__version__}",
        "cores": str(os.cpu_count()),
        "settings": " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ),
    }


def events(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the device, then each shape's row, or the reason why it has none."""
    begun = time.perf_counter()
    try:
        if asked.framework == "transformers":
            import transformers  # noqa: F401
        device = OneDevice(asked.device)
    except (ImportError, LookupError) as error:
        missing = f"{error.name} is not installed" if isinstance(error, ImportError) else str(error)
        hint = "pip install 'trnbench[torch]', or name another --device"
        yield {"event": "failed", "message": missing, "hint": hint, "exit_code": 3}
        return
    shapes: tuple[DecoderShape, ...] = ON_HOST if device.kind == "cpu" else ON_ACCELERATOR
    shapes = shapes[: _QUICK if asked.suite == "quick" else None]
    asked.each_s = _SHARE * asked.budget / len(shapes)
    cells = shared(device)
    yield {"event": "devices", "cells": cells, "remarks": []}
    for done, shape in enumerate(shapes):
        left_s = asked.budget - (time.perf_counter() - begun)
        if left_s <= 0:
            yield {"event": "budget", "left": [one.name for one in shapes[done:]]}
            return
        yield {"event": "next", "done": done, "total": len(shapes), "what": shape.name}
        try:
            found = measured(device, shape, asked)
        except device.torch.cuda.OutOfMemoryError:
            found = {"outcome": "crashed_or_oom"}
        yield {"event": "row", "cells": cells | row(device, asked.framework, shape, found)}
    yield {"event": "done"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Times training steps on one device.")
    parser.add_argument("--framework", choices=("torch", "transformers"), default="torch")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "neuron"), default="auto")
    parser.add_argument("--suite", choices=("quick", "full"), default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(2, sys.stdout.fileno())  # what libraries print is no event
    for event in events(parser.parse_args()):
        out.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    main()

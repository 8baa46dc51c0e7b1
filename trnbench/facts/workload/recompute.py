"""Activation recomputation: values of the knob, and their meaning.

    none            keep everything that the backward pass reads
    full            keep each layer's input; run the layer again
    full:4          the same in the first 4 layers of each pipeline stage (of each of its chunks)
    norms,...       in every layer, recompute the outputs of these modules

`selective` is the module attention-core alone. Modules are those of Megatron-LM's
--recompute-modules (layernorm, moe_act, mla_up_proj, core_attn), the layers its method `block`.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from trnbench.errors import did_you_mean

Module = Literal["attention-core", "norms", "activations", "up-projection"]
CORE: Module = "attention-core"
MODULES: tuple[Module, ...] = get_args(Module)
PlainRecompute = Literal["none", "selective", "full"]
PLAIN: tuple[PlainRecompute, ...] = get_args(PlainRecompute)
_SOME = "full:"
SOME_LAYERS = "some layers"


def recompute_named(text: str) -> str:
    """Canonical text of a mode; ValueError for an invalid text."""
    if text in PLAIN:
        return text
    if text.startswith(_SOME):
        number = text.removeprefix(_SOME)
        if not number.isascii() or not number.isdigit() or not 0 < int(number) < 10**6:
            raise ValueError(f"expects layers of a stage such as full:4, found {text!r}")
        return f"{_SOME}{int(number)}"
    named = [part.strip() for part in text.split(",")]
    for name in named:
        if name not in MODULES:
            modes = ", ".join((*PLAIN, "full:4", *MODULES))
            near = did_you_mean(name, (*PLAIN, *MODULES))
            raise ValueError(f"{name!r} is not one of {modes}{near}")
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise ValueError(f"names {twice!r} twice")
    return (
        "selective"
        if named == [CORE]
        else ",".join(module for module in MODULES if module in named)
    )


def modules_of(mode: str) -> tuple[Module, ...]:
    """Modules recomputed in layers that do not run again whole."""
    if mode == "selective":
        return (CORE,)
    if mode in PLAIN or mode.startswith(_SOME):
        return ()
    return cast("tuple[Module, ...]", tuple(mode.split(",")))


def repeated_layers(mode: str) -> int | None:
    """Layers of a chunk that run again whole; None without a limit."""
    return int(mode.removeprefix(_SOME)) if mode.startswith(_SOME) else None


def parts_of(mode: str) -> tuple[str, ...]:
    """Features that a mode needs: a plain mode, modules, or repetition of some layers."""
    if repeated_layers(mode) is not None:
        return (SOME_LAYERS,)
    return (mode,) if mode in PLAIN else modules_of(mode)


def of_layers(mode: str) -> str:
    """Mode of the remaining layers: none next to fully repeated ones."""
    return "none" if mode.startswith(_SOME) else mode


def without(mode: str, module: Module) -> str:
    """A mode without one of its modules."""
    left = [kept for kept in modules_of(mode) if kept != module]
    if len(left) == len(modules_of(mode)):
        return mode
    return recompute_named(",".join(left)) if left else "none"

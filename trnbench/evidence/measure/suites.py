"""Work of a suite by kind of device: products, streams, message sizes, small decoders.

`quick` takes minutes on a laptop, `full` longer. Sizes fit the device: a host computes a thousandth
of an accelerator, and where compiling a shape takes minutes, few are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.measure.device import Capabilities
from trnbench.facts import parsing
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.layout import AttentionKernel

KINDS = ("matrix", "collective", "train")
SuiteName = Literal["quick", "full"]
OPERATIONS: tuple[Op, ...] = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"),
)
"""Measured collectives."""
KIB, MIB = 1024, 1024**2
OperandOrder = Literal["NN", "NT", "TN"]
"""Transposition of a product's operands in memory, as in BLAS."""

DecoderSizes = Mapping[str, int | str]
"""Given fields of a `DecoderCase`."""

_COUNTS = (
    *("layers", "hidden", "heads", "ffn", "vocab", "micro_batch", "micro_batches", "tp"),
    "sequence",
)
_PRECISIONS = ("fp32", "bf16-master")
_WORDS: Mapping[str, Sequence[str]] = {
    "precision": _PRECISIONS,
    "attention": get_args(AttentionKernel),
}


class ProductCase(Record):
    """A matrix product on every device: `batch` products of m x k and k x n."""

    m: int
    k: int
    n: int
    batch: int = 1
    format: str
    order: OperandOrder = "NN"
    """NN forward, NT for input gradients, TN for weight gradients, equally many in a step."""

    @property
    def shape(self) -> str:
        text = f"M{self.m} K{self.k} N{self.n}"
        text = f"{text} B{self.batch}" if self.batch > 1 else text
        return text if self.order == "NN" else f"{text} {self.order}"

    @property
    def elements(self) -> int:
        return self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)


class DecoderCase(Record):
    """A small decoder and its layout over all devices."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    sequence: int
    micro_batch: int
    micro_batches: int
    tp: int
    dp: int
    precision: str
    attention: AttentionKernel = "naive"

    @property
    def devices(self) -> int:
        return self.tp * self.dp

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.micro_batches * self.dp

    @property
    def shape(self) -> str:
        return f"L{self.layers} {self.part} TP{self.tp} DP{self.dp}"

    @property
    def part(self) -> str:
        """Sizes of a layer on one device, as text."""
        heads, size = self.heads // self.tp, self.hidden // self.heads
        wide = f"H{self.hidden} N{heads} D{size} F{self.ffn // self.tp} V{self.vocab // self.tp}"
        return f"B{self.micro_batch} S{self.sequence} {wide}"


class Suite(Record):
    """Work of a suite; sizes in bytes per device."""

    products: tuple[ProductCase, ...]
    stream_bytes: tuple[int, ...]
    message_bytes: tuple[int, ...]
    groups: tuple[int, ...]
    decoders: tuple[DecoderCase, ...] = ()
    chained: int = 2
    """Number of the first decoders whose layer passes are timed alone."""


_TURNED: tuple[OperandOrder, ...] = ("NT", "TN")
_HOST = ((256, 256, 256), (512, 256, 768), (512, 768, 256), (512, 512, 512), (1024, 512, 2048))
_HOST_FULL = (*_HOST, (1024, 2048, 512), (1024, 1024, 1024), (2048, 2048, 2048), (64, 512, 512))
_HOST_CORE = ((256, 64, 256, 8), (256, 256, 64, 8))
_CHIP = ((4096, 4096, 4096), (8192, 1024, 8192), (8192, 8192, 1024), (8192, 8192, 8192))
_CHIP_FULL = (*_CHIP, (1024, 1024, 1024), (2048, 2048, 2048), (4096, 256, 4096), (256, 4096, 4096))
_CHIP_CORE = ((2048, 128, 2048, 32), (2048, 2048, 128, 32))


def suite_for(can: Capabilities, name: SuiteName) -> Suite:
    """The suite's work for these devices."""
    quick = name == "quick"
    whole = can.shares_host or not quick
    plain: tuple[tuple[int, int, int], ...]
    if can.shares_host:
        plain, core = _HOST if quick else _HOST_FULL, _HOST_CORE
        streams = (2 * MIB, 16 * MIB) if quick else (2 * MIB, 16 * MIB, 64 * MIB)
        messages = tuple(KIB * 4**i for i in range(0, 7 if quick else 8))
        formats = can.formats[:2] if quick else can.formats
    else:
        plain, core = _CHIP if quick or can.compiles_slowly else _CHIP_FULL, _CHIP_CORE
        streams = (64 * MIB, 1024 * MIB)
        messages = tuple(KIB * 4**i for i in range(0, 10 if quick else 11))
        formats = can.formats
    if can.compiles_slowly:
        messages = messages[::3]
    products = [
        ProductCase(m=m, k=k, n=n, format=number_format)
        for number_format in formats
        for m, k, n in plain[: None if whole else _few(number_format, can)]
    ]
    products += [
        ProductCase(m=m, k=k, n=n, batch=batch, format=can.training_format)
        for m, k, n, batch in core
    ]
    products += [
        ProductCase(m=m, k=k, n=n, format=can.training_format, order=order)
        for order in _TURNED
        for m, k, n in plain[1 : 3 if whole else 2]
    ]
    return Suite(
        products=tuple(products),
        stream_bytes=streams,
        message_bytes=messages,
        # Pairs, half and all of the devices; one device exchanges nothing.
        groups=tuple(
            sorted({n for n in (2, can.devices // 2, can.devices) if 2 <= n <= can.devices})
        ),
        decoders=decoders_for(can),
        chained=2 if whole else 1,
    )


def _few(number_format: str, can: Capabilities) -> int | None:
    """Number of shapes of a format in the quick suite of an accelerator; None for all."""
    if number_format == can.training_format:
        return None
    # Compilers try kernels of this slow format for ten seconds a shape.
    return 1 if number_format == "fp32" else 2


def decoders_for(can: Capabilities) -> tuple[DecoderCase, ...]:
    """Three small decoders that fit the devices, laid out in three ways."""
    devices = can.devices
    if can.shares_host:
        first = DecoderCase(
            layers=2,
            hidden=256,
            heads=4,
            ffn=768,
            vocab=2048,
            sequence=128,
            micro_batch=2,
            micro_batches=2,
            tp=1,
            dp=devices,
            precision="fp32",
        )
        wide = replace(first, hidden=384, heads=6, ffn=1024, sequence=256, micro_batch=1)
        deep = replace(first, layers=4, sequence=192)
    else:
        precision = "bf16-master" if can.training_format == "bf16" else "fp32"
        first = DecoderCase(
            layers=4,
            hidden=2048,
            heads=16,
            ffn=5632,
            vocab=32000,
            sequence=2048,
            micro_batch=2,
            micro_batches=2,
            tp=1,
            dp=devices,
            precision=precision,
        )
        wide = replace(first, hidden=4096, heads=32, ffn=11008, micro_batch=1)
        deep = replace(first, layers=8, sequence=4096, micro_batch=1)
    parted = replace(wide, tp=2, dp=devices // 2) if devices % 2 == 0 else wide
    return first, parted, deep


def decoder_sizes(text: str) -> DecoderSizes:
    """Sizes in a text such as `layers=4,hidden=512,tp=2`."""
    sizes: dict[str, int | str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        name = key.replace("-", "_")
        if not equals or not value:
            raise InputError(f"--decoder: expected NAME=VALUE, found {part!r}")
        if name not in _COUNTS and name not in _WORDS:
            keys = [key.replace("_", "-") for key in (*_COUNTS, *_WORDS)]
            raise UnknownNameError("size of a decoder", key, keys)
        if name in sizes:
            raise InputError(f"--decoder: {key} is given twice")
        what = f"--decoder: {key}"
        if name in _WORDS:
            sizes[name] = parsing.one_of(what, _WORDS[name])(value)
        else:
            kind = parsing.sequence if name == "sequence" else parsing.whole
            sizes[name] = kind(what)(value)
    return sizes


def with_given(suite: Suite, given: Sequence[DecoderSizes], can: Capabilities) -> Suite:
    if not given:
        return suite
    return replace(suite, decoders=tuple(_case(sizes, can) for sizes in given))


def _case(sizes: DecoderSizes, can: Capabilities) -> DecoderCase:
    """A decoder over all devices; missing sizes are those of the suite's first decoder."""
    values: dict[str, Any] = dict(sizes)
    tp = int(values.get("tp", 1))
    case = replace(decoders_for(can)[0], **values, dp=max(can.devices // tp, 1))
    parts = {"devices": can.devices, "heads": case.heads, "ffn": case.ffn, "vocab": case.vocab}
    for name, size in parts.items():
        if size % tp:
            raise InputError(f"--decoder: tp {tp} does not divide {name} {size}")
    if case.hidden % (2 * case.heads):
        raise InputError(
            f"--decoder: hidden {case.hidden} is not an even number for each of {case.heads} heads"
        )
    return case

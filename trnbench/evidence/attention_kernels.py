"""Fused attention on NeuronCores timed alone: the call of a row, and its closed-form time.

A row's text gives heads, sequences and cores; of a kernel search only the last step counts.
Products in fp32 do not occur in training, and a kernel without a part of attention is another
kernel. A bound asserted by a test is compared as if measured, and listed as assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from trnbench.engines.analytic.step.compute import attention_time_s
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.memo import Memo
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, State, check_sizes, field
from trnbench.machine.tiling.attention import AttentionCall
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import END, TIED, chip_ranges, chip_with
from trnbench.predict.sampling import SAMPLES, interval
from trnbench.program.ops import AttentionOp
from trnbench.program.tensor import Dim, Tensor, array

KERNEL_SCATTER = 0.12
"""Log standard deviation of a kernel's time about its chip's common numbers."""
BOUND = "the bound that a test asserts, as if it were the time"
_PARTIAL = "not attention of any input"
"""Beginning of a note on a part missing from the kernel."""
_NAMES = ("attention", "attn", "flash", "gqa")
_FLASH = ("flash", "attention_cte")
_CHIP = re.compile(r"trn(\d)(?:/inf\d)?(?:\s|$)")
_CORES = re.compile(r"^(\d)|LNC(\d)")
_FORMAT = re.compile(r"(\w+)(?:\?)? (?:products|matmul)")
_FIRST_FORMAT = re.compile(r"\w+")
_SEARCH_STEP = re.compile(r"(.+)-step(\d+)$")
_FIRST = "-first"
_TILE = re.compile(r"seq_tile (\d+)")
_SIZES = {
    "batch": re.compile(r"\b(?:bs|batch |B: )(\d+)"),
    "heads": re.compile(r"(\d+) heads?\b|\bbatch x heads (\d+)|\bQH: (\d+)"),
    "queries": re.compile(r"\bq(\d+)\b"),
    "keys": re.compile(r"\bk(\d+)\b"),
    "sequence": re.compile(r"\b(?:seq|S|N: )(\d+)"),
    "head_size": re.compile(r"\b(?:d|d_head|D: )(\d+)\b"),
    "window": re.compile(r"sliding window (\d+)"),
    "kv_heads": re.compile(r"(\d+) KV heads|\bKH: (\d+)"),
}
"""Pattern of each size in a row's shape and notes."""


class TimedAttention(Record):
    """A timed call of fused attention on `cores` of a chip, and its assumptions."""

    chip: str
    cores: int
    batch: int
    """Sequences; heads and queries are per sequence."""
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    causal: bool
    backward: bool
    number_format: str
    window: int | None = None
    """Keys visible to a query."""
    tile_keys: int | None = None
    """Tile width, keys, by which causally masked keys are skipped, if stated."""
    flash: bool = False
    """True when keys are processed in tiles, for sequences of any length."""
    bound: bool = False
    """True when the time is an asserted bound."""
    assumed: tuple[str, ...] = ()

    @property
    def call(self) -> AttentionCall:
        """The call for the emulator."""
        return AttentionCall(
            queries=self.queries,
            keys=self.keys,
            heads=self.batch * self.heads,
            kv_heads=self.batch * self.kv_heads,
            score_size=self.head_size,
            value_size=self.head_size,
            number_format=self.number_format,
            causal=self.causal,
            window=self.window,
            backward=self.backward,
        )

    @property
    def op(self) -> AttentionOp:
        """The call as an operation of a training step."""
        query = self._tensor("query", self.queries, self.heads)
        key, value = (self._tensor(name, self.keys, self.kv_heads) for name in ("key", "value"))
        context = self._tensor("context", self.queries, self.heads)
        forward = (query, key, value)
        pairs = array(self.queries * self.keys)
        if self.causal:
            seen = min(self.window or self.keys, self.keys)
            # A causal query sees at most `seen` keys; the first `seen` queries see half of them on
            # average.
            pairs = array(seen * self.queries - seen**2 / 2)
        return AttentionOp(
            name="attention",
            phase="B_input" if self.backward else "F",
            reads=(*forward, context, context) if self.backward else forward,
            writes=forward if self.backward else (context,),
            pairs=pairs,
            whole_pairs=pairs,
            causal=self.causal,
            window=self.window,
            format=self.number_format,
        )

    def _tensor(self, name: str, tokens: int, heads: int) -> Tensor:
        sizes = {"batch": self.batch, "token": tokens, "head": heads, "size": self.head_size}
        dims = (
            Dim(name=of, size=array(size), factors=(array(size),)) for of, size in sizes.items()
        )
        return Tensor(name=name, dims=tuple(dims), format=self.number_format)

    def times_s(self, chip: Chip, efficiency: ChipEfficiency) -> FloatArray:
        """The closed form's time by the chip's attention numbers, s; a row for samples."""
        if np.max(efficiency.attention_forward_share) == 0:
            raise RowFault(f"no attention kernel of {chip.name} was timed")
        keys = efficiency.attention_keys if self.tile_keys is None else float(self.tile_keys)
        known = alone(
            efficiency,
            attention_forward_share=efficiency.attention_forward_share,
            attention_backward_share=efficiency.attention_backward_share,
            attention_forward_keys=keys,
            attention_backward_keys=keys,
        )
        tiles_s = attention_time_s(self.op, chip, known, logical_size=self.cores)
        rows_s = self._rows(chip) * efficiency.attention_row_s
        return np.asarray(efficiency.attention_call_s + rows_s + tiles_s)

    def _rows(self, chip: Chip) -> int:
        assert isinstance(chip.unit, NeuronCores)
        heads = -(-self.batch * self.heads // self.cores)
        return heads * -(-self.queries // chip.unit.tensor.rows)


class TimedKernel(Protocol):
    """A kernel whose time follows from its chip's numbers."""

    def times_s(self, chip: Chip, efficiency: ChipEfficiency) -> FloatArray:
        """Time by a chip's numbers, s; a row for samples."""
        ...


class TimedChip(Record, eq=False):
    """A chip with its efficiency, as kernels on it are timed."""

    chip: Chip
    efficiency: ChipEfficiency
    drawn: ChipEfficiency
    """The efficiency with rows of samples; each begins with the number itself."""


class TimedChips(State, kw_only=False):
    """The chips of a catalogue, whose numbers all kernels of a file share."""

    catalog: Catalog
    _known: Memo[str, TimedChip] = field(default_factory=Memo)

    def of(self, name: str) -> TimedChip:
        return self._known.of(name, lambda: self._of(name))

    def _of(self, name: str) -> TimedChip:
        efficiency = load_chip_efficiency(self.catalog, name)
        return TimedChip(
            chip=load_chip(self.catalog, name), efficiency=efficiency, drawn=sampled(efficiency)
        )


def sampled(efficiency: ChipEfficiency) -> ChipEfficiency:
    """A chip's efficiency with a row for each uncertain number: itself, then its samples."""
    draws, rows = CommonDraws(count=SAMPLES), {}
    for key, known in chip_ranges(efficiency).items():
        name = TIED.get(key, key)
        rows[key] = np.append(known.value, draws.of(name, known))
    return chip_with(efficiency, rows)


def interval_s(
    kernel: TimedKernel, on: TimedChip, *, scatter: float = KERNEL_SCATTER
) -> tuple[float, float, float]:
    """Closed-form time and the ends of its 80 % interval, s.

    The interval covers the scatter between kernels and the uncertainty of the chip's numbers.
    """
    times_s = np.atleast_1d(kernel.times_s(on.chip, on.drawn))
    reach = math.exp(END * scatter)
    # Single kernels may be faster than the chip's common numbers, so nothing bounds them here.
    bounded = np.append(times_s, 0.0)
    return float(times_s[0]), *interval(bounded, Spread(low=1 / reach, high=reach))


def is_attention(row: EvidenceRow) -> bool:
    return any(name in row.text("kernel").lower() for name in _NAMES)


def chip_of(row: EvidenceRow) -> str | None:
    """Name of the chip in a row's hardware; None for other hardware."""
    found = _CHIP.match(row.needed("hardware"))
    return f"trainium{found[1]}" if found else None


def attention_kernel(row: EvidenceRow, rows: Sequence[EvidenceRow]) -> TimedAttention:
    """The attention kernel timed by a row; RowFault if unusable.

    `rows` are all rows of its file.
    """
    name, notes = row.text("kernel"), row.text("notes")
    if notes.startswith(_PARTIAL):
        raise RowFault(notes)
    _refuse_step(row, rows)
    dtype = row.needed("dtype")
    found = _FORMAT.search(dtype) or _FIRST_FORMAT.search(dtype)
    number_format = format_named(found[found.lastindex or 0]).name if found else dtype
    if format_named(number_format).bits > 16:
        raise RowFault(f"multiplies in {number_format}, which training does not")
    sizes = _sizes(row)
    causal = "causal" in name and "non-causal" not in name
    if causal and sizes["queries"] != sizes["keys"]:
        raise RowFault("causal over other keys than queries: which of them it sees is not said")
    cores = _CORES.search(row.text("cores_used"))
    chip = chip_of(row)
    tile = _TILE.search(name)
    bound = "bound" in row.text("latency_stat").lower() or "p99 <=" in row.text("latency_stat")
    if cores is None or chip is None:
        raise RowFault("on which chip and how many of its cores is not said")
    told = row.text("cores_used").lower().startswith("not stated")
    timed = TimedAttention(
        chip=chip,
        cores=int(cores[1] or cores[2]),
        number_format=number_format,
        causal=causal,
        backward="bwd" in name or "backward" in name,
        tile_keys=int(tile[1]) if tile else None,
        flash=any(word in name for word in _FLASH),
        bound=bound,
        assumed=(*((BOUND,) if bound else ()), *(("cores: the default",) if told else ())),
        **sizes,
    )
    try:
        check_sizes(timed)
    except ValueError as fault:
        raise RowFault(str(fault)) from fault
    return timed


def _refuse_step(row: EvidenceRow, rows: Sequence[EvidenceRow]) -> None:
    """Refuse intermediate steps of a kernel search, which are not good kernels."""
    step = _SEARCH_STEP.match(row.id)
    steps = [found for other in rows if (found := _SEARCH_STEP.match(other.id))]
    last = step and max(int(other[2]) for other in steps if other[1] == step[1])
    if row.id.endswith(_FIRST) or (step and int(step[2]) != last):
        raise RowFault("intermediate result of a kernel search; only the last is compared")


def _sizes(row: EvidenceRow) -> dict[str, int]:
    """The sizes of a call by the names of its record."""
    shape = row.needed("shape")
    said: dict[str, int] = {}
    for name, pattern in _SIZES.items():
        text = row.text("notes") if name in ("window", "kv_heads") else shape
        found = pattern.search(shape) or pattern.search(text)
        if found:
            said[name] = int(next(group for group in found.groups() if group))
    sequence = said.pop("sequence", None)
    for name in ("queries", "keys"):
        if sequence is not None:
            said.setdefault(name, sequence)
    if not {"queries", "keys", "head_size"} <= set(said):
        raise RowFault(f"shape: {shape!r} does not give queries, keys and the size of a head")
    said.setdefault("batch", 1)
    said.setdefault("heads", 1)
    said.setdefault("kv_heads", said["heads"])
    return said

"""Fused attention on NeuronCores timed by itself: what a row ran, and its closed form's time.

A row's text names heads, sequences and cores; of a search for a good kernel the last step counts,
as for products. What multiplies in fp32 is not what training runs, and a kernel that leaves out a
part of attention is another one. A bound that a test asserts is at least the time: it is compared
as if it were one, and said to be assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from trnbench.engines.analytic.step.compute import attention_time_s
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.training_stack import Spread
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.facts.workload.sizes import check_sizes
from trnbench.machine.tiling.attention import AttentionCall
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import END, TIED, chip_ranges, chip_with
from trnbench.predict.sampling import SAMPLES, interval
from trnbench.program.ops import AttentionOp
from trnbench.program.tensor import Dim, Tensor, array

KERNEL_SCATTER = 0.12
"""Standard deviation of the logarithm of a kernel's time about what its chip's take alike."""
BOUND = "the bound that a test asserts, as if it were the time"
_PARTIAL = "not attention of any input"
"""So begins a note that tells what a kernel leaves out."""
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
"""What of a row's shape and notes tells each size."""


class TimedAttention(Record):
    """A timed call of fused attention on `cores` of a chip, and what its row leaves open.

    Sizes are those of the call: sequences, query and key/value heads of each, queries and keys of a
    sequence, numbers of a head. `tile_keys`: of so many keys at once it skips what a causal mask
    hides, where the row says; `window`: how many keys a query sees. `flash`: it goes over keys in
    pieces, so that it takes sequences of any length. `bound`: the time is a bound.
    """

    chip: str
    cores: int
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    causal: bool
    backward: bool
    number_format: str
    window: int | None = None
    tile_keys: int | None = None
    flash: bool = False
    bound: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def call(self) -> AttentionCall:
        """The call as instructions play it."""
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
        """The call as a training step has it."""
        query = self._tensor("query", self.queries, self.heads)
        key, value = (self._tensor(name, self.keys, self.kv_heads) for name in ("key", "value"))
        context = self._tensor("context", self.queries, self.heads)
        forward = (query, key, value)
        pairs = array(self.queries * self.keys)
        if self.causal:
            seen = min(self.window or self.keys, self.keys)
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
        dims = (Dim(name=of, size=array(size), whole=array(size)) for of, size in sizes.items())
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


def interval_s(
    kernel: TimedAttention, chip: Chip, efficiency: ChipEfficiency
) -> tuple[float, float, float]:
    """The closed form's time and the ends of its 80 % interval, s.

    One kernel of a chip differs from another as kernels do, and the chip's numbers are not sure.
    """
    draws, rows = CommonDraws(count=SAMPLES), {}
    for key, known in chip_ranges(efficiency).items():
        name = TIED.get(key, key)
        rows[key] = np.concatenate([[known.value], draws.of(name, known)])
    times_s = np.atleast_1d(kernel.times_s(chip, chip_with(efficiency, rows)))
    reach = math.exp(END * KERNEL_SCATTER)
    return float(times_s[0]), *interval(times_s, Spread(low=1 / reach, high=reach))


def is_attention(row: EvidenceRow) -> bool:
    """True when a row's kernel is attention."""
    return any(name in row.text("kernel").lower() for name in _NAMES)


def chip_of(row: EvidenceRow) -> str | None:
    """The chip that a row's hardware is, by name; None of hardware called otherwise."""
    found = _CHIP.match(row.needed("hardware"))
    return f"trainium{found[1]}" if found else None


def attention_kernel(row: EvidenceRow, rows: Sequence[EvidenceRow]) -> TimedAttention:
    """The attention kernel that a row timed; raise RowFault where that is none to compare.

    `rows` are those of its file.
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
    """Refuse a step on the way of a search, whose last one alone is a good kernel."""
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

"""The time of a matrix kernel on one NeuronCore in closed form, over arrays of shapes.

Model: output blocks follow each other. While one is computed the next is loaded and the one before
is stored, so a block takes the longer of its computing and of its transfers. Outside of that stand
the first loads, which nothing hides, and the evacuation and the stores that follow the last
product. Computing is the longer of multiplying and of evacuating; where only partial sums take
longer to add than to multiply, the PSUM banks let the tensor engine run ahead.
"""

from __future__ import annotations

import numpy as np

from trnbench.analytic.matrix.parts import ColumnBlock, Parts, RowBlock, parts_of
from trnbench.arrays import BoolArray, FloatArray, Number
from trnbench.costs.instructions import Instructions
from trnbench.mapping.tiling.schedule import KernelSchedule
from trnbench.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoreTime:
    """Seconds of a core: the whole, what engines are busy with, what the longest leaves; bytes."""

    time_s: FloatArray
    tensor_s: FloatArray
    weights_s: FloatArray
    evacuation_s: FloatArray
    dma_s: FloatArray
    trigger_s: FloatArray
    fixed_s: FloatArray
    read_bytes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _RowTime:
    """Computing a row of output tiles: all, before its last block of K, that block's parts.

    While sums are added more slowly than they are multiplied, the banks let the tensor engine run
    up to `ahead_s` ahead, as far as the first block of K leaves `spare_s` to catch up in.
    """

    multiply_s: FloatArray
    before_s: FloatArray
    last_multiply_s: FloatArray
    last_evacuate_s: FloatArray
    last_s: FloatArray
    spare_s: FloatArray
    ahead_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """An output block among others: its time, what the time is made of, transposes of a K tile."""

    time_s: FloatArray
    compute_s: FloatArray
    load_s: FloatArray
    store_s: FloatArray
    turn_s: Number


@dataclass(frozen=True, slots=True, eq=False)
class _Pace:
    """What all windows of a schedule share."""

    k_tiles: FloatArray
    loaded_k_tiles: FloatArray
    trigger_s: float
    turn_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Traffic:
    """How often each operand is read."""

    reads_a: Number
    reads_b: Number


def core_time(s: KernelSchedule, costs: Instructions, banks: int) -> CoreTime:
    """Return the time of each product of the schedule on one core with so many PSUM banks."""
    parts = parts_of(s, costs)
    pace = _Pace(
        s.k_tiles,
        parts.k_tiles,
        costs.generation_s,
        max(parts.turn_multiply_s, parts.turn_copy_s),
    )
    if s.kernel == "blocked":
        time_s = _blocked(s, parts, pace, costs.start_latency_s, banks)
        several = np.minimum(s.k_blocks - 1, 1.0)
        moves = np.minimum(s.k_blocks - 1 + s.m_blocks - 1, 1.0)
        traffic = _Traffic(1.0 + moves * (s.n_blocks - 1), 1.0 + several * (s.m_blocks - 1))
    else:
        time_s = _streamed(s, parts, pace, costs.start_latency_s, banks)
        traffic = _Traffic(s.n_blocks if s.reload_a else 1.0, s.m_blocks)
    return _with_totals(s, parts, costs, time_s, traffic)


def _blocked(s: KernelSchedule, p: Parts, pace: _Pace, latency_s: float, banks: int) -> FloatArray:
    """Return the time of blocks of N, of M inside them, of K inside those."""
    several = np.minimum(s.k_blocks - 1, 1.0)
    across, down = s.n_blocks - 1, s.m_blocks - 1
    moves = np.maximum(several, np.minimum(down, 1.0))
    row, last_row = _row_time(s, p.n, several, banks), _row_time(s, p.last_n, several, banks)
    full = _window(p.m, p.n, row, pace, 1.0, several)
    bottom = _window(p.last_m, p.n, row, pace, moves, 1.0)
    right = _window(p.m, p.last_n, last_row, pace, 1.0, several)
    corner = _window(p.last_m, p.last_n, last_row, pace, 1.0, 1.0)
    windows = across * down * full.time_s + across * bottom.time_s + down * right.time_s
    windows = s.batch * windows + (s.batch - 1) * corner.time_s

    # Where M has one block, K too, and `a` stays, only the ragged last block of N is loaded while
    # the one before it is computed.
    one_row, one_column = down == 0, across == 0
    ragged = _loading(bottom, p.last_n, pace)
    ragged = _choose((moves == 0) & ~one_column, ragged, bottom)
    windows = windows + s.batch * (ragged.time_s - bottom.time_s)

    # The first window has nothing to store yet, and its first chain of products starts early.
    alone = one_row & one_column
    many = np.minimum(across + down + (s.batch - 1), 1.0)
    early = (s.block_k - 1) * _while_loading(s, p, pace)
    before = _choose(alone, corner, _choose(one_row, ragged, right))
    first = _choose(one_row & (across > 1), bottom, _choose(one_row | one_column, before, full))
    windows = windows - many * (first.time_s - np.maximum(first.compute_s - early, first.load_s))
    # Loads run two blocks ahead, so they become ready before stores of the block just computed.
    more = np.minimum(np.maximum(s.batch * s.n_blocks * s.m_blocks - 2, 0.0), 1.0)
    deferred = more * (before.time_s - np.maximum(before.compute_s, before.load_s))
    windows = windows - deferred

    fill = _fill(s, p, pace, several)
    end = _end(
        s, p, pace, last_row, _Last(corner, before, several, many, early, deferred), latency_s
    )
    # One sequencer triggers every row's store, from the first row on.
    triggers = s.batch * (down * p.m.count + p.last_m.count) * pace.trigger_s
    last_trigger = (
        np.maximum(0.0, last_row.last_s - early)
        + triggers
        + latency_s
        + p.last_row * p.last_n.store_s
    )
    return latency_s + fill + np.maximum(windows + end, last_trigger)


@dataclass(frozen=True, slots=True, eq=False)
class _Last:
    """The last block and the one before it.

    `several`: 1 if a block has more than one step; `many`: 1 if there is more than one block;
    `early_s`: how long before its loads end the first step of all can begin to compute;
    `deferred_s`: stores of blocks before that loads went ahead of.
    """

    block: _Window
    before: _Window
    several: FloatArray
    many: FloatArray
    early_s: FloatArray
    deferred_s: FloatArray


def _fill(s: KernelSchedule, p: Parts, pace: _Pace, several: FloatArray) -> FloatArray:
    """Return the seconds of the first step's loads; each starts when it has been triggered."""
    loads = p.k_tiles + several * (s.block_k - p.k_tiles)
    a, b = p.m.load.transfer_s, p.n.load.transfer_s
    triggered = s.block_k * (2 * pace.trigger_s) + np.minimum(p.k_tiles, 1.0) * b
    return np.maximum(pace.trigger_s + loads * (a + b), triggered)


def _end(
    s: KernelSchedule, p: Parts, pace: _Pace, row: _RowTime, last: _Last, latency_s: float
) -> FloatArray:
    """Return the time from the end of the last window to the end of the last store.

    The last block starts computing when the window before it ends, less what its first chain of
    products (or its transposes) did while the last of its loads came in. Its rows are then stored
    as they get done, unless the DMA engines or their trigger are behind.
    """
    several, many, single = last.several, last.many, 1.0 - last.several
    rows, store = p.last_m.count, p.last_n.store_s
    lead = (s.last_k - 1) * _while_loading(s, p, pace)
    arrived = last.block.load_s * (several * (1 - s.block_k / s.k_tiles))
    reached = row.before_s * rows + (s.k_tiles - s.last_k) * last.block.turn_s
    reached = reached - (1.0 - many) * last.early_s
    waits = several * (arrived - reached)
    waits = waits + single * many * (last.before.load_s - last.before.compute_s)
    lead = np.minimum(np.maximum(waits, 0.0) + single * (1.0 - many) * lead, lead)
    begin = several * np.maximum(reached, arrived) + s.last_k * last.block.turn_s - lead
    last_copy = single * p.copy_s + several * p.add_s
    busy = np.maximum(
        rows * row.last_multiply_s + last_copy, rows * row.last_evacuate_s + p.multiply_s
    )
    pending = np.maximum(0.0, (rows - 1) * (np.maximum(store, pace.trigger_s) - row.last_s))
    finish = begin + busy + (pace.trigger_s + latency_s) + p.last_row * store + pending

    idle = np.maximum(0.0, last.before.compute_s - last.before.load_s)
    stored = last.before.store_s
    stored = last.deferred_s + many * (stored - np.minimum(idle, stored * (1 - 1 / rows)))
    return np.maximum(finish, arrived + stored + (rows - 1 + p.last_row) * store)


def _loading(window: _Window, columns: ColumnBlock, pace: _Pace) -> _Window:
    """Return the window with nothing loaded in it but this block of `b`."""
    transfers = columns.load.transfer_s
    compute, stores, turn = window.compute_s, window.store_s, window.turn_s
    return _overlapped(compute, transfers, pace.trigger_s, stores, turn, pace)


def _choose(when: BoolArray, this: _Window, other: _Window) -> _Window:
    def either(one: FloatArray, two: FloatArray) -> FloatArray:
        return one if one is two else np.where(when, one, two)

    return _Window(
        either(this.time_s, other.time_s),
        either(this.compute_s, other.compute_s),
        either(this.load_s, other.load_s),
        either(this.store_s, other.store_s),
        this.turn_s,
    )


def _streamed(s: KernelSchedule, p: Parts, pace: _Pace, latency_s: float, banks: int) -> FloatArray:
    """Return the time of kernels that keep the whole contraction of an output block in PSUM.

    Rows of output wait for each other where few have room, and without a second buffer for a block
    of `a` its loading hides behind nothing.
    """
    none = np.zeros(())
    always = 1.0 if s.reload_a else 0.0
    exposed = (1.0 - always) * (s.slots_a < 2 * s.k_tiles) * s.k_tiles
    last_row = _row_time(s, p.last_n, none, banks)
    kept_s = p.copy_s + pace.trigger_s + latency_s + p.last_n.store_s
    total: FloatArray | float = 0.0
    for rows, down in ((p.m, s.m_blocks - 1), (p.last_m, 1.0)):
        output_s = rows.count * kept_s / s.output_rows
        again = _window(rows, p.n, _row_time(s, p.n, none, banks), pace, always, 1.0)
        new = _window(rows, p.last_n, last_row, pace, 1.0, 1.0)
        total = total + down * (s.n_blocks - 1) * np.maximum(again.time_s, output_s)
        # Buffers come free one by one while the last chain of products goes through them.
        alone_s = np.maximum(exposed * rows.load.transfer_s - s.k_tiles * p.multiply_s, 0.0)
        new_s = np.maximum(new.time_s, new.compute_s + alone_s)
        total = total + down * np.maximum(new_s, output_s)
    loads_bind = new.compute_s < new.load_s
    first = np.where(loads_bind, 0.0, p.m.load.transfer_s + p.n.load.transfer_s)
    drain = np.where(loads_bind, 0.0, p.last_n.store_s) + p.multiply_s + p.copy_s
    return 2 * (latency_s + pace.trigger_s) + first + s.batch * total + drain


def _row_time(s: KernelSchedule, columns: ColumnBlock, several: FloatArray, banks: int) -> _RowTime:
    """Return the seconds of computing a row of output tiles.

    The first block of K is copied out, the others (`several`: 1 if there are any) are added.
    """
    copy, add = columns.copy_s, columns.add_s
    multiply = s.block_k * columns.multiply_s
    last_multiply = s.last_k * columns.multiply_s
    first, middle = np.maximum(multiply, copy), np.maximum(multiply, add)
    last_evacuate = copy + several * (add - copy)
    slower = several * (add > last_multiply)
    return _RowTime(
        multiply_s=s.k_tiles * columns.multiply_s,
        before_s=several * (first + (s.k_blocks - 2) * middle),
        last_multiply_s=last_multiply,
        last_evacuate_s=last_evacuate,
        last_s=np.maximum(last_multiply, last_evacuate),
        spare_s=np.maximum(0.0, multiply - copy),
        ahead_s=slower * ((banks - 1) * add / columns.tiles),
    )


def _window(
    rows: RowBlock, columns: ColumnBlock, row: _RowTime, pace: _Pace, a: Number, b: Number
) -> _Window:
    """Return the seconds of a block while `a` and `b` are loaded (1 or 0 times) for the next.

    Loads and stores share the DMA engines; each has a sequencer of its own that triggers them.
    """
    count = rows.count
    slow = count * (row.before_s + row.last_s) - np.minimum(row.ahead_s, count * row.spare_s)
    compute = np.maximum(count * row.multiply_s, slow)
    turn = (a * rows.load.turns + b * columns.load.turns) * pace.turn_s
    compute = compute + pace.k_tiles * turn
    transfers = a * rows.load.transfer_s + b * columns.load.transfer_s
    triggers = (a * rows.load.transfers + b * columns.load.transfers) * pace.trigger_s
    return _overlapped(compute, transfers, triggers, rows.stores * columns.store_s, turn, pace)


def _overlapped(
    compute: FloatArray,
    transfers: FloatArray,
    triggers: Number,
    stores: FloatArray,
    turn: Number,
    pace: _Pace,
) -> _Window:
    """Return the window of computing, of transfers and triggers per K tile loaded, of stores."""
    loads = pace.loaded_k_tiles * np.maximum(transfers, triggers)
    unstored = np.maximum(compute, loads)
    time_s = np.maximum(unstored, pace.loaded_k_tiles * transfers + stores)
    return _Window(time_s, compute, loads, stores, turn)


def _while_loading(s: KernelSchedule, p: Parts, pace: _Pace) -> FloatArray:
    """Return the seconds the tensor engine works on a K tile while the next one is loaded."""
    transfers = p.last_m.load.transfer_s + p.last_n.load.transfer_s
    transfers = np.maximum(transfers, 2 * pace.trigger_s)
    if s.a.turned or s.b.turned:
        turns = p.last_m.load.turns + p.last_n.load.turns
        return np.minimum(transfers, turns * pace.turn_s)
    return np.minimum(transfers, p.multiply_s)


def _with_totals(
    s: KernelSchedule, p: Parts, costs: Instructions, time_s: FloatArray, traffic: _Traffic
) -> CoreTime:
    """Return the time with what each engine is busy in all, and the bytes at memory."""
    across, down, batch = s.n_blocks - 1, s.m_blocks - 1, s.batch
    rows = down * p.m.count + p.last_m.count
    products = rows * s.k_tiles * batch
    multiply = across * p.n.multiply_s + p.last_n.multiply_s
    evacuate = across * p.n.copy_s + p.last_n.copy_s
    evacuate = evacuate + (s.k_blocks - 1) * (across * p.n.add_s + p.last_n.add_s)
    columns = across * p.n.tiles + p.last_n.tiles
    weights = costs.weight_load_cycles(np.minimum(s.m, s.tile.m)) * (1 / costs.tensor_clock_hz)
    load_a = traffic.reads_a * (down * p.m.load.transfer_s + p.last_m.load.transfer_s)
    load_b = traffic.reads_b * (across * p.n.load.transfer_s + p.last_n.load.transfer_s)
    stores = (down * p.m.stores + p.last_m.stores) * (across * p.n.store_s + p.last_n.store_s)
    triggers = traffic.reads_a * (down * p.m.load.transfers + p.last_m.load.transfers)
    triggers = triggers + traffic.reads_b * (across * p.n.load.transfers + p.last_n.load.transfers)
    turns = traffic.reads_a * (down * p.m.load.turns + p.last_m.load.turns)
    turns = turns + traffic.reads_b * (across * p.n.load.turns + p.last_n.load.turns)
    per_k = batch * s.k_tiles
    tensor_s = products * multiply + per_k * turns * p.turn_multiply_s
    evacuation_s = batch * rows * evacuate + per_k * turns * p.turn_copy_s
    dma_s = batch * (p.k_tiles * (load_a + load_b) + stores)
    trigger_s = per_k * triggers * costs.generation_s
    busiest = np.maximum(np.maximum(tensor_s, evacuation_s), np.maximum(dma_s, trigger_s))
    time_s = np.maximum(time_s, busiest)
    bytes_a = traffic.reads_a * s.m * s.a.dense_bytes
    bytes_b = traffic.reads_b * s.n * s.b.dense_bytes
    return CoreTime(
        time_s=time_s,
        tensor_s=tensor_s,
        weights_s=products * columns * weights,
        evacuation_s=evacuation_s,
        dma_s=dma_s,
        trigger_s=trigger_s,
        fixed_s=time_s - busiest,
        read_bytes=batch * s.k * (bytes_a + bytes_b),
    )

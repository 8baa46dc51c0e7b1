"""Seconds of a matrix kernel on one NeuronCore in closed form, over arrays of shapes.

Model: output blocks follow each other. While one is computed the next is loaded and the one before
is stored, so a block takes the longer of its computing and of its transfers. Three times come on
top: the first loads, which nothing hides, and the evacuation and the stores that follow the last
product. Computing is the longer of multiplying and of evacuating; where only partial sums take
longer to add than to multiply, the PSUM banks let the tensor engine run ahead.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.analytic.matrix.parts import ColumnBlock, Loads, Parts, RowBlock, parts_of
from trnbench.facts.arrays import FloatArray, Number
from trnbench.facts.records import Record, replace
from trnbench.machine.costs.instructions import Instructions
from trnbench.machine.tiling.schedule import KernelSchedule


class CoreTime(Record, eq=False):
    """Seconds of a core: the whole, and the busy seconds of each engine; bytes read at memory."""

    time_s: FloatArray
    tensor_s: FloatArray
    weights_s: FloatArray
    evacuation_s: FloatArray
    dma_s: FloatArray
    trigger_s: FloatArray
    fixed_s: FloatArray  # Seconds of the whole in which the busiest engine is idle
    read_bytes: FloatArray


class _Core(Record, kw_only=False, eq=False):
    """A schedule on a core: its parts, and what all its windows share."""

    s: KernelSchedule
    p: Parts
    single: bool  # True where there is no batch
    several: FloatArray  # 1 where a block has more than one step, else 0
    banks: int
    latency_s: float
    trigger_s: float
    turn_s: float  # Seconds of a transpose, 0 where no operand is transposed

    def of_batch(self, each: FloatArray) -> FloatArray:
        return each if self.single else self.s.batch * each


class _RowTime(Record, kw_only=False, eq=False):
    """Seconds of a row of output tiles: all, before its last block of K, and that block's parts."""

    multiply_s: FloatArray
    chain_s: FloatArray
    before_s: FloatArray
    last_multiply_s: FloatArray
    last_evacuate_s: FloatArray
    last_s: FloatArray
    spare_s: FloatArray  # Seconds that the first block of K leaves to catch up in
    ahead_s: FloatArray
    """Seconds that PSUM banks let the tensor engine run ahead, while sums are slower than products.
    """


class _Window(Record, kw_only=False, eq=False):
    """Seconds of an output block between others, and their parts."""

    time_s: FloatArray
    compute_s: FloatArray
    load_s: FloatArray
    store_s: FloatArray

    def first_saves_s(self, early_s: FloatArray) -> FloatArray:
        """Seconds saved by the first window: it stores nothing, and computing starts early."""
        return self.time_s - np.maximum(self.compute_s - early_s, self.load_s)


def core_time(s: KernelSchedule, costs: Instructions, banks: int) -> CoreTime:
    """Seconds of each product of the schedule on one core with this many PSUM banks."""
    p = parts_of(s, costs)
    blocked = s.kernel == "blocked"
    core = _Core(
        s,
        p,
        s.batch.ndim == 0 and bool(s.batch == 1),
        np.minimum(p.steps, 1.0) if blocked else np.zeros(()),
        banks,
        costs.start_latency_s,
        costs.generation_s,
        max(p.turn_multiply_s, p.turn_copy_s) if s.a.turned or s.b.turned else 0.0,
    )
    if blocked:
        # With one block of K and one of M, `a` stays in SBUF over all blocks of N.
        moves = np.maximum(core.several, np.minimum(p.down, 1.0))
        reads: tuple[Number, Number] = 1.0 + moves * p.across, 1.0 + core.several * p.down
        return _with_totals(core, costs, _blocked(core, moves), reads)
    reads = s.n_blocks if s.reload_a else 1.0, s.m_blocks
    return _with_totals(core, costs, _streamed(core), reads)


def _blocked(core: _Core, moves: FloatArray) -> FloatArray:
    """Seconds of the loop over blocks of N, of M inside them, of K inside those."""
    # `moves`: 1 where `a` is loaded for every block, 0 where it stays.
    # Four kinds of windows: full blocks, the bottom row, the right column and the corner, each as
    # often as there are such blocks. The ends of the loop are then corrected one by one.
    s, p, across, down = core.s, core.p, core.p.across, core.p.down
    row, last_row = _row_time(core, p.n), _row_time(core, p.last_n)
    a, last_a, b, last_b = p.m.load, p.last_m.load, p.n.load, p.last_n.load
    below = last_a.times(moves).beside(b)
    full = _window(core, (p.m, p.n), row, a.beside(b.times(core.several)))
    bottom = _window(core, (p.last_m, p.n), row, below)
    right = _window(core, (p.m, p.last_n), last_row, a.beside(last_b.times(core.several)))
    corner = _window(core, (p.last_m, p.last_n), last_row, last_a.beside(last_b))
    windows = across * down * full.time_s + across * bottom.time_s + down * right.time_s
    if not core.single:
        windows = s.batch * windows + (s.batch - 1) * corner.time_s

    # Where M has one block, K too, and `a` stays, only the ragged last block of N is loaded while
    # the one before it is computed.
    below_more, beside_more = np.minimum(down, 1.0), np.minimum(across, 1.0)
    narrow = (1.0 - moves) * beside_more
    transfer_s = _mixed((narrow, last_b.transfer_s), (1.0 - narrow, below.transfer_s))
    below = replace(below, transfer_s=transfer_s)
    ragged = _overlapped(core, bottom.compute_s, bottom.store_s, below)
    windows = windows + core.of_batch(ragged.time_s - bottom.time_s)

    # The first window has nothing to store yet, and its first chain of products starts early.
    blocks = core.of_batch(s.n_blocks * s.m_blocks)
    many = np.minimum(blocks - 1, 1.0)
    loading = _while_loading(core)
    early = (s.block_k - 1) * loading
    one_row = 1.0 - below_more
    before = _before(corner, ragged, right, one_row, beside_more)
    inner = below_more * beside_more
    wide = one_row * (np.minimum(across, 2.0) - beside_more)
    saved = _mixed(
        (inner, full.first_saves_s(early)),
        (wide, bottom.first_saves_s(early)),
        (1.0 - inner - wide, before.first_saves_s(early)),
    )
    windows = windows - many * saved
    # Loads run two blocks ahead, so they become ready before stores of the block just computed.
    more = np.minimum(blocks - 1, 2.0) - many
    deferred = more * (before.time_s - np.maximum(before.compute_s, before.load_s))
    windows = windows - deferred

    last_store = p.last_row * p.last_n.store_s
    last = _Last(corner, before, many, loading, early, deferred, last_store)
    # One sequencer triggers every row's store, from the first row on.
    triggers = core.of_batch(s.m_tiles) * core.trigger_s
    last_trigger = np.maximum(0.0, last_row.last_s - early) + triggers + core.latency_s + last_store
    end = np.maximum(windows + _end(core, last_row, last), last_trigger)
    return core.latency_s + _fill(core) + end


class _Last(Record, kw_only=False, eq=False):
    """The last block and the one before it."""

    block: _Window
    before: _Window
    many: FloatArray  # 1 if there is more than one block, else 0
    loading_s: FloatArray  # Computing on a K tile while the next is loaded
    early_s: FloatArray  # Computing of the very first step that is done before its loads end
    deferred_s: FloatArray  # Stores of earlier blocks that loads overtook
    store_s: FloatArray  # Storing the last row


def _fill(core: _Core) -> FloatArray:
    """Seconds of the first step's loads; each starts when it has been triggered."""
    s, p, trigger_s = core.s, core.p, core.trigger_s
    loads = np.minimum(s.block_k, p.k_tiles)
    a, b = p.m.load.transfer_s, p.n.load.transfer_s
    triggered = s.block_k * (2 * trigger_s) + np.minimum(p.k_tiles, 1.0) * b
    return np.maximum(trigger_s + loads * (a + b), triggered)


def _end(core: _Core, row: _RowTime, last: _Last) -> FloatArray:
    """Seconds from the end of the last window to the end of the last store."""
    # The last block starts computing when the window before it ends, less the part of its first
    # chain of products (or its transposes) done while the last of its loads came in. Its rows are
    # then stored as they get done, unless the DMA engines or their trigger are behind.
    s, p, several, many = core.s, core.p, core.several, last.many
    single, only = 1.0 - several, 1.0 - many
    rows, store = p.last_m.count, p.last_n.store_s
    rows_before = rows - 1
    lead = (p.last_k - 1) * last.loading_s
    arrived = last.block.load_s * (several * (1 - s.block_k / s.k_tiles))
    reached = row.before_s * rows
    if core.turn_s:
        turn = (p.last_m.load.turns + p.last_n.load.turns) * core.turn_s
        reached = reached + (s.k_tiles - p.last_k) * turn
    reached = reached - only * last.early_s
    idle = last.before.compute_s - last.before.load_s
    waits = several * (arrived - reached) - single * many * idle
    lead = np.minimum(np.maximum(waits, 0.0) + single * only * lead, lead)
    begin = several * np.maximum(reached, arrived)
    if core.turn_s:
        begin = begin + p.last_k * turn
    last_copy = single * p.copy_s + several * p.add_s
    busy = np.maximum(
        rows * row.last_multiply_s + last_copy, rows * row.last_evacuate_s + p.multiply_s
    )
    pending = np.maximum(0.0, rows_before * (np.maximum(store, core.trigger_s) - row.last_s))
    finish = begin - lead + busy + (core.trigger_s + core.latency_s) + last.store_s + pending

    stored = last.before.store_s
    hidden = np.minimum(np.maximum(0.0, idle), stored * (1 - 1 / rows))
    stored = last.deferred_s + many * (stored - hidden)
    return np.maximum(finish, arrived + stored + p.last_m.stores * store)


def _before(
    corner: _Window, ragged: _Window, right: _Window, one_row: FloatArray, beside: FloatArray
) -> _Window:
    """The window before the last: in the row above, left of it, or in the next product."""
    left = one_row * beside
    alone, above = one_row - left, 1.0 - one_row

    def mixed(kind: str) -> FloatArray:
        windows = ((alone, corner), (left, ragged), (above, right))
        return _mixed(*((share, getattr(window, kind)) for share, window in windows))

    # Of one block alone, stores are those of a block of the last row.
    store_s = _mixed((one_row, ragged.store_s), (above, right.store_s))
    return _Window(mixed("time_s"), mixed("compute_s"), mixed("load_s"), store_s)


def _mixed(*cases: tuple[FloatArray, FloatArray]) -> FloatArray:
    """The value of the one case whose share is 1, the shares of the others being 0."""
    # Sums of products take a fifth of the time of `np.where`, which guesses every element's branch.
    (share, values), *others = cases
    value = share * values
    for share, values in others:
        value = value + share * values
    return value


def _streamed(core: _Core) -> FloatArray:
    """Seconds of kernels that keep the whole contraction of an output block in PSUM."""
    # Rows of output wait for each other where few have room. Without a second buffer for a block of
    # `a`, nothing hides its loading.
    s, p = core.s, core.p
    always = 1.0 if s.reload_a else 0.0
    exposed = (1.0 - always) * (s.slots_a < 2 * s.k_tiles) * s.k_tiles
    row, last_row = _row_time(core, p.n), _row_time(core, p.last_n)
    kept_s = p.copy_s + core.trigger_s + core.latency_s + p.last_n.store_s
    total: FloatArray = np.zeros(())
    for rows, down in ((p.m, p.down), (p.last_m, 1.0)):
        output_s = rows.count * kept_s / s.output_rows
        again = _window(core, (rows, p.n), row, rows.load.times(always).beside(p.n.load))
        new = _window(core, (rows, p.last_n), last_row, rows.load.beside(p.last_n.load))
        total = total + down * p.across * np.maximum(again.time_s, output_s)
        # Buffers come free one by one while the last chain of products goes through them.
        alone_s = np.maximum(exposed * rows.load.transfer_s - s.k_tiles * p.multiply_s, 0.0)
        new_s = np.maximum(new.time_s, new.compute_s + alone_s)
        total = total + down * np.maximum(new_s, output_s)
    loads_bind = new.compute_s < new.load_s
    first = np.where(loads_bind, 0.0, p.m.load.transfer_s + p.n.load.transfer_s)
    drain = np.where(loads_bind, 0.0, p.last_n.store_s) + p.multiply_s + p.copy_s
    return 2 * (core.latency_s + core.trigger_s) + first + core.of_batch(total) + drain


def _row_time(core: _Core, columns: ColumnBlock) -> _RowTime:
    """Seconds of a row of output tiles."""
    # The first block of K is copied out, the others (`several`: if there are any) are added.
    s, p, several = core.s, core.p, core.several
    copy, add = columns.copy_s, columns.add_s
    multiply = s.block_k * columns.multiply_s
    last_multiply = p.last_k * columns.multiply_s
    first, middle = np.maximum(multiply, copy), np.maximum(multiply, add)
    last_evacuate = copy + several * (add - copy)
    before_s = several * (first + (p.steps - 1) * middle)
    last_s = np.maximum(last_multiply, last_evacuate)
    slower = several * (add > last_multiply)
    return _RowTime(
        multiply_s=s.k_tiles * columns.multiply_s,
        chain_s=before_s + last_s,
        before_s=before_s,
        last_multiply_s=last_multiply,
        last_evacuate_s=last_evacuate,
        last_s=last_s,
        spare_s=np.maximum(0.0, multiply - copy),
        ahead_s=slower * ((core.banks - 1) * add / columns.tiles),
    )


def _window(
    core: _Core, block: tuple[RowBlock, ColumnBlock], row: _RowTime, load: Loads
) -> _Window:
    """Seconds of a block while K tiles are loaded for the next."""
    # Where adding is slower than multiplying, free PSUM banks let the next row start meanwhile.
    rows, columns = block
    count = rows.count
    slow = count * row.chain_s - np.minimum(row.ahead_s, count * row.spare_s)
    compute = np.maximum(count * row.multiply_s, slow)
    if core.turn_s:
        compute = compute + core.s.k_tiles * (load.turns * core.turn_s)
    return _overlapped(core, compute, rows.stores * columns.store_s, load)


def _overlapped(core: _Core, compute: FloatArray, stores: FloatArray, load: Loads) -> _Window:
    """The window of computing, of stores, and of loads, one K tile at a time."""
    # Loads and stores share the DMA engines; each has a sequencer of its own that triggers them.
    moved = loads = core.p.k_tiles * load.transfer_s
    if core.trigger_s:
        triggers = load.transfers * core.trigger_s
        loads = core.p.k_tiles * np.maximum(load.transfer_s, triggers)
    time_s = np.maximum(np.maximum(compute, loads), moved + stores)
    return _Window(time_s, compute, loads, stores)


def _while_loading(core: _Core) -> FloatArray:
    """Seconds that the tensor engine works on a K tile while the next one is loaded."""
    a, b = core.p.last_m.load, core.p.last_n.load
    transfers = np.maximum(a.transfer_s + b.transfer_s, 2 * core.trigger_s)
    if core.turn_s:
        return np.minimum(transfers, (a.turns + b.turns) * core.turn_s)
    return np.minimum(transfers, core.p.multiply_s)


def _with_totals(
    core: _Core, costs: Instructions, time_s: FloatArray, reads: tuple[Number, Number]
) -> CoreTime:
    """The time with the busy seconds of each engine, and bytes by how often operands are read."""
    s, p = core.s, core.p
    products = core.of_batch(s.m_tiles)
    evacuate = p.across * p.n.copy_s + p.last_n.copy_s
    evacuate = evacuate + p.steps * (p.across * p.n.add_s + p.last_n.add_s)
    evacuation_s = products * evacuate
    products = products * s.k_tiles
    weight_s = float(costs.weight_load_cycles(1.0)) / costs.tensor_clock_hz
    tensor_s = products * (p.across * p.n.multiply_s + p.last_n.multiply_s)
    load_a = _all(p.down, p.m.load, p.last_m.load).times(reads[0])
    load_b = _all(p.across, p.n.load, p.last_n.load).times(reads[1])
    load = load_a.beside(load_b)
    stores = (p.down * p.m.stores + p.last_m.stores) * (p.across * p.n.store_s + p.last_n.store_s)
    per_k = core.of_batch(s.k_tiles)
    if core.turn_s:
        turns = per_k * load.turns
        tensor_s = tensor_s + turns * p.turn_multiply_s
        evacuation_s = evacuation_s + turns * p.turn_copy_s
    dma_s = core.of_batch(p.k_tiles * load.transfer_s + stores)
    trigger_s = per_k * load.transfers * costs.generation_s
    # No kernel ends before its busiest engine has done its work: a lower bound on the windows' sum.
    busiest = np.maximum(np.maximum(tensor_s, evacuation_s), np.maximum(dma_s, trigger_s))
    time_s = np.maximum(time_s, busiest)
    bytes_a = reads[0] * s.m * s.a.dense_bytes
    bytes_b = reads[1] * s.n * s.b.dense_bytes
    return CoreTime(
        time_s=time_s,
        tensor_s=tensor_s,
        weights_s=products * s.n_tiles * (p.stationary * weight_s),
        evacuation_s=evacuation_s,
        dma_s=dma_s,
        trigger_s=trigger_s,
        fixed_s=time_s - busiest,
        read_bytes=core.of_batch(s.k) * (bytes_a + bytes_b),
    )


def _all(blocks: FloatArray, one: Loads, last: Loads) -> Loads:
    return one.times(blocks).beside(last)

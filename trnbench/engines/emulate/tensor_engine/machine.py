"""The state of one NeuronCore while a kernel plays: engines, PSUM banks, SBUF buffers, DMA queues.

Every engine works its instructions off in program order and waits on semaphores: data loaded, bank
free, buffer released, output row written out. Loads and stores are triggered by two sequencers of
their own; the DMA engines serve whichever transfer became ready first. Times are whole fs.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

from trnbench.engines.emulate.tensor_engine.plan import (
    FS_PER_S,
    SIDES,
    DmaMove,
    KernelPlan,
    KernelStep,
    ProductChain,
    Side,
    femtoseconds,
)
from trnbench.facts.records import Record, State
from trnbench.machine.costs.instructions import Instructions
from trnbench.machine.tiling.schedule import KernelSchedule


class TraceEvent(Record, kw_only=False):
    """One instruction as played: start and end in seconds, engine, and name."""

    start_s: float
    end_s: float
    engine: str
    name: str


Arrivals: TypeAlias = tuple[list[int] | None, list[int] | None]
"""Arrival times of the K tiles of a step's operands; None for an operand that stayed."""


class Load(State, kw_only=False):
    """A transfer that waits for DMA engines, and the operand of a step that it is part of."""

    ready_fs: int
    move: DmaMove
    step: int
    side: Side
    last_piece: bool


class Store(State, kw_only=False):
    """A finished row of output tiles that waits for DMA engines."""

    ready_fs: int
    move: DmaMove


class MachineTally(State, kw_only=False):
    """Tallies of the work done; they add up, so repeated parts can be multiplied."""

    multiplies: int = 0
    tensor_fs: int = 0
    vector_fs: int = 0
    scalar_fs: int = 0
    output_wait_fs: int = 0
    load_trigger_fs: int = 0
    store_trigger_fs: int = 0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    loads_stall_fs: int = 0
    psum_stall_fs: int = 0
    weights_stall_fs: int = 0


class Core:
    """One core playing one plan, a step at a time."""

    def __init__(
        self,
        plan: KernelPlan,
        schedule: KernelSchedule,
        instructions: Instructions,
        *,
        banks: int,
        dma_engines: int,
        events: list[TraceEvent] | None,
    ) -> None:
        self.plan = plan
        self.events = events
        self.latency_fs = femtoseconds(instructions.start_latency_s)
        self.generation_fs = femtoseconds(instructions.generation_s)
        self.evacuators = instructions.evacuators
        self.shared_port = len(instructions.evacuators) == 1
        # Every pool is a queue of the times at which its places become free: `popleft` takes the
        # earliest one, and the instruction waits until then.
        self.multiply_start = 0
        self.multiply_end = 0
        self.banks = deque([0] * banks)
        self.vector_free = 0
        self.scalar_free = 0
        self.row_end = 0
        self.output_rows = deque([0] * int(schedule.output_rows))
        self.slots = [deque([0] * int(places)) for places in (schedule.slots_a, schedule.slots_b)]
        self.load_trigger = 0
        self.store_trigger = 0
        self.dma_free = 0
        self.loads: deque[Load] = deque()
        self.stores: deque[Store] = deque()
        self.pushed_step = 0
        self.pushed_k = 0
        self.pushed_side: Side = 0
        self.loaded: dict[tuple[int, Side], list[int]] = {}
        self.last_store_end = 0
        self.tally = MachineTally()
        self.dma_fs_by_engines = [0] * (dma_engines + 1)

    def play(self, index: int) -> None:
        """Play one step."""
        plan = self.plan
        step = plan.step(index)
        released = tuple(side for side in SIDES if plan.loads(index + 1)[side])
        first_k = plan.digits(index)[3] == 0
        arrivals = self._arrivals(index, plan.loads(index))
        self._turn_operands(index, step, arrivals)
        last = len(step.chains) - 1
        for place, chain in enumerate(step.chains):
            if place == 0:
                self._gated_chain(index, step, chain, arrivals, released)

            else:
                self._free_chain(chain, len(step.k_tiles))
                if place == last:
                    self._release(chain, len(step.k_tiles), released)
            self._evacuate(chain, first_k)
        self.push_loads()
        self.serve(until_fs=self.multiply_end)

    # ---- tensor engine

    def _gated_chain(
        self,
        index: int,
        step: KernelStep,
        chain: ProductChain,
        arrivals: Arrivals,
        released: tuple[Side, ...],
    ) -> None:
        """Multiply a chain whose operands may still be on their way, giving back buffers."""
        bank = self.banks.popleft()
        for k, _ in enumerate(step.k_tiles):
            ready_a, ready_b = (self._wait_for(index, side, k, arrivals[side]) for side in SIDES)
            self._multiply(chain.multiply_fs, chain.load_weights_fs, ready_a, ready_b, bank)
            bank = 0
            if len(step.chains) == 1:
                for side in released:
                    self.slots[side].append(self.multiply_end)
                self.push_loads()

    def _free_chain(self, chain: ProductChain, count: int) -> None:
        bank = self.banks.popleft()
        # Where weight loads hide behind products the chain runs without gaps: added up at once.
        if chain.multiply_fs < chain.load_weights_fs or self.events is not None:
            for _ in range(count):
                self._multiply(chain.multiply_fs, chain.load_weights_fs, 0, 0, bank)
                bank = 0
            return
        self._multiply(chain.multiply_fs, chain.load_weights_fs, 0, 0, bank)
        rest = (count - 1) * chain.multiply_fs
        self.multiply_start += rest
        self.multiply_end += rest
        self.tally.tensor_fs += rest
        self.tally.multiplies += count - 1

    def _multiply(
        self, multiply_fs: int, load_weights_fs: int, ready_a: int, ready_b: int, bank: int
    ) -> None:
        """Play one weight load, in the background of the running product, and one multiply."""
        end = self.multiply_end
        weights = max(self.multiply_start, ready_a) + load_weights_fs
        start = max(end, weights, ready_b, bank)
        if start > end:
            self._stalled(start - end, start, weights, bank, max(ready_a, ready_b))
        if self.events is not None:
            self.events.append(_event(start, start + multiply_fs, "tensor", "multiply"))
        # The next weights load in the background, from this start on at the earliest.
        self.multiply_start = start
        self.multiply_end = start + multiply_fs
        self.tally.tensor_fs += multiply_fs
        self.tally.multiplies += 1

    def _stalled(self, gap: int, start: int, weights: int, bank: int, arrived: int) -> None:
        if start == bank:
            self.tally.psum_stall_fs += gap
        elif arrived > self.multiply_end:
            self.tally.loads_stall_fs += gap
        else:
            self.tally.weights_stall_fs += gap

    def _release(self, chain: ProductChain, count: int, released: tuple[Side, ...]) -> None:
        """Give the step's buffers back, each when the last chain has used it."""
        first = self.multiply_end - (count - 1) * chain.multiply_fs
        for side in released:
            self.slots[side].extend(range(first, self.multiply_end + 1, chain.multiply_fs))

    def _turn_operands(self, index: int, step: KernelStep, arrivals: Arrivals) -> None:
        """Transpose freshly loaded operands that lie the other way round, tile by tile."""
        multiply_fs, load_weights_fs, copy_fs = self.plan.turn
        for k, tile in enumerate(step.k_tiles):
            for side, arrived in zip(SIDES, arrivals, strict=True):
                if arrived is None or not tile.turns[side]:
                    continue
                ready = self._wait_for(index, side, k, arrived)
                for _ in range(tile.turns[side]):
                    bank = self.banks.popleft()
                    self._multiply(multiply_fs, load_weights_fs, ready, 0, bank)
                    arrived[k] = max(arrived[k], self._copy(copy_fs, 0))

    # ---- evacuation

    def _evacuate(self, chain: ProductChain, first_k: bool) -> None:
        """Copy (or add) a finished tile to SBUF, free its bank, and store its row once complete."""
        if first_k:
            row = self._output_row() if chain.first_in_row else 0
            end = self._copy(chain.copy_fs, row)
        else:
            start = max(self.multiply_end, self.vector_free)
            end = start + chain.add_fs
            self._busy("vector", start, end, "add")
        # Two engines share a row, so its last tile need not be the last one copied.
        self.row_end = end if chain.first_in_row else max(self.row_end, end)
        if chain.store is not None:
            self.store_trigger = max(self.store_trigger, self.row_end) + self.generation_fs
            self.tally.store_trigger_fs += self.generation_fs
            self.stores.append(Store(self.store_trigger + self.latency_fs, chain.store))

    def _copy(self, copy_fs: tuple[int, ...], room: int) -> int:
        """Copy the tile just accumulated on the engine done with it first; return when it is."""
        done = self.multiply_end
        ready = max(done, room)
        # Of engines that end at the same time the one that has been free longer copies.
        end, free, name = min(
            (max(ready, free) + duration, free, name)
            for name, free, duration in zip(
                self.evacuators, (self.vector_free, self.scalar_free), copy_fs, strict=False
            )
        )
        start = max(ready, free)
        self.tally.output_wait_fs += start - max(done, free)
        self._busy(name, start, end, "copy")
        return end

    def _busy(self, engine: Literal["vector", "scalar"], start: int, end: int, name: str) -> None:
        if engine == "vector":
            self.tally.vector_fs += end - start
        else:
            self.tally.scalar_fs += end - start
        if engine == "vector" or self.shared_port:
            self.vector_free = end
        if engine == "scalar" or self.shared_port:
            self.scalar_free = end
        self.banks.append(end)
        if self.events is not None:
            self.events.append(_event(start, end, engine, name))

    def _output_row(self) -> int:
        # A row of results needs room, which a store to memory gives back: let the DMA engines run.
        while not self.output_rows:
            self._serve_next()
        return self.output_rows.popleft()

    # ---- loads

    def push_loads(self) -> None:
        """Trigger loads in program order as far as buffers have been released."""
        plan = self.plan
        while self.pushed_step < plan.steps:
            step, flags = plan.step(self.pushed_step), plan.loads(self.pushed_step)
            while self.pushed_k < len(step.k_tiles):
                moves = step.k_tiles[self.pushed_k].moves
                for side in SIDES[self.pushed_side :]:
                    self.pushed_side = side
                    if flags[side] and not self._push(side, moves[side]):
                        return
                self.pushed_side = 0
                self.pushed_k += 1
            self.pushed_step += 1
            self.pushed_k = 0

    def _push(self, side: Side, moves: tuple[DmaMove, ...]) -> bool:
        # Loads are triggered in program order, so one without a buffer stops all loads behind it.
        slots = self.slots[side]
        if not slots:
            return False
        self.load_trigger = max(self.load_trigger, slots.popleft())
        for move in moves:
            self.load_trigger += self.generation_fs
            self.tally.load_trigger_fs += self.generation_fs
            ready, last = self.load_trigger + self.latency_fs, move is moves[-1]
            self.loads.append(Load(ready, move, self.pushed_step, side, last))
        return True

    def _arrivals(self, index: int, loaded: tuple[bool, bool]) -> Arrivals:
        for side in SIDES:
            self.loaded.pop((index - 1, side), None)
        a, b = (self.loaded.setdefault((index, s), []) if loaded[s] else None for s in SIDES)
        return a, b

    def _wait_for(self, index: int, side: Side, k: int, arrived: list[int] | None) -> int:
        if arrived is None:
            return 0
        while len(arrived) <= k:
            if not self.loads:
                self.push_loads()
            self._serve_next()
        return arrived[k]

    # ---- DMA engines

    def serve(self, *, until_fs: int | None = None) -> None:
        """Let the DMA engines take transfers that are ready by `until_fs`; all, if None."""
        while self.loads or self.stores:
            first = min(queue[0].ready_fs for queue in (self.loads, self.stores) if queue)
            if until_fs is not None and first > until_fs:
                return
            self._serve_next()

    def _serve_next(self) -> None:
        """Serve the transfer that became ready first; a load before a store of the same time."""
        loads, stores = self.loads, self.stores
        if loads and (not stores or loads[0].ready_fs <= stores[0].ready_fs):
            load = loads.popleft()
            end = self._transfer(load.ready_fs, load.move, f"load {'ab'[load.side]}")
            self.tally.read_bytes += load.move.size_bytes
            if load.last_piece:
                self.loaded.setdefault((load.step, load.side), []).append(end)
            return
        store = stores.popleft()
        end = self._transfer(store.ready_fs, store.move, "store")
        self.tally.written_bytes += store.move.size_bytes
        self.output_rows.append(end)
        self.last_store_end = end

    def _transfer(self, ready_fs: int, move: DmaMove, name: str) -> int:
        start = max(self.dma_free, ready_fs)
        end = start + move.occupancy_fs
        self.dma_free = end
        self.dma_fs_by_engines[move.engines] += move.occupancy_fs
        if self.events is not None:
            self.events.append(_event(start, end, "dma", name))
        return end


def _event(start_fs: int, end_fs: int, engine: str, name: str) -> TraceEvent:
    return TraceEvent(start_fs / FS_PER_S, end_fs / FS_PER_S, engine, name)

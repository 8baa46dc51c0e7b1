"""A chip, an instance and calibrations from measured rows: the machine at hand as a spec.

Training steps are not used: products, passes, launches and collectives, timed alone with all
devices at work, determine the numbers. Numbers without rows are assumed, with a range and a note.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias

from trnbench.errors import InputError
from trnbench.evidence.columns import KERNEL_KINDS
from trnbench.evidence.kernels import PRODUCT
from trnbench.evidence.measure import machine_fits as fits
from trnbench.evidence.measure.device import formats_of
from trnbench.evidence.measure.rows import FRAMEWORK
from trnbench.evidence.rows import EvidenceRow, RowFault, rows_of_kind
from trnbench.facts.calibration.collective_stack import FILE_PREFIX
from trnbench.facts.calibration.training_stack import (
    CHIP_PREFIX,
    STACK_PREFIX,
    load_chip_efficiency,
)
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.toml_file import toml_text
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, exact

FileTable: TypeAlias = dict[str, object]
_LOW, _HIGH = 0.5, 1.5
"""Range of a number that another chip tells, over it."""
DEVICE = "-device"
"""Ending of the names of a machine's chip."""
_SOURCE = "measured"
_NONE = "not-measured"
_RUNS = (
    *("job pretrain", "model decoder", "attention MHA", "zero 0", "recompute none"),
    *("tensor parallel", "precision fp32", "precision bf16-master"),
)


class MachineFiles(Record):
    """Files of a machine: name, ids of the rows behind them, tables by section."""

    name: str
    rows: tuple[str, ...]
    tables: Mapping[tuple[str, str], FileTable]
    inherited: tuple[str, ...]
    """What another chip tells in place of rows, in words."""

    def texts(self) -> Mapping[tuple[str, str], str]:
        """Each file's text by its section and name."""
        return {
            key: f"# Written by `trnbench measure`: see [sources].\n\n{toml_text(table)}"
            for key, table in self.tables.items()
        }


def machine_files(
    catalog: Catalog,
    rows: Iterable[EvidenceRow],
    *,
    name: str | None = None,
    clock: fits.RowClock = "wall",
) -> MachineFiles:
    """The machine on which rows of kernels and collectives were measured.

    Training rows are ignored: their predictions must not depend on them.
    """
    columns = list(rows)
    try:
        kernels = [row for row in rows_of_kind(columns, *KERNEL_KINDS) if _sound(row)]
        if not kernels:
            raise InputError("no row of a kernel tells what the machine is: measure matrix, or all")
        called = name or kernels[0].needed("instance")
        kernels = [row for row in kernels if row.text("instance") == kernels[0].text("instance")]
        exchanged = [row for row in rows_of_kind(columns, "collective") if _sound(row)]
        timed = fits.TimedRows(rows=kernels, exchanges=exchanged, clock=clock)
        return _Maker(catalog, called, timed).files()
    except RowFault as fault:
        raise InputError(f"the machine does not follow from its rows: {fault}") from None


def _sound(row: EvidenceRow) -> bool:
    """True for a row whose numbers were right, or were not checked."""
    return not row.said("check") or float(row.text("check")) <= 1


class _Maker:
    """Builder of the tables, each number with its source and kind."""

    def __init__(self, catalog: Catalog, name: str, timed: fits.TimedRows) -> None:
        self.catalog, self.name, self.timed = catalog, name, timed
        self.first = timed.rows[0]
        self.ranks = max(row.whole("ranks") for row in timed.rows)
        known = self.first.text("chip")
        self.known = load_chip(catalog, known) if known else None
        self.like = self.known or self._nearest()
        self.date = datetime.date.fromisoformat(self.first.needed("date"))

    def files(self) -> MachineFiles:
        chip = f"{self.name}{DEVICE}"
        machine = fits.fitted(self.timed, self.known)
        tables = {
            ("chips", chip): self._chip(chip, machine),
            ("instances", self.name): self._instance(chip, machine),
            ("calibration", f"{CHIP_PREFIX}{self.name}"): self._efficiency(chip, machine),
            ("calibration", f"{STACK_PREFIX}{self.name}"): self._stack(machine),
            ("reliability", self.name): self._reliability(chip),
        }
        if machine.exchanges:
            tables["calibration", f"{FILE_PREFIX}{self.name}"] = self._collectives(machine)
        used = [row.id for row in (*self.timed.rows, *self.timed.exchanges)]
        return MachineFiles(
            name=self.name,
            rows=tuple(used),
            tables=tables,
            inherited=tuple(
                f"{names} of {self.name}: not measured, as {self.like.name}'s within a wide range"
                for names in [", ".join(self._untimed(machine))]
                if self.like and names
            ),
        )

    def _inherited(self, like: Chip, machine: fits.MachineFit) -> FileTable:
        """Rates of formats without rows, by another chip's ratio to a measured one."""
        timed = machine.products.format
        unit = machine.products.peaks[timed] / like.peak_flop_per_s(timed)
        told = f"not measured: scaled from {timed} as on {like.name}"
        rates = {of: unit * like.peak_flop_per_s(of) for of in self._untimed(machine)}
        return {
            of: _assumed(_flop(rate), _flop(_LOW * rate), _flop(_HIGH * rate), told)
            for of, rate in rates.items()
        }

    def _untimed(self, machine: fits.MachineFit) -> list[str]:
        """Formats of the device without sound rows, which another chip has."""
        tried = (format_named(name).name for name in formats_of(self.first.needed("backend")))
        known = self.like.formats if self.like else ()
        return [name for name in tried if name in known and name not in machine.products.peaks]

    def _nearest(self) -> Chip | None:
        """Chip of the backend's kind with the nearest measured rate of products."""
        cores = {"neuron": True, "cuda": False}.get(self.first.text("backend"))
        rates = [
            (row.positive("flop") / self.timed.seconds(row), format_named(row.needed("dtype")).name)
            for row in self.timed.of(PRODUCT)
        ]
        if not rates:
            return None
        rate, used = max(rates)
        names = (entry.name for entry in self.catalog.entries("chips"))
        chips = (load_chip(self.catalog, name) for name in names)
        return min(
            (chip for chip in chips if (chip.cores is not None) is cores and used in chip.formats),
            key=lambda chip: abs(math.log(chip.peak_flop_per_s(used) / rate)),
            default=None,
        )

    @property
    def _sources(self) -> FileTable:
        title = f"{self.first.needed('source')} on {self.first.text('device')}"
        versions = ", ".join(filter(None, (self.first.text("software"), self.first.text("driver"))))
        return {
            _SOURCE: {"title": f"{title}: {versions}", "date": self.date},
            _NONE: {"title": "Assumed: nothing was measured that tells it", "date": self.date},
        }

    def _chip(self, name: str, machine: fits.MachineFit) -> FileTable:
        head: FileTable = {"name": name, "title": f"A device of {self.name}"}
        if self.known is not None:
            return {**head, "like": self.known.name}
        rates: FileTable = {of: _flop(rate) for of, rate in machine.products.peaks.items()}
        if self.like is not None:
            rates |= self._inherited(self.like, machine)
        tile = {"rows": 16, "columns": 16, "relative_rate": 1.0}
        return {
            **head,
            "vendor": self.first.text("device") or "unknown",
            "family": self.first.text("backend"),
            "sources": self._sources,
            "memory": {
                **_measured(),
                "technology": "host" if self._host else "unknown",
                "stacks": 1,
                "capacity_per_chip": _bytes(machine.memory_bytes),
                "bandwidth_per_chip": _rate(machine.stream_bytes_per_s),
            },
            "multiprocessors": {
                **_measured(),
                "count": 1,
                "clock": _assumed("1 GHz", "0.5 GHz", "5 GHz", "counts cycles only"),
                "cache_per_chip": _bytes(machine.cache_bytes),
                "cache_bandwidth_per_chip": _rate(machine.fastest_bytes_per_s),
                "launch_latency": _seconds(machine.kernel_s),
                "contraction_step": 1,
                "tiles": [tile],
                "rates_per_chip": rates,
            },
            "headline_per_chip": {**_measured(), **rates},
            "rounding": {"modes": ["rne"]},
            "reserve": {"per_rank": _assumed("0.1 GiB", "0.01 GiB", "1 GiB", "code and runtime")},
        }

    @property
    def _host(self) -> bool:
        return self.first.text("backend") == "cpu"

    def _instance(self, chip: str, machine: fits.MachineFit) -> FileTable:
        per_chip = self.known.ranks(self.first.whole_if_said("lnc")) if self.known else 1
        chips = max(self.ranks // per_chip, 1)
        level: FileTable = {
            "topology": "switch",
            "name": "memory" if self._host else "links",
            **_measured(),
            "chips": chips,
            "bandwidth_per_chip_one_way": _rate(machine.link_bytes_per_s),
            "latency_per_hop": {
                "value": "1 ns",
                "kind": "derived",
                "note": "what each exchange costs besides its bytes is its launch",
            },
        }
        inner: FileTable = {
            "topology": "on-chip",
            "name": "cores",
            **_measured(),
            "bandwidth_per_rank_one_way": _rate(machine.link_bytes_per_s),
            "latency_per_hop": "1 ns",
        }
        return {
            "name": self.name,
            "title": f"{self.ranks} x {self.first.text('device')}, as measured",
            "provider": "own",
            "chip": chip,
            "sources": self._sources,
            "chips": {"value": chips, **_measured()},
            "host": {**_measured(), "vcpus": self.first.whole("cores")},
            "fabric": [*([inner] if per_chip > 1 else []), *([level] if chips > 1 else [])],
        }

    def _efficiency(self, chip: str, machine: fits.MachineFit) -> FileTable:
        return {
            "name": f"{CHIP_PREFIX}{self.name}",
            "title": f"Products and streams of {self.name}",
            "chips": [chip],
            "fitted_rows": [row.id for row in self.timed.rows],
            "sources": self._sources,
            "tensor_share": _derived(machine.products.share),
            "half_share_depth": _derived(machine.products.depth),
            "narrow_share": self._narrow(machine),
            "memory_share": _derived(machine.memory_share),
        }

    def _narrow(self, machine: fits.MachineFit) -> FileTable:
        """Share of 8-bit formats: measured, or another chip's within a wide range."""
        if machine.products.narrow is not None:
            return _derived(machine.products.narrow)
        if self.known is None:
            return _assumed(1.0, _LOW, 1.0, "no product of 8-bit formats was measured")
        share = load_chip_efficiency(self.catalog, self.known.name).narrow_share
        told = f"not measured: that of {self.known.name}"
        return _assumed(share, _LOW * share, min(_HIGH * share, 1.0), told)

    def _reliability(self, chip: str) -> FileTable:
        note = "nothing was measured; as wide as what is published of accelerators"
        return {
            "name": self.name,
            "title": f"Failures of {self.name}, assumed",
            "chips": [chip],
            "sources": self._sources,
            "failures_per_node_day": _assumed(4e-3, 1e-4, 3e-2, note),
            "node_chips": _assumed(self.ranks, 1, self.ranks, "all devices of the machine"),
            "detect": _assumed("5 min", "1 min", "30 min", note),
            "launch": _assumed("1 min", "1 s", "15 min", note),
            "compile": _assumed("2 min", "1 s", "30 min", note),
            "write_per_node": _assumed("1 GB/s", "0.1 GB/s", "10 GB/s", note),
            "write_total": _assumed("1 GB/s", "0.1 GB/s", "100 GB/s", note),
            "stalled_share": _assumed(1.0, 0.05, 1.0, "training waits for the store"),
        }

    def _stack(self, machine: fits.MachineFit) -> FileTable:
        nothing: FileTable = {"value": "0 s", **_derived_as("one program holds the whole step")}
        none = _assumed(0.0, 0.0, 0.2, "one program, whose kernels follow each other")
        fused = machine.attention
        share = [_derived(s) for s in fused] if fused else [_untimed(), _untimed()]
        return {
            "name": f"{STACK_PREFIX}{self.name}",
            "title": f"Kernels of JAX on {self.name}, timed by themselves",
            "instances": [self.name],
            "default_for": [self.name],
            "frameworks": [FRAMEWORK],
            "basis": "assumed",
            **({"collectives": f"{FILE_PREFIX}{self.name}"} if machine.exchanges else {}),
            "order": "megatron",
            "attention": "fused" if fused else "naive",
            "sources": self._sources,
            "habits": {**_measured(), "zero": 0, "precision": machine.precision},
            "factor": _assumed(1.0, 0.9, 1.25, "what kernels timed by themselves leave out"),
            "communication": _assumed(1.0, 0.9, 1.25, "waiting for devices that come late"),
            "step": {"value": _seconds(machine.program_s), **_measured()},
            "micro_batch": nothing,
            "piped_micro_batch": nothing,
            "node_scatter": {"value": 0.0, **_derived_as("one node")},
            "fragmentation": _assumed(0.05, 0.0, 0.15, "of an allocator"),
            "kernels": {
                "attention_forward_share": share[0],
                "attention_backward_share": share[1],
                "score_touches_forward": _derived(machine.score_touches[0]),
                "score_touches_backward": _derived(machine.score_touches[1]),
                "elementwise_traffic": _derived(machine.elementwise_traffic),
                "optimizer_traffic": _derived(machine.optimizer_traffic),
                "block_pass": {
                    "value": _seconds(machine.kernel_s * fits.PASSES_OF_A_LAYER),
                    **_derived_as("a launch for each pass between products"),
                },
            },
            "overlaps": dict.fromkeys(("tensor", "context", "expert", "pipeline", "data"), none),
            "spread": self._spread(machine.scatter),
            "unseen": self._spread(2 * machine.scatter),
            "supports": [
                {
                    "status": "runs",
                    "features": [*_RUNS, f"attention {'fused' if fused else 'naive'}"],
                    "source": _SOURCE,
                },
                {"status": "untested", "features": ["anything else"], "source": _NONE},
            ],
        }

    def _spread(self, scatter: float) -> FileTable:
        reach = math.exp(fits.END_OF_80 * scatter)
        return {"source": _SOURCE, "kind": "derived", "low": 1 / reach, "high": reach}

    def _collectives(self, machine: fits.MachineFit) -> FileTable:
        tunings = {exchange.name: self._tuning(exchange) for exchange in machine.exchanges}
        most = {exchange.op: exchange.ranks for exchange in machine.exchanges}
        like_permute = ["permute", "send-receive", "broadcast"]
        rules = [
            {
                **_measured(),
                "algorithm": "ring" if exchange.op in fits.BY_RING else "direct",
                "tuning": exchange.name,
                "ops": like_permute if exchange.op == "permute" else [exchange.op],
                **({} if exchange.ranks == most[exchange.op] else {"ranks_to": exchange.ranks}),
                **({"below": _bytes(exchange.below_bytes)} if exchange.below_bytes else {}),
            }
            for exchange in machine.exchanges
        ]
        return {
            "name": f"{FILE_PREFIX}{self.name}",
            "title": f"Collectives of JAX on {self.name}, as measured",
            "instances": [self.name],
            "fitted_rows": [row.id for row in self.timed.exchanges],
            "default_tuning": machine.exchanges[0].name,
            "sources": self._sources,
            "tunings": tunings,
            "rules": rules,
        }

    def _tuning(self, exchange: fits.ExchangeFit) -> FileTable:
        nothing: FileTable = {"value": "0 s", **_derived_as("within the launch")}
        return {
            **_measured(),
            "launch": _seconds(exchange.launch_s),
            "step": nothing,
            "network_step": nothing,
            "message": nothing,
            "on_chip": exchange.link_share,
            "link": exchange.link_share,
            "network": exchange.link_share,
            "chunk": "1 GiB",
            "chunks": 1,
            "reduce_touches": {"value": 0.0, **_derived_as("within the rate of the links")},
            "slices": 1,
            "pieces": 1,
        }


def _measured() -> FileTable:
    return {"source": _SOURCE, "kind": "measured"}


def _derived_as(note: str) -> FileTable:
    return {"source": _SOURCE, "kind": "derived", "note": note}


def _derived(value: float) -> FileTable:
    return {"value": value, "source": _SOURCE, "kind": "derived"}


def _untimed() -> FileTable:
    return _assumed(0.5, 0.1, 1.0, "no fused kernel was timed, and steps do not use one")


def _assumed(value: object, low: object, high: object, note: str) -> FileTable:
    ends = {"value": value, "low": low, "high": high}
    return {**ends, "source": _NONE, "kind": "assumed", "note": note}


_bytes = partial(exact, dimension=Dimension.BYTES)
_rate = partial(exact, dimension=Dimension.BYTES_PER_S)
_flop = partial(exact, dimension=Dimension.FLOP_PER_S)
_seconds = partial(exact, dimension=Dimension.SECONDS)

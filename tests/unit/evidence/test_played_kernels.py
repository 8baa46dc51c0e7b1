"""Kernels played beside their published times, and beside them with an engine mispriced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trnbench.errors import InputError
from trnbench.evidence import kernels
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernels import compare_kernels
from trnbench.evidence.rows import read_evidence
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.verbs.validate.run import validate

CATALOG = open_catalog()
PUBLISHED = Path(__file__).parents[3] / "workloads" / "published" / "attention_kernels.csv"
FILE = read_evidence(PUBLISHED)
TIMED = {
    "trainium1": "nkisamples-flashfwd-16k",
    "trainium2": "nkilib-cte-lnc1-b1-q4096-k16384-d128-full-bf16",
}
SLOWER = 3
"""How many times as long an engine takes that is mispriced."""


def errors(rows: tuple[Comparison, ...], family: str) -> list[float]:
    return [abs(row.error) for row in rows if row.family == family and row.error is not None]


@pytest.fixture(scope="module")
def played() -> tuple[Comparison, ...]:
    return compare_kernels(CATALOG, FILE, played=True)


@pytest.mark.slow
def test_fused_attention_plays_as_long_as_it_was_measured(played):
    for family, least in (("trainium1 forward", 5), ("trainium2 forward", 30)):
        found = errors(played, family)
        assert len(found) >= least
        assert np.mean(found) < 0.2
        assert np.median(found) < 0.1
    known = {row.id: row for row in played}
    # Causal and full, heads of 64 and 128, one core and two.
    for name in (
        "nkilib-cte-lnc1-b1-q16384-k16384-d128-causal-fp16",
        "nkilib-cte-lnc1-b1-q9216-k9216-d64-full-bf16",
        "nkilib-cte-lnc2-b3-q8192-k8192-d128-causal-fp32",
        "nkisamples-flashfwd-32k-1h",
    ):
        assert abs(known[name].error or 1.0) < 0.12, name


@pytest.mark.slow
def test_rows_say_as_what_they_were_played(played):
    known = {row.id: row for row in played}
    assert known["nkisamples-flashfwd-16k"].played_as == "training kernel"
    row = known["nkilib-cte-lnc1-b1-q9216-k9216-d64-full-bf16"]
    assert row.played_as == "library kernel"
    assert 0.19 < (row.share_of_peak(row.predicted_s) or 0.0) < 0.24
    assert row.share_of_peak(row.closed_s) is not None
    other = known["autocomp-4_attention-step9"]
    assert other.played_as == "training kernel, timed another"
    assert any("timed kernel is another" in what for what in other.assumed)
    assert "a bound that a test asserts" in (known["nkisamples-alloc-bf16"].reason or "")
    assert "what ran was smaller" in (known["nkisamples-flashfwd-16k-swa4096"].reason or "")
    assert [row.id for row in played if row.fitted] == [
        "nkilib-cte-lnc2-b1-q256-k256-d128-causal-bf16"
    ]


def slowed(chip: Chip, engine: str) -> Chip:
    """Return the chip with an engine that takes three times as long."""
    unit = chip.unit
    assert isinstance(unit, NeuronCores)
    if engine == "dma":
        cost = unit.dma.descriptor_overhead_s * SLOWER
        rate = unit.dma.bandwidth_per_engine_bytes_per_s / SLOWER
        dma = replace(unit.dma, descriptor_overhead_s=cost, bandwidth_per_engine_bytes_per_s=rate)
        return replace(chip, cores=replace(unit, dma=dma))
    one = getattr(unit, engine)
    slow = replace(one, clock_hz=one.clock_hz / SLOWER)
    return replace(chip, cores=replace(unit, **{engine: slow}))


def cases() -> Iterator[tuple[str, str]]:
    # On Trainium1 the tensor engine waits for the others two thirds of the time; what it does is
    # counted by hand elsewhere.
    for engine in ("vector", "scalar", "gpsimd"):
        yield "trainium1", engine
    for engine in ("tensor", "vector", "scalar", "dma"):
        yield "trainium2", engine


@pytest.mark.parametrize(("chip", "engine"), cases())
def test_a_mispriced_engine_shows(chip: str, engine: str, monkeypatch):
    file = replace(FILE, rows=tuple(row for row in FILE.rows if row.id == TIMED[chip]))
    (right,) = compare_kernels(CATALOG, file, played=True)

    def loaded(catalog: Catalog, name: str) -> Chip:
        return slowed(load_chip(catalog, name), engine)

    monkeypatch.setattr(kernels, "load_chip", loaded)
    (wrong,) = compare_kernels(CATALOG, file, played=True)
    assert right.error is not None
    assert abs(right.error) < 0.1
    # Either the error is large, or the row is refused as one that no such chip could have run.
    assert wrong.error is None or abs(wrong.error) > 0.2


@pytest.mark.slow
def test_only_kernels_are_played():
    with pytest.raises(InputError, match="plays kernels"):
        validate(set="gpu", engine="emulate")
    products, attention = validate(engine="emulate")
    assert (products.name, attention.name) == ("kernels", "attention")
    ladder = [row for row in products.rows if row.id.startswith("aws-nkimm")]
    assert len(ladder) == 4
    assert all(row.error is not None and abs(row.error) < 0.1 for row in ladder)

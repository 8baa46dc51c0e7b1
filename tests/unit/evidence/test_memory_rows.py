"""Memory of published rows: which rank a log tells of, and what a command line leaves unsaid."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.fit.left_out import without_its_configuration, without_its_family
from trnbench.evidence.fit.population import StrangerStep, kind_of
from trnbench.evidence.rows import read_evidence
from trnbench.evidence.statistics import by_class
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.population import (
    WHOLE,
    KindOfSoftware,
    OfKind,
    SpreadWithout,
    drawn,
)
from trnbench.facts.calibration.software import software_called
from trnbench.facts.calibration.training_stack import generic_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace

CATALOG = open_catalog(environment={})
PUBLISHED = Path(__file__).parents[3] / "workloads" / "published" / "families_2026.csv"
GPT = "MLMG-h100-gpt3-mcore-te-tp1-pp1-resume-torch-dist-dist-optimizer"
GIB = 2.0**30


def compared(tmp_path: Path, *changes: dict[str, str]) -> list[Comparison]:
    """A published row of a small GPT, once for each set of other cells, beside its prediction."""
    with PUBLISHED.open(newline="") as lines:
        first = next(row for row in csv.DictReader(lines) if row["id"] == GPT)
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, [*first, "sequence_parallel"])
        writer.writeheader()
        writer.writerows({**first, "id": f"{i}", **one} for i, one in enumerate(changes))
    return list(compare_training(Reader(CATALOG), read_evidence(path)))


def held(one: Comparison) -> float:
    assert one.memory_predicted_bytes is not None
    return one.memory_predicted_bytes


def test_scores_that_are_dropped_out_keep_five_bytes_each(tmp_path: Path):
    fused, naive = compared(tmp_path, {"attention": "fused"}, {"attention": "naive"})
    # Softmax (2 bytes), mask (1) and what is left of it (2), of 12 layers, 4 x 8 heads, 1024^2.
    scores = 12 * 4 * 8 * 1024**2
    assert held(naive) - held(fused) == pytest.approx(5 * scores, rel=0.08)
    # Two bytes each were kept without dropout, as of releases that nobody dated.
    before, after = compared(
        tmp_path,
        {"attention": "fused", "release": "of long ago"},
        {"attention": "naive", "release": "of long ago"},
    )
    assert held(after) - held(before) == pytest.approx(2 * scores, rel=0.08)


def test_the_last_rank_logs_memory(tmp_path: Path):
    ours, theirs = compared(
        tmp_path,
        {"pp": "4", "dp": "2", "memory_gb": "2.06"},
        {"pp": "4", "dp": "2", "memory_gb": "2.06", "framework": "NeMo"},
    )
    # The last stage holds no other micro-batch, and the logits: by the row of the same shape 2.06.
    assert held(ours) == pytest.approx(2.06 * GIB, rel=0.12)
    assert held(theirs) < 0.8 * held(ours)


def test_its_command_line_cuts_no_tokens_unless_told_so(tmp_path: Path):
    blank, whole, cut = compared(
        tmp_path,
        {"tp": "4", "dp": "2"},
        {"tp": "4", "dp": "2", "sequence_parallel": "0"},
        {"tp": "4", "dp": "2", "sequence_parallel": "1"},
    )
    assert held(blank) == held(whole) > 1.1 * held(cut)
    megatron = software_called(CATALOG, "megatron")
    assert megatron is not None
    assert megatron.command_line is not None
    assert megatron.command_line.holds_of("main 2026-08-22")
    assert not megatron.command_line.holds_of("v2.5 of 2021")
    assert not megatron.command_line.holds_of("")


def steps(family: str, *residuals: float) -> list[StrangerStep]:
    return [StrangerStep(family=family, residual=one, down=0.0, up=0.0) for one in residuals]


def test_a_stranger_holds_memory_as_its_kind_scatters():
    more = [one for name in "abcdefgh" for one in steps(name, 0.0, 0.0, 0.25)]
    kind = kind_of([one for name in "abcdefgh" for one in steps(name, 0.0)], more)
    assert kind.memory is not None
    assert kind.memory.spread.high > 1.15 > 1 / kind.memory.spread.low
    platform = load_platform(CATALOG, "p5.48xlarge")
    stack = drawn(generic_stack(CATALOG, "eager", platform.instance), kind)
    told = stack.provenance.evidence[WHOLE]
    assert told.high == pytest.approx(kind.memory.spread.high * kind.memory.level)
    assert told.low == pytest.approx(kind.memory.spread.low * kind.memory.level)
    assert stack.memory.whole == pytest.approx(kind.memory.level)


def row(**changes: object) -> Comparison:
    known = Comparison(
        id="a",
        set="gpu_training",
        outcome="measured",
        rests_on="population",
        memory_measured_bytes=10.0,
        memory_predicted_bytes=8.0,
        memory_low_bytes=8.0 * 0.9,
        memory_high_bytes=8.0 * 1.2,
    )
    return replace(known, **changes)


def test_memory_is_scored_without_its_family_or_its_configuration():
    scattered = {"families": ("ours",), "rows": 1, "level": 1.0, "without_family": 0.1}
    memory = OfKind(
        **scattered,  # type: ignore[arg-type]
        spread=Spread(low=0.9, high=1.2),
        without={"ours": SpreadWithout(low=0.8, high=1.5, level=1.1)},
    )
    kind = KindOfSoftware(**scattered, spread=Spread(low=1.0, high=1.0), memory=memory)  # type: ignore[arg-type]
    scored = without_its_family(row(), kind, "ours").memory
    assert scored[1:] == pytest.approx((8.8, 8.8 * 0.8, 8.8 * 1.5))
    assert without_its_family(row(), kind, "theirs").memory == row().memory
    scored = without_its_configuration(row(), (), ("a: 1.5 0.5 2",)).memory
    assert scored[1:] == pytest.approx((12.0, 6.0, 24.0))
    errors = by_class([row(), row(id="b", memory_measured_bytes=9.0)], memory=True)
    assert errors["population"].coverage == 0.5

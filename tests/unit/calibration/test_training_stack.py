from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from trnbench.errors import DataFileError, InputError, UnknownNameError
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.coverage import BeyondRows
from trnbench.facts.calibration.hosts import JobRates
from trnbench.facts.calibration.population import Population
from trnbench.facts.calibration.training_stack import (
    CHIP_PREFIX,
    STACK_PREFIX,
    TrainingEfficiency,
    TrainingStack,
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder, open_catalog
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.records import fields, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.ops import Elementwise
from trnbench.program.step import training_step
from trnbench.verbs.spec.run import SPEC_READERS, cross_faults

CATALOG = open_catalog()
CALIBRATION = built_in_folder() / "specs" / "calibration"
INSTANCES = [entry.name for entry in CATALOG.entries("instances")]
CHIPS = [entry.name for entry in CATALOG.entries("chips")]
NAMES = [entry.name for entry in CATALOG.entries("calibration")]
STACKS = {
    name: load_training_stack(CATALOG, name) for name in NAMES if name.startswith(STACK_PREFIX)
}
NXD = STACKS["training-nxd-trn1"]
PRIORS = open_catalog([built_in_folder() / "specs" / "priors"])


def chips_by_file() -> dict[str, ChipEfficiency]:
    found = {}
    for entry in CATALOG.entries("calibration"):
        record = SPEC_READERS["calibration"](entry.path)
        if isinstance(record, ChipEfficiency):
            found[entry.name] = record
    return found


def ends(stack: TrainingStack, path: str) -> tuple[float, float]:
    evidence = stack.provenance.evidence[path]
    assert evidence.low is not None
    assert evidence.high is not None
    return evidence.low, evidence.high


def with_user_file(tmp_path: Path, name: str, text: str) -> Catalog:
    folder = tmp_path / "calibration"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return Catalog((Folder(tmp_path, "user"), Folder(built_in_folder(), BUILT_IN)))


def test_every_instance_is_the_default_of_exactly_one_stack():
    defaults = sorted(name for stack in STACKS.values() for name in stack.default_for)
    assert defaults == sorted(INSTANCES)
    for name in INSTANCES:
        assert name in training_stack_of(CATALOG, name).default_for


def test_every_chip_has_exactly_one_efficiency():
    listed = sorted(chip for record in chips_by_file().values() for chip in record.chips)
    assert listed == sorted(CHIPS)
    for chip in CHIPS:
        assert chip in load_chip_efficiency(CATALOG, chip).chips


@pytest.mark.parametrize("name", NAMES)
def test_a_calibration_is_read_as_what_it_holds_and_names_what_exists(name):
    record: Any = SPEC_READERS["calibration"](CALIBRATION / f"{name}.toml")
    kinds: dict[str, type] = {
        CHIP_PREFIX: ChipEfficiency,
        STACK_PREFIX: TrainingStack,
        "job-": JobRates,
        "beyond-": BeyondRows,
        "population-": Population,
    }
    prefix = name[: name.index("-") + 1]
    assert issubclass(type(record), kinds.get(prefix, CollectiveStack))
    assert list(cross_faults(record, CATALOG)) == []


def test_every_number_has_a_range_around_it_and_every_prior_says_that_it_is_one():
    for stack in STACKS.values():
        numbers = {
            path: evidence
            for path, evidence in stack.provenance.evidence.items()
            if not path.startswith(
                (
                    *("spread.", "unseen.", "untested.", "expert_spread.", "fit.", "releases."),
                    *("covers.", "claimed_mfu", "small_spread."),
                )
            )
        }
        tables = (
            "host.",
            "experts.",
            "efa.",
            "memory.",
            "kernels.attention_call",
            "kernels.attention_head",
            "kernels.adapter_casts",
        )
        stated = (
            *("kernels.attention_forward_keys", "kernels.attention_backward_keys", "host.cores"),
            "kernels.adapter_casts",
        )
        others = [path for path in numbers if path.startswith((*tables, *stated))]
        assert len(numbers) - len(others) == 20
        for path in numbers.keys() - set(stated):
            low, high = ends(stack, path)
            assert low < high, (stack.name, path)
        assert stack.basis != "measured" or stack.fitted_rows
    for name, chip in chips_by_file().items():
        for path, evidence in chip.provenance.evidence.items():
            if path == "attention_keys" or path.startswith("between_chips."):
                continue  # it stands in the kernels' listings; ends of a range have none
            assert None not in (evidence.low, evidence.high), (name, path)


def test_ranges_widen_from_trainium1_to_what_is_taken_over_and_to_what_is_assumed():
    chains = (("nxd-trn1", "nxd-trn2"), ("axlearn-trn2", "torchtitan-trn2"))
    for chain in chains:
        nearer, farther = (STACKS[f"training-{name}"] for name in chain)
        assert farther.inherits_from == nearer.name
        assert farther.spread.low <= nearer.spread.low
        assert farther.spread.high >= nearer.spread.high
        for path in ("factor", "piped_micro_batch", "kernels.attention_forward_share"):
            (low, high), (lowest, highest) = ends(nearer, path), ends(farther, path)
            assert lowest <= low < high <= highest
        assert highest / lowest > high / low


def test_the_slowest_of_sixteen_trainium1_nodes_is_five_percent_late():
    # E[max of n normals] = integral of x n phi(x) Phi(x)^(n-1), by the trapezoidal rule.
    x = np.linspace(-8.0, 8.0, 4001)
    normal = NormalDist()
    density = np.array([16 * normal.pdf(v) * normal.cdf(v) ** 15 for v in x])
    expected = float(np.sum(x * density) * (x[1] - x[0]))
    assert expected == pytest.approx(1.766, abs=0.001)
    scatter = load_training_stack(PRIORS, "nxd-trn1").node_scatter
    assert expected * scatter == pytest.approx(0.05, rel=0.02)


def test_element_wise_bytes_of_a_gated_layer_are_those_the_priors_were_found_with():
    # The study counts 22 T h + 6 T h + 6 T f forward and 1.8 times that backward; f = 3.5 h:
    # 49 * 2.8 = 137.2 bytes a token and channel.
    model = load_model(CATALOG, "llama3.1-8b")
    assert model.transformer is not None
    hidden = model.transformer.hidden
    layout = Layout(global_batch=1, sequence=2048, precision="bf16-master")
    dense = training_step(model, layout).blocks["dense"]
    passes = [op for op in dense.ops if isinstance(op, Elementwise) and op.phase != "optimizer"]
    counted = sum(float(op.bytes * op.count) for op in passes) / (2048 * hidden)
    assert counted == pytest.approx(110.0, rel=1e-3)
    for name, ratio in (("nemo-hopper", 1.0), ("nxd-trn1", 1.2)):
        kernels = load_training_stack(PRIORS, name).kernels
        assert counted * kernels.elementwise_traffic == pytest.approx(ratio * 137.2, rel=0.01)


def test_a_stack_is_found_with_and_without_its_prefix():
    assert load_training_stack(CATALOG, "nxd-trn1") == NXD
    with pytest.raises(UnknownNameError, match="nxd-trn"):
        load_training_stack(CATALOG, "nxd-trn4")


def test_an_instance_without_default_takes_the_first_stack_that_lists_it_or_none(tmp_path):
    table = read_toml(CALIBRATION / "training-nxd-trn1.toml")
    del table["default_for"]
    lab = with_user_file(
        tmp_path, "training-lab", toml_text(table | {"name": "training-lab", "instances": ["lab"]})
    )
    assert training_stack_of(lab, "lab").name == "training-lab"
    with pytest.raises(UnknownNameError, match="unknown instance 'lab'"):
        training_stack_of(CATALOG, "lab")
    with pytest.raises(UnknownNameError, match="unknown chip 'lab'"):
        load_chip_efficiency(CATALOG, "lab")


def test_the_users_calibration_goes_before_the_built_in_one(tmp_path):
    for prefix, old, new in (
        (STACK_PREFIX, "training-nxd-trn1", "training-zebra"),
        (CHIP_PREFIX, "chip-trainium1", "chip-zebra"),
    ):
        text = (CALIBRATION / f"{old}.toml").read_text().replace(f'"{old}"', f'"{new}"')
        catalog = with_user_file(tmp_path, new, text)
        found = (
            training_stack_of(catalog, "trn1.32xlarge")
            if prefix == STACK_PREFIX
            else load_chip_efficiency(catalog, "trainium1")
        )
        assert found.name == new


def test_a_calibration_of_no_known_sort_says_so(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text('name = "odd"\n')
    with pytest.raises(DataFileError, match="cannot tell which calibration this is"):
        SPEC_READERS["calibration"](path)


def test_names_of_nothing_are_faults():
    wrong = replace(
        NXD, instances=("trn9",), default_for=(), collectives="nccl", inherits_from="none"
    )
    paths = {fault.path for fault in cross_faults(wrong, CATALOG)}
    assert paths == {"instances[0]", "collectives", "inherits_from"}
    chip = replace(load_chip_efficiency(CATALOG, "h100"), chips=("h100", "h900"))
    assert [fault.path for fault in cross_faults(chip, CATALOG)] == ["chips[1]"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_for": ("p5.48xlarge",)}, "`default_for` has 'p5.48xlarge'"),
        ({"basis": "transferred"}, "`inherits_from`"),
        ({"factor": -1.0}, "`factor`"),
        ({"fragmentation": float("nan")}, "`fragmentation`"),
        ({"releases": {"2.20": float("inf")}}, r"`releases\.2\.20`"),
        ({"factor": np.ones(2), "step_s": np.ones(3)}, "one length"),
    ],
)
def test_stacks_that_contradict_themselves_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(NXD, **changes)


@pytest.mark.parametrize("wrong", [1.01, np.array([0.5, 1.01])])
def test_overlaps_are_parts_of_a_whole(wrong):
    for field in fields(type(NXD.overlaps)):
        with pytest.raises(ValueError, match="from 0 to 1"):
            replace(NXD, overlaps=replace(NXD.overlaps, **{field.name: wrong}))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.1), (1.01, 1.1), (0.9, 0.99)])
def test_a_spread_is_around_one(low, high):
    with pytest.raises(ValueError, match="`low` must be above 0"):
        replace(NXD.spread, low=low, high=high)


def test_a_release_multiplies_the_factor():
    chip = load_chip_efficiency(CATALOG, "trainium1")
    chip = replace(chip, releases={"2.18": 1.2, "2.20": 1.1})
    plain = replace(NXD, release=None, releases={})
    assert TrainingEfficiency(chip=chip, stack=plain).whole_factor == NXD.factor
    shared = replace(plain, factor=1.2, release="2.20")
    assert TrainingEfficiency(chip=chip, stack=shared).whole_factor == pytest.approx(1.32)
    # A stack that lists releases of its own, as old files do, goes by these.
    own = replace(shared, releases={"2.20": 0.9})
    assert TrainingEfficiency(chip=chip, stack=own).whole_factor == pytest.approx(1.08)


def test_a_release_of_which_nothing_is_known_is_refused():
    chip = load_chip_efficiency(CATALOG, "trainium1")
    stack = replace(NXD, release="2.44", releases={})
    with pytest.raises(InputError, match=r"no release '2\.44' is known; did you mean '2\.24'\?"):
        TrainingEfficiency(chip=replace(chip, releases={"2.24": 1.1}), stack=stack)
    # A chip of which no release is told has no effect of any.
    silent = TrainingEfficiency(chip=replace(chip, releases={}), stack=stack)
    assert silent.whole_factor == NXD.factor


def test_samples_of_chip_kernels_and_stack_have_one_length():
    chip = load_chip_efficiency(CATALOG, "trainium1")
    plain = TrainingEfficiency(chip=chip, stack=NXD)
    assert plain.samples is None
    assert plain.compute.samples is None
    three = np.array([0.1, 0.2, 0.3])
    overlapping = replace(NXD, overlaps=replace(NXD.overlaps, tensor=three))
    assert TrainingEfficiency(chip=chip, stack=overlapping).samples == 3
    of_chip = replace(chip, memory_share=three)
    assert TrainingEfficiency(chip=of_chip, stack=NXD).compute.samples == 3
    two = replace(NXD, kernels=replace(NXD.kernels, block_pass_s=three[:2]))
    with pytest.raises(ValueError, match=r"`chip\.memory_share` 3, `kernels\.block_pass_s` 2"):
        TrainingEfficiency(chip=of_chip, stack=two)

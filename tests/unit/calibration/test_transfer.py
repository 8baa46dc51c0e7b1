"""What carries over to chips and machines that nobody measured, by the stated rule."""

from __future__ import annotations

import re

import pytest

from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.calibration.training_stack import (
    load_chip_efficiency,
    load_training_stack,
    training_stack_of,
)
from trnbench.facts.calibration.transfer import (
    most_of,
    nearest_chip,
    taken_over,
    widened,
    wider_ends,
)
from trnbench.facts.catalog.provenance import Evidence, Kind, Provenance
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.library import load_instance

BUILT = built_in_folder()
CATALOG = Catalog((Folder(BUILT, BUILT_IN),))


def with_user_chip(tmp_path, like, chip_name, instance_like, instance_name):
    for section, old, new in (
        ("chips", like, chip_name),
        ("instances", instance_like, instance_name),
    ):
        text = (BUILT / "specs" / section / f"{old}.toml").read_text()
        text = re.sub(r"(?m)^(name\s*= ).*$", rf'\g<1>"{new}"', text, count=1)
        text = re.sub(r"(?m)^(chip\s*= ).*$", rf'\g<1>"{chip_name}"', text, count=1)
        text = re.sub(r"(?m)^(aliases|published_as)\s*=.*$", r"\g<1> = []", text)
        (tmp_path / section).mkdir(exist_ok=True)
        (tmp_path / section / f"{new}.toml").write_text(text)
    return Catalog((Folder(tmp_path, "user"), Folder(BUILT, BUILT_IN)))


def test_a_range_grows_in_its_logarithm():
    # Twice 0.8 below and twice 1.25 above, in logarithms, is 0.64 and 1.5625.
    assert wider_ends(1.0, 0.8, 1.25, 2.0) == pytest.approx((0.64, 1.5625))
    assert wider_ends(0.9, 0.8, 0.95, 2.0, most=1.0) == pytest.approx((0.9 * (8 / 9) ** 2, 1.0))


def test_a_range_from_nothing_grows_in_itself():
    assert wider_ends(0.2, 0.0, 0.4, 2.0) == pytest.approx((0.0, 0.6))
    assert wider_ends(0.2, 0.0, 0.7, 2.0, most=most_of("overlaps.tensor")) == pytest.approx((0, 1))


def test_what_is_handed_on_is_estimated_at_best():
    one = Evidence(text="1", source="s", kind=Kind.MEASURED, low=0.8, high=1.25)
    bare = Evidence(text="1", source="s", kind=Kind.VENDOR)
    found = widened(Provenance(evidence={"factor": one, "other": bare}), 2.0).evidence
    assert found["factor"].kind is Kind.ESTIMATED
    assert (found["factor"].low, found["factor"].high) == pytest.approx((0.64, 1.5625))
    assert found["other"] == bare


def test_a_users_trainium_takes_after_the_nearest_trainium(tmp_path):
    catalog = with_user_chip(tmp_path, "trainium2", "lab-chip", "trn2.48xlarge", "lab")
    assert nearest_chip(catalog, "lab-chip", ["trainium1", "trainium2", "h100"]) == "trainium2"
    chip = load_chip_efficiency(catalog, "lab-chip")
    known = load_chip_efficiency(CATALOG, "trainium2")
    assert chip.inherits_from == known.name
    assert chip.tensor_share == known.tensor_share
    before = known.provenance.evidence["memory_share"]
    after = chip.provenance.evidence["memory_share"]
    ends = [after.low, before.low, before.high, after.high]
    assert None not in ends
    assert ends == sorted(set(ends), key=lambda end: end or 0.0)
    stack = training_stack_of(catalog, "lab")
    assert stack.inherits_from == "training-torchtitan-trn2"
    assert stack.basis == "assumed"


def test_a_users_gpu_machine_takes_over_what_was_measured(tmp_path):
    catalog = with_user_chip(tmp_path, "h100", "lab-chip", "p5.48xlarge", "lab")
    stack = training_stack_of(catalog, "lab")
    known = load_training_stack(CATALOG, "nemo-hopper")
    assert stack.inherits_from == known.name
    assert (known.basis, stack.basis) == ("measured", "transferred")
    assert stack.spread.low <= known.spread.low
    assert stack.spread.high > known.spread.high
    assert stack.spread == known.unseen


def test_only_chips_with_like_units_come_near():
    with pytest.raises(InputError, match="no calibrated chip has compute units"):
        nearest_chip(CATALOG, "trainium1", ["h100", "a100-80gb"])


def test_a_measured_stack_is_taken_over_on_other_machines_and_for_other_models():
    stack = load_training_stack(CATALOG, "nemo-hopper")
    assert stack.fitted_on == ("dgx-h100", "hgx-h100")
    assert stack.basis_on("dgx-h100") == "measured"
    assert stack.basis_on("p5.48xlarge") == "transferred"
    assert stack.basis_on("dgx-h100", "decoder") == "measured"
    assert stack.basis_on("dgx-h100", "decoder with experts") == "transferred"
    at_home, elsewhere = stack.spread_on("dgx-h100"), stack.spread_on("p5.48xlarge")
    assert at_home == stack.spread
    assert stack.unseen is not None
    assert stack.unseen.low <= elsewhere.low <= at_home.low
    assert at_home.high < elsewhere.high < stack.unseen.high
    assert stack.spread_on("dgx-h100", "decoder with experts") == stack.expert_spread
    assert stack.spread_on("dgx-h100", "encoder") == stack.unseen


def own_instance(tmp_path, name, text):
    (tmp_path / "instances").mkdir(exist_ok=True)
    (tmp_path / "instances" / f"{name}.toml").write_text(
        f'name = "{name}"\nprovider = "own"\n{text}'
    )
    return Catalog((Folder(tmp_path, "user"), Folder(BUILT, BUILT_IN)))


OWNER = """
source = "owner"
kind = "vendor"
sources.owner = { title = "Its owner", date = 2026-01-02 }
"""


@pytest.mark.parametrize(
    ("like", "changed", "communication", "training"),
    [
        ("dgx-h100", "", "collective-nccl-hopper", "training-nemo-hopper"),
        ("p4de.24xlarge", "", "collective-nccl-ampere-efa", "training-nemo-ampere"),
        ("dgx-a100", 'fabric.infiniband.transport = "efa"', "collective-nccl-ampere-efa", None),
        ("p4de.24xlarge", 'fabric.efa.transport = "rdma"', "collective-nccl-ampere", None),
        ("dgx-b200", "", "collective-nccl-blackwell", "training-nemo-blackwell"),
        ("trn2.48xlarge", "", "collective-neuron-trn2", "training-torchtitan-trn2"),
        ("dgx-a100", 'chip = "h100"', "collective-nccl-hopper", "training-nemo-hopper"),
    ],
)
def test_an_own_instance_is_served_by_chip_and_kind_of_fabric(
    tmp_path, like, changed, communication, training
):
    catalog = own_instance(tmp_path, "lab", f'like = "{like}"\n{changed}\n{OWNER}')
    assert stack_of(catalog, "lab").name == communication
    if training:
        assert training_stack_of(catalog, "lab").name == training


def test_the_same_chip_on_the_same_fabric_is_half_way_to_one_that_nobody_measured(tmp_path):
    catalog = own_instance(tmp_path, "lab", f'like = "dgx-h100"\n{OWNER}')
    known = load_training_stack(CATALOG, "nemo-hopper")
    assert known.unseen is not None
    found = training_stack_of(catalog, "lab")
    assert found.spread.low == pytest.approx((known.spread.low * known.unseen.low) ** 0.5)
    assert found.provenance == known.provenance
    assert found.basis == "transferred"
    # No machine with this chip has such a network: the numbers' own ranges grow too.
    text = f'like = "grand-teton-h100"\nfabric.roce.transport = "efa"\n{OWNER}'
    other = own_instance(tmp_path, "far", text)
    titan = load_training_stack(CATALOG, "torchtitan-hopper")
    assert training_stack_of(other, "far").spread == titan.unseen
    assert training_stack_of(other, "far").provenance != titan.provenance


def test_words_name_what_was_taken_over_from_whom(tmp_path):
    catalog = own_instance(tmp_path, "lab", f'like = "dgx-h100"\nchip = "h200"\n{OWNER}')
    lab = load_instance(catalog, "lab")
    (words,) = taken_over(
        catalog, lab, {"one": ["dgx-h100"], "two": ["lab"], "three": ["dgx-h100"]}
    )
    assert words == (
        "one and three were not made for lab: carried over from dgx-h100 (another chip (h100), "
        "the same kind of links between chips, the same kind of network), with wider ranges"
    )


def test_a_chip_of_ones_own_keeps_the_stack_of_its_family(tmp_path):
    # Half the memory bandwidth: nearer to a B200 by its balance and links than to any Hopper.
    text = (CATALOG.find("chips", "h100").path).read_text()
    text = re.sub(r"^name = .*", 'name = "slow-h100"', text, count=1, flags=re.M)
    text = re.sub(r"^aliases = .*\n", "", text, flags=re.M)
    text = re.sub(r'(bandwidth_per_chip) = "3.35 TB/s"', r'\1 = "1.675 TB/s"', text)
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "slow-h100.toml").write_text(text)
    catalog = own_instance(tmp_path, "mine", f'like = "p5.48xlarge"\nchip = "slow-h100"\n{OWNER}')
    assert training_stack_of(catalog, "mine").name == "training-nemo-hopper"

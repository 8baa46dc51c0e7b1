from typing import Any

import numpy as np
import pytest

from trnbench.errors import DataFileError
from trnbench.facts.calibration.chip_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    KernelEfficiency,
)
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.provenance import Kind, Sourced
from trnbench.facts.records import fields, replace

CHIP = ChipEfficiency(
    name="chip",
    title="chip",
    chips=("hand",),
    tensor_share=0.8,
    half_share_depth=250.0,
    narrow_share=0.9,
    memory_share=0.75,
)
KERNELS = KernelEfficiency(
    attention_forward_share=0.5,
    attention_backward_share=0.4,
    score_touches_forward=5.5,
    score_touches_backward=8.5,
    elementwise_traffic=1.1,
    optimizer_traffic=0.9,
    block_pass_s=30e-6,
)
NUMBERS = [
    (record, field.name)
    for record in (CHIP, KERNELS)
    for field in fields(type(record))
    if isinstance(getattr(record, field.name), float)
]
SOURCES = """
[sources]
prior = { title = "Priors", date = 2026-11-21 }
"""


class Library(Sourced):
    """A file that holds the efficiency of kernels in a table."""

    name: str
    kernels: KernelEfficiency


def number(text: str) -> str:
    return f'{{ value = {text}, source = "prior", kind = "assumed", low = {text}, high = {text} }}'


def written(tmp_path, head, numbers):
    listed = "\n".join(f"{key} = {number(text)}" for key, text in numbers.items())
    path = tmp_path / "hand.toml"
    path.write_text(f'name = "hand"\n{head}\n{listed}\n{SOURCES}')
    return path


CHIP_HEAD = 'title = "chip"\nchips = ["hand"]'
CHIP_NUMBERS = {
    "tensor_share": "0.8",
    "half_share_depth": "250",
    "narrow_share": "0.9",
    "memory_share": "0.75",
}
KERNEL_NUMBERS = {
    "kernels.attention_forward_share": "0.5",
    "kernels.attention_backward_share": "0.4",
    "kernels.score_touches_forward": "5.5",
    "kernels.score_touches_backward": "8.5",
    "kernels.elementwise_traffic": "1.1",
    "kernels.optimizer_traffic": "0.9",
    "kernels.block_pass": '"30 us"',
}


def test_both_records_are_read_from_files_with_their_evidence(tmp_path):
    read = load(written(tmp_path, CHIP_HEAD, CHIP_NUMBERS), ChipEfficiency)
    assert replace(read, name="chip") == CHIP
    assert set(read.provenance.evidence) == set(CHIP_NUMBERS)
    assert read.provenance.weakest() is Kind.ASSUMED
    library = load(written(tmp_path, "", KERNEL_NUMBERS), Library)
    assert library.kernels == KERNELS
    assert set(library.provenance.evidence) == set(KERNEL_NUMBERS)


@pytest.mark.parametrize(
    ("record", "head", "numbers"),
    [(ChipEfficiency, CHIP_HEAD, CHIP_NUMBERS), (Library, "", KERNEL_NUMBERS)],
)
def test_no_efficiency_has_a_default(tmp_path, record, head, numbers):
    for gone in numbers:
        rest = {key: text for key, text in numbers.items() if key != gone}
        with pytest.raises(DataFileError) as caught:
            load(written(tmp_path, head, rest), record)
        assert [(fault.path, fault.message) for fault in caught.value.faults] == [(gone, "missing")]


@pytest.mark.parametrize(("record", "name"), NUMBERS)
@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_what_is_no_efficiency_is_refused_alone_and_among_samples(record, name, wrong):
    with pytest.raises(ValueError, match=name):
        replace(record, **{name: wrong})
    with pytest.raises(ValueError, match=name):
        replace(record, **{name: np.array([0.5, wrong])})


@pytest.mark.parametrize("wrong", [0.0, 1.01])
def test_shares_are_parts_of_a_whole(wrong):
    shares = [(record, name) for record, name in NUMBERS if name.endswith("share")]
    assert len(shares) == 10
    for record, name in shares:
        whole: dict[str, Any] = {name: 1.0}
        assert getattr(replace(record, **whole), name) == 1
        if wrong == getattr(CHIP, name, None):
            continue  # 0 says that no kernel of the chip was timed
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            replace(record, **{name: wrong})


def test_samples_have_one_length_in_one_row():
    assert ComputeEfficiency(chip=CHIP, kernels=KERNELS).samples is None
    three = replace(CHIP, memory_share=np.array([0.6, 0.7, 0.8]))
    assert ComputeEfficiency(chip=three, kernels=KERNELS).samples == 3
    two = replace(KERNELS, block_pass_s=np.array([1e-5, 2e-5]))
    with pytest.raises(ValueError, match=r"`memory_share` 3, `block_pass_s` 2"):
        ComputeEfficiency(chip=three, kernels=two)
    with pytest.raises(ValueError, match="one length"):
        replace(three, tensor_share=np.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="one row"):
        replace(CHIP, memory_share=np.full((2, 2), 0.5))

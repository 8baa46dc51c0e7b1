"""Native PyTorch on Trainium2: its names, and how narrow an interval of one chip may be."""

from __future__ import annotations

import pytest

from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.setup import train_setup

CATALOG = open_catalog()
NAMES = {
    "TorchNeuron native (torch.compile, backend neuron)": "torchneuron-trn2",
    "native PyTorch": "torchneuron-trn2",
    "TorchNeuron native, eager": "torchneuron-eager-trn2",
    "TorchTitan": "torchtitan-trn2",
}


@pytest.mark.parametrize("framework", NAMES)
def test_what_publications_call_it(framework):
    found = Stacks(CATALOG).of(framework, "", load_platform(CATALOG, "trn2.3xlarge"))
    assert (found.own, found.stack.short_name) == (True, NAMES[framework])


def test_no_interval_of_one_chip_is_narrower_than_chips_differ():
    layout = Layout(dp=8, global_batch=64, sequence=1024, precision="bf16-master", zero=1)
    tight = Spread(low=0.99, high=1.01)
    found = {}
    for name in ("trn2.3xlarge", "trn2.48xlarge"):
        setup = train_setup(CATALOG, "tinyllama-1.1b", name, 1, stack="torchneuron-trn2")
        stack = replace(setup.stack, spread=tight, unseen=tight, untested=None, covers=None)
        efficiency = replace(setup.efficiency, stack=stack)
        found[name] = replace(setup, efficiency=efficiency).spread_in(layout)
    chips = setup.efficiency.chip.between_chips
    assert chips is not None
    assert chips.high >= 1.128
    assert found == {"trn2.3xlarge": chips, "trn2.48xlarge": tight}

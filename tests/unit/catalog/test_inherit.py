"""Files that are like others: what they take over, what they say instead, and how they fail."""

from __future__ import annotations

import os

import pytest

from trnbench.errors import DataFileError
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.fabric import Switch
from trnbench.facts.hardware.library import load_chip, load_instance

HEAD = """
name = "{name}"
like = "{like}"
provider = "own"
source = "owner"
kind = "vendor"
sources.owner = {{ title = "Its owner", date = 2026-01-02 }}
"""


def catalog_with(folder, *, section="instances", **texts):
    (folder / section).mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / section / f"{name}.toml").write_text(text)
    return Catalog((Folder(folder, "user"), Folder(built_in_folder(), BUILT_IN)))


def adapters_of(instance):
    return network_of(instance).adapters


def network_of(instance):
    assert instance.network is not None
    return instance.network


def own(name="mine", like="dgx-h100", more=""):
    return HEAD.format(name=name, like=like) + more


def test_what_a_file_does_not_say_is_that_of_the_other(tmp_path):
    catalog = catalog_with(tmp_path, mine=own())
    mine, base = load_instance(catalog, "mine"), load_instance(catalog, "dgx-h100")
    assert (mine.chip, mine.chips, mine.fabric) == (base.chip, base.chips, base.fabric)
    assert mine.host.vcpus == base.host.vcpus
    assert mine.title == "like dgx-h100"


def test_a_file_has_its_own_names_and_no_statements_on_the_whole_of_another(tmp_path):
    mine = load_instance(catalog_with(tmp_path, mine=own()), "mine")
    assert mine.published_as == ()
    assert mine.provider == "own"
    assert mine.totals.memory_bytes is None
    assert mine.host.network_bandwidth_bytes_per_s is None


def test_levels_of_the_fabric_change_by_name(tmp_path):
    more = """
chips = 4
[fabric.nvlink]
chips = 4
[fabric.infiniband]
adapters = 4
"""
    catalog = catalog_with(tmp_path, mine=own(more=more))
    mine, base = load_instance(catalog, "mine"), load_instance(catalog, "dgx-h100")
    (switch, _) = mine.fabric
    assert isinstance(switch, Switch)
    assert (mine.chips, switch.chips, adapters_of(mine)) == (4, 4, 4)
    assert network_of(mine).step_latency_s == network_of(base).step_latency_s
    evidence = mine.provenance.evidence
    assert evidence["fabric[1].adapters"].source == "owner"
    latency = evidence["fabric[1].step_latency"]
    assert latency.source == "nccl-tuning, as in dgx-h100"
    assert latency.kind is Kind.ESTIMATED
    assert latency.low == pytest.approx(2.7e-6)
    assert mine.provenance.sources[latency.source].title.startswith("NCCL src")


def test_sources_of_one_name_are_told_apart(tmp_path):
    more = """
[sources]
dgx-h100-datasheet = { title = "Another", date = 2026-01-02 }
[host]
source = "dgx-h100-datasheet"
kind = "measured"
vcpus = 96
"""
    text = (
        own(more=more)
        .replace('source = "owner"\nkind = "vendor"\n', "")
        .replace('sources.owner = { title = "Its owner", date = 2026-01-02 }\n', "")
    )
    mine = load_instance(catalog_with(tmp_path, mine=text), "mine")
    found = mine.provenance
    assert found.sources[found.evidence["host.vcpus"].source].title == "Another"
    memory = found.evidence["host.memory"]
    assert (memory.kind, memory.source) == (Kind.VENDOR, "dgx-h100-datasheet, as in dgx-h100")
    assert found.sources[memory.source].title == "NVIDIA DGX H100 datasheet"


def test_a_file_may_be_like_one_that_is_like_another(tmp_path):
    first = own("first", more="[fabric.infiniband]\nadapters = 4\n")
    catalog = catalog_with(tmp_path, first=first, second=own("second", like="first"))
    second = load_instance(catalog, "second")
    assert adapters_of(second) == 4
    evidence = second.provenance.evidence
    assert evidence["fabric[1].adapters"].source == "owner, as in first"
    assert evidence["chips"].source == "dgx-h100-datasheet, as in dgx-h100"


def test_a_chip_may_be_like_another(tmp_path):
    text = own("big-h100", like="h100", more='[memory]\ncapacity_per_chip = "96 GiB"\n')
    text = text.replace('provider = "own"\n', "")
    catalog = catalog_with(tmp_path, section="chips", **{"big-h100": text})
    mine, base = load_chip(catalog, "big-h100"), load_chip(catalog, "h100")
    assert mine.memory.capacity_per_chip_bytes == 96 * 2**30
    assert mine.peak_flop_per_s("bf16") == base.peak_flop_per_s("bf16")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (own(like="dgx-h10"), "mine.toml: like: unknown instance 'dgx-h10'; did you mean"),
        (own(like="mine"), "mine.toml: like: a circle: mine -> mine"),
        (own(like="other"), "mine.toml: like: a circle: mine -> other -> mine"),
        (own().replace('"dgx-h100"', "3"), "mine.toml: like: expected the name of another"),
        (own(more="[fabric.roce]\nadapters = 4\n"), "fabric.roce: not in the file that this one"),
        (own(more="[fabric.infiniband]\nadapter = 4\n"), "fabric.infiniband.adapter: unknown key"),
        (
            own(more='[fabric.infiniband]\nbandwidth_per_adapter_one_way = "400"\n'),
            "fabric.infiniband.bandwidth_per_adapter_one_way: '400' has no unit",
        ),
        (own().replace('source = "owner"', "") + "chips = 4\n", "without `source`"),
    ],
)
def test_a_fault_is_one_line_with_file_and_key(tmp_path, text, fault):
    catalog = catalog_with(tmp_path, mine=text, other=own("other", like="mine"))
    with pytest.raises(DataFileError) as caught:
        load_instance(catalog, "mine")
    assert fault in caught.value.message
    assert "\n" not in caught.value.message


def test_a_fault_of_the_other_file_names_that(tmp_path):
    other = own("other", more="[fabric.infiniband]\nadapter = 4\n")
    catalog = catalog_with(tmp_path, mine=own(like="other"), other=other)
    with pytest.raises(DataFileError, match=r"other\.toml: fabric\.infiniband\.adapter"):
        load_instance(catalog, "mine")


def test_a_change_of_the_other_file_is_seen(tmp_path):
    catalog = catalog_with(tmp_path, mine=own(like="other"), other=own("other"))
    assert adapters_of(load_instance(catalog, "mine")) == 8
    changed = tmp_path / "instances" / "other.toml"
    changed.write_text(own("other", more="[fabric.infiniband]\nadapters = 2\n"))
    os.utime(changed, ns=(1, 1))
    assert adapters_of(load_instance(catalog, "mine")) == 2

"""Every number that the project's five founding documents state about a system is in the specs.

One row a number: what the document says, and where a reader of `spec show` meets it - as the value
used, or in a conflict that names the document, or as a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import load_chip, load_instance
from trnbench.show.formats import render
from trnbench.show.sheet import sheet_report
from trnbench.show.text_table import PLAIN
from trnbench.verbs.spec.run import sheet

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))

LAUNCH = "AWS Neuron adds support for Amazon EC2 Trn1 instances (announcement)"
OVERVIEW = "Amazon EC2 Trn1 Instances, overview"
FAMILY = "AWS Trainium family overview (blog post"
TRN1 = "AWS Neuron docs as of 2023, Trn1 "
TRN2 = "AWS Neuron docs, Amazon EC2 Trn2 architecture"

VALUE = "value "
CONFLICT = "conflict "
CLAIM = "claim"


@dataclass(frozen=True)
class Said:
    """A number in a document: where the spec has it, and the text a reader finds there."""

    document: str
    says: str
    spec: str
    where: str
    text: str


NUMBERS = [
    # The launch announcement of October 2022
    Said(LAUNCH, "up to 50%", "trn1.32xlarge", CLAIM, "up to 50% savings"),
    Said(LAUNCH, "up to 50%", "trn1.2xlarge", CLAIM, "up to 50% savings"),
    Said(LAUNCH, "up to 50%", "trainium1", CLAIM, "up to 50% savings"),
    Said(LAUNCH, "800 Gbps", "trn1.32xlarge", VALUE + "totals.network_bandwidth", "800 Gbit/s"),
    Said(LAUNCH, "800 Gbps", "trn1.32xlarge", CONFLICT + "totals.network_band", "800 Gbit/s"),
    # The overview of the Trainium family
    Said(FAMILY, "up to 50%", "trainium1", CLAIM, "up to 50%"),
    Said(FAMILY, "up to 50%", "trn1.32xlarge", CLAIM, "up to 50%"),
    Said(
        FAMILY, "3 PF FP8", "trn1.32xlarge", CONFLICT + "totals.dense.fp8_e4m3", "3 PFLOP/s of FP8"
    ),
    Said(FAMILY, "512 GB", "trn1.32xlarge", CONFLICT + "totals.memory", "512 GB"),
    Said(FAMILY, "1.6 Tbps", "trn1n.32xlarge", VALUE + "totals.network_bandwidth", "1,600 Gbit/s"),
    Said(FAMILY, "1.6 Tbps", "trn1.32xlarge", CONFLICT + "totals.network_band", "1.6 Tbit/s"),
    Said(FAMILY, "up to 4x", "trainium2", CLAIM, "up to 4x the performance"),
    Said(FAMILY, "up to 4x", "trn2.48xlarge", CLAIM, "up to 4x the performance"),
    Said(FAMILY, "20.8 PF", "trn2.48xlarge", VALUE + "totals.dense.fp8_e4m3", "20.8 PFLOP/s"),
    Said(FAMILY, "1.5 TB HBM3", "trn2.48xlarge", CONFLICT + "totals.memory", "1.5 TB HBM3"),
    Said(FAMILY, "46 TBps", "trn2.48xlarge", CONFLICT + "totals.memory_bandwidth", "46 TB/s"),
    Said(FAMILY, "83.2 PF", "trn2-ultraserver", CONFLICT + "totals.dense.fp8", "83.2 PFLOP/s"),
    Said(FAMILY, "6 TB HBM3", "trn2-ultraserver", CONFLICT + "totals.memory", "6 TB HBM3"),
    Said(FAMILY, "185 TBps", "trn2-ultraserver", CONFLICT + "totals.memory_bandwidth", "185 TB/s"),
    Said(FAMILY, "12.8 Tbps", "trn2-ultraserver", VALUE + "totals.network_band", "12.8 Tbit/s"),
    Said(FAMILY, "64 chips", "trn2-ultraserver", VALUE + "chips", "64"),
    Said(FAMILY, "four instances", "trn2-ultraserver", VALUE + "hosts", "4"),
    Said(FAMILY, "4x sparsity (16:4)", "trainium2", CLAIM, "4x sparsity (16:4)"),
    Said(FAMILY, "4x sparsity", "trainium2", VALUE + "sparsity.speedup.4:16", "4"),
    Said(FAMILY, "16:4", "trainium2", CONFLICT + "sparsity.patterns", "16:4"),
    Said(FAMILY, "over 100,000 models", "trainium1", CLAIM, "over 100,000 models"),
    Said(FAMILY, "30-40%", "trn2.48xlarge", CLAIM, "30-40% better price-performance"),
    # Trn1 architecture: the prose
    Said(TRN1, "16 devices", "trn1.32xlarge", VALUE + "chips", "16"),
    Said(TRN1, "4D-HyperCube", "trn1.32xlarge", CONFLICT + "fabric[1].topology", "4D-HyperCube"),
    Said(TRN1, "2D Torus", "trn1.32xlarge", CONFLICT + "fabric[1].topology", "2D Torus"),
    Said(TRN1, "over 30,000", "trn1.32xlarge", CONFLICT + "fabric[2].max_chips", "over 30,000"),
    Said(TRN1, "over 30,000", "trn1.32xlarge", CLAIM, "over 30,000 Trainium devices"),
    # Trn1 architecture: its table, trn1.2xlarge
    Said(TRN1, "1", "trn1.2xlarge", VALUE + "chips", "1"),
    Said(TRN1, "8", "trn1.2xlarge", VALUE + "host.vcpus", "8"),
    Said(TRN1, "32", "trn1.2xlarge", VALUE + "host.memory", "32 GiB"),
    Said(TRN1, "210", "trn1.2xlarge", CONFLICT + "totals.dense.bf16", "210 TFLOP/s"),
    Said(TRN1, "210", "trainium1", CONFLICT + "headline_per_chip.bf16", "210 TFLOP/s"),
    Said(TRN1, "210", "trainium1", CONFLICT + "headline_per_chip.fp8", "210 TFLOP/s"),
    Said(TRN1, "52.5", "trn1.2xlarge", CONFLICT + "totals.dense.fp32", "52.5 TFLOP/s"),
    Said(TRN1, "52.5", "trainium1", CONFLICT + "headline_per_chip.fp32", "52.5 TFLOP/s"),
    Said(TRN1, "32", "trn1.2xlarge", VALUE + "totals.memory", "32 GiB"),
    Said(TRN1, "820", "trn1.2xlarge", CONFLICT + "totals.memory_bandwidth", "820 GiB/s"),
    Said(TRN1, "820", "trainium1", CONFLICT + "memory.bandwidth_per_chip", "820 GiB/s"),
    Said(TRN1, "up-to 25", "trn1.2xlarge", CONFLICT + "host.network_bandwidth", "25 Gbit/s"),
    # Trn1 architecture: its table, trn1.32xlarge
    Said(TRN1, "16", "trn1.32xlarge", VALUE + "chips", "16"),
    Said(TRN1, "128", "trn1.32xlarge", VALUE + "host.vcpus", "128"),
    Said(TRN1, "512", "trn1.32xlarge", VALUE + "host.memory", "512 GiB"),
    Said(TRN1, "3,360", "trn1.32xlarge", CONFLICT + "totals.dense.bf16", "3,360 TFLOP/s"),
    Said(TRN1, "3,360", "trn1.32xlarge", CONFLICT + "totals.dense.fp8_e4m3", "3,360 TFLOP/s"),
    Said(TRN1, "840", "trn1.32xlarge", CONFLICT + "totals.dense.fp32", "840 TFLOP/s"),
    Said(TRN1, "512", "trn1.32xlarge", VALUE + "totals.memory", "512 GiB"),
    Said(TRN1, "13,120", "trn1.32xlarge", CONFLICT + "totals.memory_bandwidth", "13,120 GiB/s"),
    Said(TRN1, "800", "trn1.32xlarge", VALUE + "totals.network_bandwidth", "800 Gbit/s"),
    # The overview of Trn1 instances: the prose
    Said(OVERVIEW, "16 chips", "trn1.32xlarge", VALUE + "chips", "16"),
    Said(
        OVERVIEW, "3 PF", "trn1.32xlarge", CONFLICT + "totals.dense.bf16", "3 PFLOP/s of FP16/BF16"
    ),
    Said(OVERVIEW, "two NeuronCores", "trainium1", VALUE + "cores.count", "2"),
    Said(OVERVIEW, "512 GB", "trn1.32xlarge", CONFLICT + "totals.memory", "512 GB"),
    Said(OVERVIEW, "9.8 TB/s", "trn1.32xlarge", CONFLICT + "totals.memory_bandwidth", "9.8 TB/s"),
    Said(OVERVIEW, "9.8 TB/s", "trainium1", CONFLICT + "memory.bandwidth_per_chip", "9.8 TB/s"),
    Said(OVERVIEW, "800 Gbps", "trn1.32xlarge", CONFLICT + "totals.network_band", "800 Gbit/s"),
    Said(OVERVIEW, "up to 50%", "trn1.32xlarge", CLAIM, "up to 50% cost-to-train savings"),
    Said(OVERVIEW, "up to 50%", "trn1.2xlarge", CLAIM, "up to 50% cost-to-train savings"),
    # The overview of Trn1 instances: its table
    Said(OVERVIEW, "8", "trn1.2xlarge", VALUE + "host.vcpus", "8"),
    Said(OVERVIEW, "1", "trn1.2xlarge", VALUE + "chips", "1"),
    Said(OVERVIEW, "32 GB", "trn1.2xlarge", CONFLICT + "totals.memory", "32 GB"),
    Said(OVERVIEW, "32 GB", "trainium1", CONFLICT + "memory.capacity_per_chip", "32 GB"),
    Said(
        OVERVIEW, "up to 12.5 Gbps", "trn1.2xlarge", CONFLICT + "host.network", "up to 12.5 Gbit/s"
    ),
    Said(OVERVIEW, "500 GB", "trn1.2xlarge", CONFLICT + "host.local_storage", "500 GB"),
    Said(OVERVIEW, "128", "trn1.32xlarge", VALUE + "host.vcpus", "128"),
    Said(OVERVIEW, "16", "trn1.32xlarge", VALUE + "chips", "16"),
    Said(OVERVIEW, "512 GB", "trn1.32xlarge", CONFLICT + "totals.memory", "512 GB"),
    Said(OVERVIEW, "800 Gbps", "trn1.32xlarge", VALUE + "totals.network_band", "800 Gbit/s"),
    Said(OVERVIEW, "2 TB", "trn1.32xlarge", CONFLICT + "host.local_storage", "2 TB"),
    # Trn2 architecture: the prose
    Said(TRN2, "4x4", "trn2.48xlarge", VALUE + "fabric[1].shape[0]", "4"),
    Said(TRN2, "4x4", "trn2.48xlarge", VALUE + "fabric[1].shape[1]", "4"),
    Said(TRN2, "4x4", "trn2u.48xlarge", VALUE + "fabric[1].shape[0]", "4"),
    Said(TRN2, "four trn2u.48xlarge", "trn2-ultraserver", VALUE + "hosts", "4"),
    Said(TRN2, "ring across instances", "trn2-ultraserver", VALUE + "fabric[2].shape[0]", "4"),
    # Trn2 architecture: its table, both columns
    *(
        said
        for name in ("trn2.48xlarge", "trn2u.48xlarge")
        for said in (
            Said(TRN2, "16", name, VALUE + "chips", "16"),
            Said(TRN2, "192", name, VALUE + "host.vcpus", "192"),
            Said(TRN2, "2,048", name, VALUE + "host.memory", "2,048 GiB"),
            Said(TRN2, "20.8", name, VALUE + "totals.dense.fp8_e4m3", "20.8 PFLOP/s"),
            Said(TRN2, "10.7", name, VALUE + "totals.dense.bf16", "10.7 PFLOP/s"),
            Said(TRN2, "10.7", name, VALUE + "totals.dense.fp16", "10.7 PFLOP/s"),
            Said(TRN2, "10.7", name, VALUE + "totals.dense.tf32", "10.7 PFLOP/s"),
            Said(TRN2, "41", name, VALUE + "totals.sparse.bf16", "41 PFLOP/s"),
            Said(TRN2, "41", name, VALUE + "totals.sparse.fp8_e4m3", "41 PFLOP/s"),
            Said(TRN2, "2.9", name, VALUE + "totals.dense.fp32", "2.9 PFLOP/s"),
            Said(TRN2, "1,536", name, VALUE + "totals.memory", "1,536 GiB"),
            Said(TRN2, "46.4", name, VALUE + "totals.memory_bandwidth", "46.4 TB/s"),
            Said(TRN2, "1,024", name, VALUE + "totals.link_bandwidth", "1,024 GB/s"),
            Said(TRN2, "3,200", name, VALUE + "totals.network_bandwidth", "3,200 Gbit/s"),
        )
    ),
    Said(TRN2, "64", "trn2-ultraserver", VALUE + "chips", "64"),
    Said(TRN2, "768", "trn2-ultraserver", VALUE + "host.vcpus", "768"),
    Said(TRN2, "8,192", "trn2-ultraserver", VALUE + "host.memory", "8,192 GiB"),
    Said(TRN2, "83.2", "trn2-ultraserver", VALUE + "totals.dense.fp8_e4m3", "83.2 PFLOP/s"),
    Said(TRN2, "42.8", "trn2-ultraserver", VALUE + "totals.dense.bf16", "42.8 PFLOP/s"),
    Said(TRN2, "42.8", "trn2-ultraserver", VALUE + "totals.dense.fp16", "42.8 PFLOP/s"),
    Said(TRN2, "42.8", "trn2-ultraserver", VALUE + "totals.dense.tf32", "42.8 PFLOP/s"),
    Said(TRN2, "164", "trn2-ultraserver", VALUE + "totals.sparse.bf16", "164 PFLOP/s"),
    Said(TRN2, "164", "trn2-ultraserver", VALUE + "totals.sparse.fp8_e4m3", "164 PFLOP/s"),
    Said(TRN2, "11.6", "trn2-ultraserver", VALUE + "totals.dense.fp32", "11.6 PFLOP/s"),
    Said(TRN2, "6,144", "trn2-ultraserver", VALUE + "totals.memory", "6,144 GiB"),
    Said(TRN2, "185.6", "trn2-ultraserver", VALUE + "totals.memory_bandwidth", "185.6 TB/s"),
    Said(TRN2, "1,024", "trn2-ultraserver", CONFLICT + "totals.link", "1,024 GB/s within"),
    Said(TRN2, "256", "trn2-ultraserver", CONFLICT + "totals.link", "256 GB/s between"),
    Said(TRN2, "3,200", "trn2-ultraserver", CONFLICT + "totals.network", "3,200 Gbit/s"),
]


def _load(name: str) -> Chip | Instance:
    if any(entry.name == name for entry in CATALOG.entries("chips")):
        return load_chip(CATALOG, name)
    return load_instance(CATALOG, name)


def _sheet(record: Chip | Instance) -> Iterator[tuple[str, str, str]]:
    """Yield (where, text, title of its source) of all that the file lets a reader see."""
    provenance = record.provenance
    titles = {name: source.title for name, source in provenance.sources.items()}
    for path, evidence in provenance.evidence.items():
        yield VALUE + path.replace('"', ""), evidence.text, titles[evidence.source]
    for conflict in provenance.conflicts:
        for reading in conflict.values:
            yield CONFLICT + conflict.field, reading.value, titles[reading.source]
    for claim in provenance.claims:
        yield CLAIM, claim.text, titles[claim.source]


def _holds(shown: str, text: str, where: str) -> bool:
    return shown == text if where.startswith(VALUE) else text in shown


@pytest.mark.parametrize("said", NUMBERS, ids=lambda s: f"{s.spec}-{s.where}-{s.says}")
def test_a_number_of_a_seed_document_is_in_the_specs(said):
    found = [
        title
        for where, shown, title in _sheet(_load(said.spec))
        if where.startswith(said.where) and _holds(shown, said.text, said.where)
    ]
    assert found, f"{said.spec} lacks {said.text!r} at {said.where!r}"
    if not said.where.startswith(VALUE):
        assert any(title.startswith(said.document) for title in found), found


@pytest.mark.parametrize("spec", sorted({said.spec for said in NUMBERS}))
def test_spec_show_prints_them_all(spec):
    shown = sheet_report("spec-show", sheet(CATALOG, spec, ("instances", "chips")))
    text = " ".join(render(shown, "table", PLAIN).decode().split())
    for said in NUMBERS:
        assert said.spec != spec or said.text in text, said


def test_purchase_options_of_the_launch_announcement_are_offered():
    options = {"on-demand", "reserved", "spot", "savings-plan"}
    for name in ("trn1.2xlarge", "trn1.32xlarge"):
        assert options <= set(load_instance(CATALOG, name).purchase)


def test_number_formats_of_the_seed_documents_are_taken():
    launch = {"fp32", "tf32", "fp16", "bf16"}
    assert launch <= set(load_chip(CATALOG, "trainium1").formats)
    configurable_fp8 = {"fp8_e4m3", "fp8_e5m2", "fp8_e3m4"}
    for name in ("trainium1", "trainium2"):
        assert launch | configurable_fp8 <= set(load_chip(CATALOG, name).formats)
        assert "sr" in load_chip(CATALOG, name).rounding.modes

"""Claims as data: figures and multiples as texts, one check each, faults told with their place."""

from __future__ import annotations

import pytest

from trnbench.errors import DataFileError, UnitError
from trnbench.evidence.claims.claim import load_claims, measure, multiple, threshold
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip, load_instance
from trnbench.facts.units import Dimension
from trnbench.verbs.spec.run import SPEC_READERS, cross_faults, section_of

CATALOG = open_catalog(environment={})
HEAD = """
name = "mine"
title = "Mine"
rounding = { value = "2.5%", source = "s", kind = "estimated" }

[sources]
s = { title = "A page", date = 2026-01-01 }
"""
GOOD = """
[[statement]]
id = "one"
said = [{ text = "it is big", by = "s" }]
figure = { instances = ["trn1.32xlarge"], figures = ["memory_bytes"], claimed = "512 GB" }
"""


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + text)
    return path


def faults(tmp_path, text):
    with pytest.raises(DataFileError) as raised:
        load_claims(written(tmp_path, text))
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("text", "value", "dimension", "other_value"),
    [
        ("512 GB", 512e9, Dimension.BYTES, 512 * 2**30),
        ("13,120 GiB/s", 13120 * 2**30, Dimension.BYTES_PER_S, 13120e9),
        ("800 Gbit/s", 100e9, Dimension.BYTES_PER_S, None),
        ("3 PFLOP/s", 3e15, Dimension.FLOP_PER_S, None),
        ("64", 64, Dimension.COUNT, None),
    ],
)
def test_a_figure_is_read_in_either_reading_of_its_prefix(text, value, dimension, other_value):
    found = measure(text)
    assert found.value == pytest.approx(value)
    assert found.dimension is dimension
    assert found.other_value == (None if other_value is None else pytest.approx(other_value))


@pytest.mark.parametrize("text", ["fast", "3 parsecs", "3 Gb/s"])
def test_what_is_no_figure_is_refused(text):
    with pytest.raises(UnitError):
        measure(text)


def test_gains_as_advantages():
    # Half the cost: theirs is twice ours. 30 % more for the money: 1.3 times. 4x: four times.
    assert threshold("saving", "50%") == pytest.approx(2)
    assert threshold("better", "30%") == pytest.approx(1.3)
    assert threshold("times", "4x") == multiple("4x") == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace('by = "s"', 'by = "t"'), "source 't' is not in [sources]"),
        (GOOD + GOOD, "'one' is given twice"),
        (GOOD.replace("512 GB", "512"), None),
        (GOOD.replace("512 GB", "512 parsecs"), "is not a quantity"),
        (GOOD + 'untold = { why = "x" }\n', "found figure, untold"),
        (GOOD.partition("figure")[0], "found none"),
        (GOOD.partition("figure")[0] + 'figur = { claimed = "1" }\n', "unknown key"),
        (
            GOOD.partition("figure")[0]
            + 'speed = { runs = ["r"], of = ["a"], to = ["b"], times = "2x" }\n',
            "no run 'r' in the file",
        ),
        (
            GOOD.partition("figure")[0]
            + 'price = { instances = ["a"], option = "spot", on = 2026-01-01, saving = "5%" }\n',
            "another option or another day",
        ),
        (
            GOOD.partition("figure")[0]
            + 'cost = { runs = ["r"], of = ["a"], to = ["b"], options = ["spot"] }\n',
            "either `saving` or `better`",
        ),
    ],
)
def test_faults_are_told(tmp_path, text, told):
    if told is None:
        assert load_claims(written(tmp_path, text)).statement[0].kind == "figure"
    else:
        assert any(told in fault for fault in faults(tmp_path, text))


def test_names_of_nothing_are_found(tmp_path):
    text = GOOD.replace("trn1.32xlarge", "trn1.32xlarg")
    (fault,) = cross_faults(load_claims(written(tmp_path, text)), CATALOG)
    assert (fault.path, "did you mean" in fault.message) == ("statement[0].figure", True)


def test_a_file_of_claims_is_known_by_its_contents():
    assert section_of({"name": "x", "statement": []}) == "claims"
    assert SPEC_READERS["claims"] is load_claims


def test_every_claim_that_the_specs_quote_is_examined():
    examined = {
        saying.text
        for entry in CATALOG.entries("claims")
        for statement in load_claims(entry.path).statement
        for saying in statement.said
    }
    quoted = {
        (record.name, claim.text)
        for section, load in (("chips", load_chip), ("instances", load_instance))
        for entry in CATALOG.entries(section)
        for record in (load(CATALOG, entry.name),)
        for claim in record.provenance.claims
    }
    assert len(quoted) >= 15
    assert {(name, text) for name, text in quoted if text not in examined} == set()

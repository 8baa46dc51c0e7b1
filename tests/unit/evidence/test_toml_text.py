"""Tables written as TOML read back as what they were."""

from __future__ import annotations

import datetime

import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.evidence.toml_text import toml_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"))
SCALARS = st.one_of(
    TEXTS,
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.dates(min_value=datetime.date(1900, 1, 1)),
)
ENTRIES = st.builds(lambda value, note: {"value": value, "note": note}, SCALARS, TEXTS)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=4), ENTRIES)
KEYS = TEXTS.filter(bool)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(KEYS, st.dictionaries(KEYS.filter(lambda k: k != "value"), VALUES), max_size=3),
)
def test_a_table_reads_back(plain, sections):
    table = {**plain, **{f"section {key}": value for key, value in sections.items()}}
    assert tomli.loads(toml_text(table)) == table


def test_headings_stand_behind_what_has_none():
    text = toml_text({"spread": {"low": 0.9}, "name": "x", "step": {"value": "20 ms", "low": 1}})
    assert text == 'name = "x"\nstep = { value = "20 ms", low = 1 }\n\n[spread]\nlow = 0.9\n'


def test_a_long_list_has_a_line_for_each_item():
    text = toml_text({"rows": ["a" * 60, "b" * 60]})
    assert text.splitlines() == ["rows = [", f'  "{"a" * 60}",', f'  "{"b" * 60}",', "]"]

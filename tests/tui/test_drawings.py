"""What is drawn in characters: bars, heat maps, planes of a torus, ticks of an axis."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from trnbench.app.collective_steps import Plane
from trnbench.tui.heat import HeatMap, draw_heat, level_of
from trnbench.tui.layout_questions import Window
from trnbench.tui.torus import draw_planes
from trnbench.tui.widgets.bars import Bar, BarsData, cells_of, draw_bars, letters_for
from trnbench.tui.widgets.chart import MOST_TICKS, binary_ticks, flowed, log_ticks

PLAIN = (Style(), Style(), Style(), Style(), Style())


def test_every_part_has_a_letter_of_its_own():
    letters = letters_for(("data", "dispatch", "attention", "add"))
    assert letters == {"data": "D", "dispatch": "I", "attention": "A", "add": "B"}


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8), st.floats(0.01, 3.0))
def test_parts_fill_the_rounded_length_of_a_bar(values, scale):
    parts = {str(i): value for i, value in enumerate(values)}
    cells = cells_of(parts, scale)
    assert sum(cells.values()) == round(sum(value * scale for value in values))
    for name, value in parts.items():
        assert abs(cells[name] - value * scale) <= 1


def test_bars_stand_on_one_scale_with_limit_total_and_shares():
    data = BarsData(
        title="memory",
        bars=(
            Bar(label="a", parts={"weights": 30.0, "rest": 10.0}, limit=80.0, strong=True),
            Bar(label="bb", parts={"weights": 20.0, "rest": 0.0}, limit=80.0),
        ),
        text=lambda value: f"{value:.0f}",
        letters=letters_for(("weights", "rest")),
    )
    styles = dict.fromkeys(("weights", "rest"), Style())
    # Room: 60 - 4 of labels - 12 of totals = 44 for 80, so 0.55 a unit: 16.5 and 22 cells.
    lines = draw_bars(data, 60, styles).plain.splitlines()
    assert lines[1] == ">a  " + "W" * 16 + "R" * 6 + " " * 22 + "| 40"
    assert lines[2] == " bb " + "W" * 11 + " " * 33 + "| 20"
    assert "W weights 75.0%" in lines[4]
    assert "R rest 25.0%" in lines[4]


def test_parts_are_named_in_words():
    data = BarsData(
        title="step",
        bars=(Bar(label="a", parts={"element_wise": 2.0}),),
        text=str,
        letters=letters_for(("element_wise",)),
    )
    drawn = draw_bars(data, 40, {"element_wise": Style()}).plain
    assert "E element-wise 100.0%" in drawn


def test_a_legend_breaks_between_its_entries_only():
    entries = [(f"{mark} instance.{mark}", Style()) for mark in "ox+*"]
    # 12 columns each and 2 between: three are 40 wide, a fourth would be 54.
    assert flowed(entries, 40).plain.splitlines() == [
        "o instance.o  x instance.x  + instance.+",
        "* instance.*",
    ]
    assert "\n" not in flowed(entries, 54).plain


@pytest.mark.parametrize(("share", "level"), [(0.0, 0), (0.25, 1), (0.6, 2), (0.9, 4), (1.0, 4)])
def test_levels_of_a_heat_map(share, level):
    assert level_of(share) == level


def test_a_heat_map_says_its_numbers_and_what_cannot_run():
    heat = HeatMap(
        title="trainium1 bf16",
        rows=(128, 512),
        columns=(128, 512),
        values={(128, 128): 0.123, (128, 512): 0.5, (512, 128): 0.95, (512, 512): None},
    )
    lines = draw_heat([heat], ("m", "n"), 80, PLAIN).plain.splitlines()
    assert lines[2].split() == ["128", "12", "50:"]
    assert lines[3].split() == ["512", "95#", "no"]


TORUS = Plane(
    name="torus 0",
    shape=(2, 2),
    right=(1.0, 0.25, 0.5, 0.0),
    below=(0.0, 0.75, 1.0, 0.5),
    onward=(0.1, 0.2, 0.3, 0.4),
)


def test_planes_stand_beside_each_other_where_there_is_room():
    wide = draw_planes([TORUS, TORUS], 200, PLAIN[:3]).plain
    narrow = draw_planes([TORUS, TORUS], 30, PLAIN[:3]).plain
    assert wide.splitlines()[0].count("torus 0") == 2
    assert narrow.splitlines()[0].count("torus 0") == 1
    assert "0 -100- 1 - 25-" in wide
    assert wide.splitlines()[-3].split() == ["10", "20", "10", "20"]


@given(st.floats(-9, 12), st.floats(0.05, 20))
def test_ticks_of_a_logarithmic_axis_are_few_round_and_inside(low, width):
    ticks = log_ticks(low, low + width)
    assert 2 <= len(ticks) <= MOST_TICKS + 1
    assert all(low - 1e-6 <= tick <= low + width + 1e-6 for tick in ticks)
    assert ticks == sorted(ticks)


def test_sizes_have_ticks_at_powers_of_two():
    # From 1 KiB to 1 GiB there are 21 powers; every fifth is round.
    ticks = binary_ticks(math.log10(1024), math.log10(2**30))
    assert [round(10**tick) for tick in ticks] == [2**10, 2**15, 2**20, 2**25, 2**30]


def test_a_window_zooms_around_its_middle_and_stays_inside():
    half = Window().zoomed(0.5)
    assert (half.start, half.end) == (0.25, 0.75)
    assert half.moved(10) == Window(start=0.5, end=1.0)
    assert half.moved(-10) == Window(start=0.0, end=0.5)
    assert half.zoomed(4).whole

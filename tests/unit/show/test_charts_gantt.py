"""Gantt charts of played schedules: slots where they belong, nothing cut in silence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.emulate.schedule.timeline import timeline
from trnbench.engines.emulate.schedule.times import (
    EndingTimes,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
)
from trnbench.program.schedule import slot_order
from trnbench.program.slots import Lane, SlotTimes
from trnbench.show.charts.gantt import gantt_text
from trnbench.show.text_table import PLAIN, Style
from trnbench.verbs.train.schedule_chart import schedule_figure

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
NETWORK: Lane = "network"


def gantt(seen, style=PLAIN, **drawn):
    return gantt_text(schedule_figure(seen, **drawn), style)


def played(schedule, pp, vpp, micro_batches, *, exchange=0.0, ending=(0.0, 0.0, 0.0), slot=1.0):
    lanes = (NETWORK,) * pp
    shares = Shares(forward=0.5, backward=0.5, weight=0.5)
    gradients, optimizer, parameters = ending
    exchanges = SlotTimes(forward_s=exchange, backward_s=exchange, weight_s=0)
    times = StageTimes(
        compute=SlotTimes(forward_s=slot, backward_s=slot, weight_s=slot),
        collectives=(SlotCollective(name="tensor", lane="links", times=exchanges),),
        sends=Sends(
            forward_s=exchange,
            backward_s=exchange,
            latency_s=0,
            forward_lane=lanes,
            backward_lane=lanes,
        ),
        ending=EndingTimes(gradients_s=gradients, optimizer_s=optimizer, parameters_s=parameters),
    )
    rules = OverlapRules(
        sends=1,
        gradients=0,
        parameters=0,
        optimizer_waits_for_all=False,
        collectives={"tensor": shares},
    )
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    return timeline(order, times, rules)


def test_1f1b_on_two_stages_column_by_column():
    # 12 s on 48 columns, 4 a second; forward 1 s and backward 2 s:
    #   stage 0  |F0  |F1  |.........|B0       |F2  |B1       |....|B2       |
    #   stage 1  |....|F0  |B0       |F1  |B1       |F2  |B2       |
    chart = gantt(played("1f1b", 2, 1, 3), Style(width=65)).splitlines()
    assert chart[1] == "stage 0 |F0--F1--        B0======F2--B1======    B2======|   25 %"
    assert chart[2] == "stage 1 |    F0--B0======F1--B1======F2--B2======        |   25 %"
    assert chart[4].split() == ["s", "0", "2", "4", "6", "8", "10"]
    # Ticks of 2 s are 8 columns apart, under the frame's first column 0.
    assert [at for at, tick in enumerate(chart[3][9:]) if tick == "+"] == [0, 8, 16, 24, 32, 40]


def test_a_window_is_drawn_larger():
    # The first half of the chart above: 6 s on 48 columns, 8 a second.
    chart = gantt(played("1f1b", 2, 1, 3), Style(width=65), window_s=(0.0, 6.0)).splitlines()
    assert chart[1] == f"stage 0 |F0------F1------{' ' * 16}B0{'=' * 14}|   25 %"
    assert chart[4].split() == ["s", "0", "1", "2", "3", "4", "5"]
    late = gantt(played("1f1b", 2, 1, 3), Style(width=65), window_s=(10.0, 12.0)).splitlines()
    assert late[1] == f"stage 0 |B2{'=' * 46}|   25 %"
    assert late[2] == f"stage 1 |{' ' * 48}|   25 %"


def test_weights_ending_and_idle_time_have_signs_of_their_own():
    chart = gantt(played("zb-h1", 2, 1, 4, ending=(1, 1, 1)), Style(width=120))
    rows = {letter for line in chart.splitlines()[1:3] for letter in line}
    assert set("FBWOgp0123") <= rows
    assert "W weight gradients" in chart
    assert "O optimizer" in chart
    assert "blank: waiting" in chart


def test_lanes_show_what_moves_beside_compute():
    chart = gantt(played("1f1b", 2, 1, 3, exchange=0.25), Style(width=100), lanes=True)
    heads = [line.split("|")[0].strip() for line in chart.splitlines()[1:]]
    assert heads[:6] == ["stage 0", "links", "network", "stage 1", "links", "network"]
    lanes = [line.split("|")[1] for line in chart.splitlines()[1:7]]
    assert "t" in lanes[1]
    assert ">" in lanes[2]
    assert "<" in lanes[5]
    assert "> message forward" in chart


def test_chunks_are_named_where_there_are_several():
    chart = gantt(played("interleaved", 2, 2, 2), Style(width=160))
    assert "F0.0" in chart
    assert "B1.1" in chart
    assert "B3.1: micro-batch 3, chunk 1" in chart


def test_the_middle_of_a_long_step_is_left_out_and_said_to_be():
    # 200 micro-batches of 3 s behind one another, and a fill of 1 s + a drain of 2 s: 603 s.
    chart = gantt(played("1f1b", 2, 1, 200), Style(width=100))
    first = chart.splitlines()[1].split("|")[1]
    assert first.count(":") == 1
    assert first.startswith("F0")
    assert "B19" in first.split(":")[1]
    told = chart.splitlines()[-1]
    start, end = (float(number) for number in re.findall(r"([\d.]+) to ([\d.]+) s", told)[0])
    assert end - start == pytest.approx(603 * float(re.findall(r"\((\d+) %", told)[0]) / 100, 0.01)


def test_many_stages_are_thinned_and_said_to_be():
    chart = gantt(played("gpipe", 70, 1, 8), Style(width=120), rows=16).splitlines()
    stages = [line for line in chart if line.startswith("stage")]
    assert len(stages) == 16
    assert stages[0].startswith("stage 0 ")
    assert stages[-1].startswith("stage 69 ")
    assert "16 of 70 stages are drawn" in chart


def test_colour_adds_nothing_but_colour():
    seen = played("zb-h1", 4, 1, 8, exchange=0.1, ending=(1, 1, 1))
    plain = gantt(seen, Style(width=120), lanes=True)
    coloured = gantt(seen, Style(width=120, colour=True), lanes=True)
    assert coloured != plain
    assert ESCAPE.sub("", coloured) == plain
    assert plain.isascii()
    assert all(line.count("\x1b[") % 2 == 0 for line in coloured.splitlines())


def test_nothing_played_is_nothing_to_draw():
    assert gantt(played("1f1b", 2, 1, 3, slot=0.0)) == "nothing to draw"


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1"]),
    st.integers(2, 40),
    st.integers(1, 6),
    st.integers(80, 200),
    st.booleans(),
    st.floats(1e-9, 1e6),
)
def test_every_chart_fits_its_width(schedule, pp, groups, width, lanes, slot):
    vpp = 2 if schedule == "interleaved" else 1
    seen = played(schedule, pp, vpp, groups * pp, exchange=slot / 9, slot=slot, ending=(slot,) * 3)
    lines = gantt(seen, Style(width=width), lanes=lanes).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if "|" in line]
    assert len({len(line.split("|")[1]) for line in rows}) == 1
    assert len(rows) <= 32


def test_slots_narrower_than_a_column_show_what_takes_most_of_it():
    # Filling 60 stages takes 59 s on some 25 columns: 1 s forward and 2 s backward are narrower.
    chart = gantt(played("1f1b", 60, 1, 300), Style(width=80), rows=60).splitlines()
    start, end = chart[30].split("|")[1].split(":")
    assert set(start + end) == set("FB ")
    assert start.strip().startswith("FF")
    assert end.count("B") > end.count("F")
    assert end.endswith("  ")

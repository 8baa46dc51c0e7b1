"""Time of a cold compilation of a layout's graphs, where software compiles whole graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.facts.calibration.compiler import Compiler
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import DEGREES, Layout
from trnbench.predict.graph_size import graph_instructions
from trnbench.predict.prices import programs_of
from trnbench.predict.setup import TrainSetup

CompileSeconds: TypeAlias = tuple[float, float, float]
"""Seconds of the compiler: expected, and the ends of their range."""


def compile_s(setup: TrainSetup, layouts: Iterable[Layout]) -> CompileSeconds | None:
    """Cold compilation of a layout, the mean of some; None where nothing is compiled before."""
    each = compile_each_s(setup, tuple(layouts))
    if not each:
        return None
    value, low, high = np.mean(each, 0)
    return float(value), float(low), float(high)


def compile_each_s(setup: TrainSetup, layouts: Sequence[Layout]) -> list[CompileSeconds]:
    """Cold compilation of each layout; empty where nothing is compiled before."""
    compiler, chip = setup.graph_compiler, setup.platform.chip
    if compiler is None:
        return []
    # Layouts of the same modes are lowered together, as one grid.
    alike: dict[Layout, list[int]] = {}
    for place, layout in enumerate(layouts):
        modes = replace(layout, schedule="1f1b", **dict.fromkeys(DEGREES, 1))
        alike.setdefault(modes, []).append(place)
    found = [0.0] * len(layouts)
    for places in alike.values():
        program = programs_of(setup.model, [layouts[place] for place in places])
        sizes = np.broadcast_to(graph_instructions(program, chip, compiler), len(places))
        for place, size in zip(places, sizes.tolist(), strict=True):
            found[place] = size
    return [compile_time_s(compiler, size) for size in found]


def compile_time_s(compiler: Compiler, instructions: float) -> CompileSeconds:
    """Cold compilation of a graph: centre, low and high, seconds."""
    of_size = (instructions / 1e6) ** compiler.compile_exponent
    centre, low, high = _ends(compiler, "compile", compiler.compile_s)
    return centre * of_size, low * of_size, high * of_size


def warm_time_s(compiler: Compiler) -> CompileSeconds:
    """Reading of compiled graphs from a cache: centre, low and high, seconds."""
    return _ends(compiler, "warm", compiler.warm_s)


def _ends(compiler: Compiler, key: str, value: float) -> CompileSeconds:
    evidence = compiler.provenance.evidence[key]
    return value, evidence.low or value, evidence.high or value

"""What is asked of a collective: operations on clusters over sizes, and beside what."""

from __future__ import annotations

import math
import re

from trnbench.errors import InputError, UnitError
from trnbench.facts import parsing
from trnbench.facts.parsing import read
from trnbench.facts.records import Record, fields
from trnbench.facts.units import Dimension, parse
from trnbench.facts.workload.operation import Op
from trnbench.facts.workload.suite import Place
from trnbench.machine.fabric import LinkFault
from trnbench.program.collective import op_named

MAX_SIZES = 10_000
LARGEST_BYTES = 2.0**60
_FAULT = re.compile(r"(\d{1,9})-(\d{1,9}|net)(?:=(.+))?")


class Neighbour(Record):
    """Another collective that runs at the same time; `groups` as in a request."""

    op: Op
    size_bytes: float
    groups: str | None = None


class CollectiveRequest(Record):
    """What to run: every operation on every place at every size by every engine.

    `groups`: "16" for consecutive groups of 16 ranks, "16@32" for groups whose ranks are 32 apart,
    or lists such as "0-7;8-15"; all ranks in one group unless given.
    """

    ops: tuple[Op, ...]
    places: tuple[Place, ...]
    sizes_bytes: tuple[float, ...]
    engines: tuple[str, ...] = ("analytic",)
    ranks: int | None = None
    groups: str | None = None
    algorithm: str | None = None
    stack: str | None = None
    logical_size: int | None = None
    number_format: str = "fp32"
    faults: tuple[LinkFault, ...] = ()
    links: bool = False
    check: bool = False
    seed: int = 0
    trace: bool = False
    beside: tuple[Neighbour, ...] = ()


def sizes_between(smallest: float, largest: float, factor: float) -> tuple[float, ...]:
    """Return sizes from the smallest to the largest, each `factor` times the one before, bytes."""
    if not smallest > 0:
        raise InputError("the smallest size must be positive")
    if largest < smallest:
        raise InputError("the largest size is below the smallest")
    if largest > LARGEST_BYTES:
        raise InputError("the largest size is above 1 EiB")
    if not 1 < factor < math.inf:
        raise InputError("the factor between sizes must be above 1, and finite")
    if round(smallest) < 1:
        raise InputError("sizes are whole bytes; the smallest must be at least 1 byte")
    count = math.floor(math.log(largest / smallest, factor) + 1e-9) + 1
    if count > MAX_SIZES:
        raise InputError(f"{count:,} sizes are too many; at most {MAX_SIZES:,}: raise the factor")
    return tuple(float(round(smallest * factor**i)) for i in range(count))


def read_sizes(
    smallest: float | str | None, largest: float | str | None, factor: float | str | None
) -> tuple[float, ...]:
    """Return sizes in bytes; without ends and factor from 1 KiB to 1 GiB by 4."""
    return sizes_between(
        read(parsing.size("--min-size"), "1KiB" if smallest is None else smallest),
        read(parsing.size("--max-size"), "1GiB" if largest is None else largest),
        read(parsing.count("--factor"), 4.0 if factor is None else factor),
    )


def read_neighbour(text: str) -> Neighbour:
    """Return the collective of OP:SIZE or OP:SIZE:GROUPS."""
    op, _, rest = text.partition(":")
    size, _, groups = rest.partition(":")
    size_bytes = parsing.size("--beside")(size)
    return Neighbour(op=op_named(op), size_bytes=size_bytes, groups=groups or None)


def read_fault(text: str) -> LinkFault:
    """Return the fault of A-B, A-net or A-B=SHARE."""
    match = _FAULT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail-link: cannot read {text!r}; write A-B, A-net, or A-B=0.5")
    try:
        factor = parse(match[3], Dimension.RATIO) if match[3] else 0.0
    except UnitError as error:
        raise InputError(f"--fail-link: {error.message}") from None
    target = None if match[2] == "net" else int(match[2])
    return LinkFault(source=int(match[1]), target=target, factor=factor)


def inputs_of(request: CollectiveRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    plain = {f.name: getattr(request, f.name) for f in fields(request)}
    return plain | {
        "places": [f"{place.instance}:{place.nodes}" for place in request.places],
        "faults": [f"{f.source}-{f.target}={f.factor}" for f in request.faults],
        "beside": [f"{n.op}:{n.size_bytes:.0f}:{n.groups or ''}" for n in request.beside],
    }

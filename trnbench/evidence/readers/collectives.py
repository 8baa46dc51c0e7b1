"""Sweeps of collectives by nccom-test and nccl-tests, text or JSON, as rows of evidence.

Both count sizes as nccl-tests does and print a bus bandwidth. Its ratio to the plain bandwidth
gives the group's size and, if nothing else does, the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trnbench.errors import InputError
from trnbench.evidence.readers.readings import refuse_unread
from trnbench.evidence.rows import EvidenceFile, EvidenceRow
from trnbench.facts.catalog.foreign import FAILURES, json_value, reads, why
from trnbench.facts.catalog.text_file import chunks, read_text, refused
from trnbench.facts.records import Record, State, field
from trnbench.facts.units import counted
from trnbench.facts.workload.choices import OPS, Op
from trnbench.program.collective import bus_factor, op_named

MAX_BYTES = 64_000_000
_HEAD_BYTES = 4 << 20
_NCCOM, _NCCL = "nccom-test", "nccl-tests"
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std\w+>:|\[?rank ?\d+\]?:|\d+: )+")
"""Line prefixes of launchers: mpirun --tag-output, torchrun, srun --label."""
_NCCL_HEADING = re.compile(r"#\s+size\s+count\s+type\s+redop\s+root\s+(time|cputime)\s+algbw")
_NCCL_ROW = re.compile(
    r"(\d{1,18})\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+([\d.e+]+)\s+([\d.e+]+|nan)\s+([\d.e+]+|nan)\b\s*(.*)"
)
_WRONG = re.compile("#wrong")
"""Column of wrong elements in nccl-tests; older versions print an error instead."""
_NCCL_RANK = re.compile(r"#\s+Rank\s+\d+ ")
_COMMAND = re.compile(r"\b(\w{1,40})_perf\b|nccom-test\b([^\n]*)")
_LONGEST_LINE = 4096
"""Examined characters per line: rows have some hundred, commands a few more."""
_FAILED = "Failure running"
_AGREE = 0.05
"""Tolerated difference of printed bandwidth from size over time; below 1 GB/s too coarse to check.
"""
_UNITS = (1e9, 2.0**30)
"""GB/s, and the GB/s of older nccom-test."""
_COARSE = 1.0


class MeasuredCluster(Record):
    """Place of collectives: instance, nodes and ranks; Neuron, or GPUs."""

    instance: str
    nodes: int
    ranks: int
    neuron: bool


class _Timed(Record):
    """A timed size; `ratio` is bus over plain bandwidth, where both are printed."""

    size: int
    dtype: str
    time_us: float
    statistic: str
    ratio: float | None
    algorithm: str = ""
    reduces: bool | None = None


class _Sweep(State):
    """Contents of a file: sizes, named operation, and unreadable lines."""

    tool: str
    timed: list[_Timed] = field(default_factory=list)
    op: str = ""
    ranks: int = 0
    failed: int = 0
    zero: int = 0
    wrong: int = 0
    unread: list[str] = field(default_factory=list)


def is_sweep(path: Path) -> bool:
    head = next(chunks(path, what="text", size=_HEAD_BYTES), b"").decode(errors="replace")
    words = ("size(B)", '"out_of_place"', '"nccl_version"')
    return any(word in head for word in words) or bool(_NCCL_HEADING.search(head))


@reads("a sweep of collectives")
def read_sweep(path: Path, where: MeasuredCluster) -> EvidenceFile:
    """A sweep of collectives as evidence; `where` adds the place, which no file states."""
    text = read_text(path, what="text", max_bytes=MAX_BYTES)
    sweep = _of_json(path, text) if text.lstrip().startswith("{") else _of_text(text)
    rows = len(sweep.timed) + len(sweep.unread)
    first = next(iter(sweep.unread), "")
    said = f"{counted(rows, 'row')} of {sweep.tool}"
    refuse_unread(path, len(sweep.unread), rows, said, first)
    if sweep.wrong and not sweep.timed:
        raise refused(
            path,
            f"all its {counted(sweep.wrong, 'size')} came out wrong (#wrong above 0); measure "
            "again once `-c 1` finds no error",
        )
    if not sweep.timed:
        why = f": {counted(sweep.failed, 'size')} failed" if sweep.failed else ""
        raise refused(path, f"has no time of a collective{why}")
    ranks = _ranks(path, sweep, where)
    op = _op(path, sweep, ranks)
    return EvidenceFile(
        name=path.name,
        set="trainium_collectives" if where.neuron else "gpu_collectives",
        rows=tuple(_rows(path, sweep, op, ranks, where)),
        remarks=(f"{path}: {_said(sweep, op, ranks)}",),
    )


_ALONE = "ran on one rank, which sends nothing: its bus bandwidth is 0"


def _rows(
    path: Path, sweep: _Sweep, op: Op, ranks: int, where: MeasuredCluster
) -> Iterator[EvidenceRow]:
    here = {"instance": where.instance, "ranks": str(ranks)}
    if not where.neuron:
        here = {"platform": where.instance, "gpus": str(ranks)}
    fault = _ALONE if ranks == 1 else None
    seen: dict[int, int] = {}
    for number, one in enumerate(sweep.timed, start=1):
        seen[one.size] = seen.get(one.size, 0) + 1
        again = f"-{seen[one.size]}" if seen[one.size] > 1 else ""
        cells = {
            **here,
            "id": f"{path.stem}-{one.size}{again}",
            "nodes": str(where.nodes),
            "collective": op,
            "size_bytes": str(one.size),
            "time_us": repr(one.time_us),
            "time_stat": one.statistic,
            "dtype": one.dtype,
            "algorithm": one.algorithm,
        }
        yield EvidenceRow(id=cells["id"], line=number, cells=cells, fault=fault)


def _said(sweep: _Sweep, op: Op, ranks: int) -> str:
    parts = [
        f"{counted(len(sweep.timed), 'size')} of {op} over {counted(ranks, 'rank')} by {sweep.tool}"
    ]
    if sweep.zero:
        parts.append(f"{sweep.zero} of no bytes left out")
    if sweep.wrong:
        parts.append(f"{sweep.wrong} whose data came out wrong (#wrong above 0) left out")
    if sweep.failed:
        parts.append(f"{sweep.failed} that failed left out")
    if sweep.unread:
        parts.append(f"{len(sweep.unread)} not read, first {sweep.unread[0]}")
    return "; ".join(parts)


def _ranks(path: Path, sweep: _Sweep, where: MeasuredCluster) -> int:
    """Group size: stated, by bus factor, or all ranks."""
    factors = [one.ratio for one in sweep.timed if one.ratio is not None]
    ranks = sweep.ranks or where.ranks
    if factors and not sweep.ranks and factors[-1] == 0:
        ranks = 1
    elif factors and not sweep.ranks:
        named = _named(sweep.op)
        ops: tuple[Op, ...] = (named,) if named else OPS
        able = {n for n in (where.ranks, *_divisors(where.ranks)) if _is_of(ops, n, factors[-1])}
        if not able:
            raise refused(
                path,
                f"its bus bandwidth is {factors[-1]:.4g} times the plain one, which no group of "
                f"the {where.ranks} ranks of {where.nodes} x {where.instance} has; correct --on",
            )
        ranks = where.ranks if where.ranks in able else max(able)
    if ranks > where.ranks or ranks % where.nodes:
        raise refused(
            path,
            f"ran over {counted(ranks, 'rank')}, and {where.nodes} x {where.instance} has "
            f"{where.ranks}; correct --on",
        )
    return ranks


def _divisors(number: int) -> list[int]:
    return [n for n in range(2, number) if number % n == 0]


def _is_of(ops: tuple[Op, ...], ranks: int, factor: float) -> bool:
    return any(abs(bus_factor(op, ranks) - factor) <= _NEAR * factor for op in ops)


_NEAR = 0.004
"""Rounding error of a bus factor from bandwidths above 1 GB/s with two decimals."""


def _named(word: str) -> Op | None:
    try:
        return op_named(word) if word else None
    except InputError:
        return None


def _op(path: Path, sweep: _Sweep, ranks: int) -> Op:
    """Operation of a file: stated, in its name, or the only one with its bus factor."""
    named = _named(sweep.op)
    if named is not None:
        return named
    for op in OPS:
        if op.replace("-", "") in re.sub(r"[^a-z]", "", path.stem.lower()):
            return op
    factor = next((one.ratio for one in reversed(sweep.timed) if one.ratio is not None), None)
    reduces = sweep.timed[0].reduces
    able = [
        op
        for op in OPS
        if (factor is None or _is_of((op,), ranks, factor))
        and (reduces is None or reduces is (op in ("all-reduce", "reduce-scatter")))
    ]
    if len(able) == 1 or (able and ranks == 1):
        return able[0]
    raise refused(
        path,
        f"does not say which collective it timed ({' or '.join(able) or 'none fits'}); name the "
        "file after it, such as all-gather.txt",
    )


def _of_text(text: str) -> _Sweep:
    heading: list[str] = []
    sweep = _Sweep(tool=_NCCOM)
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _PREFIX.sub("", raw[:_LONGEST_LINE]).strip()
        if found := _COMMAND.search(line):
            words = [found[1] or "", *(found[2] or "").split()]
            sweep.op = next((word for word in words if _is_op(word)), sweep.op)
        if _NCCL_RANK.match(line):
            sweep.tool, sweep.ranks = _NCCL, sweep.ranks + 1
        elif found := _NCCL_HEADING.match(line):
            sweep.tool, heading = _NCCL, [found[1], *_WRONG.findall(line)]
        elif line.startswith("size(B)"):
            sweep.tool, heading = _NCCOM, line.split()
        elif heading and line[:1].isdigit():
            read = _nccl_row if sweep.tool == _NCCL else _nccom_row
            try:
                read(sweep, heading, line)
            except FAILURES:
                sweep.unread.append(f"line {number}: {line[:80]!r}")
    return sweep


def _is_op(word: str) -> bool:
    return _named(word) is not None


def _nccl_row(sweep: _Sweep, heading: list[str], line: str) -> None:
    found = _NCCL_ROW.match(line)
    if found is None:
        raise ValueError(line)
    size, _, dtype, redop, _, time_us, algbw, busbw, rest = found.groups()
    times = [float(text) for text in (time_us, algbw, busbw)]
    # Behind the times out of place stand what is wrong with them, and the same four in place.
    wrong = rest.split()[::4] if len(heading) > 1 else []
    if not int(size):
        sweep.zero += 1
    elif any(map(_is_wrong, wrong)):
        sweep.wrong += 1
    else:
        of = (int(size), dtype, redop)
        sweep.timed.append(_of_nccl(of, times, host=heading[0] == "cputime"))


def _is_wrong(count: object) -> bool:
    return count not in (None, "N/A") and float(str(count)) != 0


def _nccom_row(sweep: _Sweep, heading: list[str], line: str) -> None:
    if _FAILED in line or line.endswith("test failed"):
        sweep.failed += _FAILED in line
        return
    cells = dict(zip(heading, line.split(), strict=True))
    sweep.timed.append(_of_cells(cells))


def _of_cells(cells: Mapping[str, object]) -> _Timed:
    """A size by nccom-test's column names, in text and JSON."""
    times = [name for name in cells if name.startswith("time")]
    name = "time:avg(us)" if "time:avg(us)" in times else times[0] if times else "time(us)"
    size, time_us = int(str(cells["size(B)"])), float(str(cells[name]))
    bandwidths = [float(str(cells[f"{kind}(GB/s)"])) for kind in ("algbw", "busbw")]
    return _Timed(
        size=size,
        dtype=str(cells["type"]),
        time_us=time_us,
        statistic=name.removeprefix("time").strip(":").partition("(")[0] or "p50",
        ratio=_ratio(size, time_us, *bandwidths),
        algorithm=str(cells.get("algorithm", "")),
    )


def _ratio(size: int, time_us: float, algbw: float, busbw: float) -> float | None:
    """Bus over plain bandwidth; ValueError where size and time contradict both."""
    if not (size > 0 and 0 < time_us < float("inf")):
        raise ValueError(f"{size} bytes in {time_us} us")
    if not algbw >= _COARSE:
        return None
    told = size / (time_us * 1e-6)
    if all(abs(algbw * unit / told - 1) > _AGREE for unit in _UNITS):
        raise ValueError(f"{algbw} GB/s is not {size} bytes in {time_us} us")
    return busbw / algbw


def _of_json(path: Path, text: str) -> _Sweep:
    table = json_value(path, text)
    results = table.get("results")
    if not isinstance(results, list):
        raise refused(path, "has no `results`, as files of nccom-test and nccl-tests have")
    nccl = "nccl_version" in table or any("out_of_place" in str(one)[:400] for one in results[:1])
    sweep = _Sweep(tool=_NCCL if nccl else _NCCOM)
    if nccl:
        args, config = table.get("args"), table.get("config")
        words = [str(one).removesuffix("_perf") for one in args] if isinstance(args, list) else []
        sweep.op = next((op for word in words if _is_op(op := word.rpartition("/")[2])), "")
        devices = config.get("devices") if isinstance(config, dict) else None
        ranks = len(devices) if isinstance(devices, list) else 0
        sweep.ranks = ranks if ranks > 1 else 0
    for number, one in enumerate(results, start=1):
        try:
            if nccl and not one["size"]:
                sweep.zero += 1
            elif nccl and any(map(_is_wrong, _wrong_of(one))):
                sweep.wrong += 1
            else:
                sweep.timed.append(_nccl_result(one) if nccl else _of_cells(one))
        except FAILURES as error:
            sweep.unread.append(f"result {number}: {why(error)}")
    return sweep


def _wrong_of(one: Mapping[str, Any]) -> list[object]:
    return [one[how].get("nwrong") for how in ("out_of_place", "in_place") if how in one]


def _nccl_result(one: Mapping[str, object]) -> _Timed:
    """A size by nccl-tests' JSON names; the environment in the file is never read."""
    timed = one["out_of_place"]
    if not isinstance(timed, dict) or not isinstance(one["size"], int):
        raise TypeError("no object out_of_place")
    host = "cpu_time" in timed
    times = [float(timed[key]) for key in ("cpu_time" if host else "time", "alg_bw", "bus_bw")]
    return _of_nccl((one["size"], str(one["type"]), str(one["redop"])), times, host=host)


def _of_nccl(of: tuple[int, str, str], times: Sequence[float], *, host: bool) -> _Timed:
    """A size of a type and reduction, with its microseconds and two bandwidths."""
    size, dtype, redop = of
    return _Timed(
        size=size,
        dtype=dtype,
        time_us=times[0],
        statistic="host, enqueue alone" if host else "mean, out of place",
        ratio=_ratio(size, *times),
        reduces=redop != "none",
    )

"""Measured steps that users give: CSV files of rows, or logs with what ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from trnbench.errors import DataFileError, InputError
from trnbench.evidence.columns import cells_of
from trnbench.evidence.readers.collectives import MeasuredCluster, is_sweep, read_sweep
from trnbench.evidence.readers.devices import DeviceSummary, device_tool, read_devices
from trnbench.evidence.readers.steps import NoSteps, RunSize, read_steps
from trnbench.evidence.rows import (
    EvidenceFile,
    EvidenceRow,
    is_table,
    is_table_of_steps,
    names_instance,
    read_evidence,
    unread_columns,
)
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.text_file import files_below
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.units import counted
from trnbench.verbs.asking.given_run import GivenRun

GIB = 2.0**30
_FEW = 5
_FOR_A_LOG = "a log of steps needs --model, --on, --global-batch and --sequence"


def measured_files(catalog: Catalog, paths: Sequence[Path], given: GivenRun) -> list[EvidenceFile]:
    """Return files of measurements: tables, collectives, logs as tables of one row, and folders."""
    files: list[EvidenceFile] = []
    for path in paths:
        if path.is_dir():
            files += _folder(catalog, path, given)
        else:
            says_where = given.instance is not None and names_instance(path)
            # Sweeps do not say where they ran; the option is then theirs alone.
            of_sweeps = says_where and any(file.is_file() and is_sweep(file) for file in paths)
            own = given.but(on=None) if of_sweeps else given
            files.append(_file(catalog, path, own))
    return files


def unread(paths: Iterable[Path]) -> Iterator[str]:
    """Yield a remark for each file of steps that has columns of no meaning here."""
    for path in paths:
        if columns := unread_columns(path):
            yield (
                f"{path}: not read: {', '.join(map(repr, columns))}; "
                "`trnbench validate --template` has the columns that are"
            )


def may_tell_links(path: Path) -> bool:
    """Return whether a file may hold timed collectives: a sweep, a table of no steps, a folder."""
    if not path.is_file():
        return path.is_dir()
    return is_sweep(path) or (is_table(path) and not is_table_of_steps(path))


def device_files(paths: Sequence[Path]) -> tuple[tuple[DeviceSummary, ...], list[Path]]:
    """Return the readings of monitors and profilers among measured files, and the other files."""
    of_devices = [path for path in paths if path.is_file() and device_tool(path)]
    others = [path for path in paths if path not in of_devices]
    return tuple(map(read_devices, of_devices)), others


def _file(catalog: Catalog, path: Path, given: GivenRun, name: str = "") -> EvidenceFile:
    if is_table(path):
        return read_evidence(path, given.cells)
    if is_sweep(path):
        return read_sweep(path, _cluster(given, catalog, path))
    if tool := device_tool(path):
        raise InputError(
            f"{path}: is of {tool} and has no steps; `explain` takes it together with steps"
        )
    if given.cells:
        return _row(given, catalog, path, name or path.stem)
    try:
        return read_evidence(path, given.cells)
    except DataFileError as error:
        if path.suffix == ".log":
            raise InputError(f"{path}: {_FOR_A_LOG}") from None
        raise InputError(error.message, hint=_FOR_A_LOG) from None


def _folder(catalog: Catalog, folder: Path, given: GivenRun) -> list[EvidenceFile]:
    """Return the measurements in a folder and below it; files of none are named and passed by."""
    paths = files_below(folder)
    if not paths:
        raise InputError(f"{folder}: has no file")
    cells, without = [], []
    for path in paths:
        name = str(path.relative_to(folder).with_suffix(""))
        try:
            cells.append(_file(catalog, path, given, name))
        except NoSteps:
            without.append(path.relative_to(folder).name)
    if not cells:
        raise InputError(
            f"{folder}: none of its {counted(len(paths), 'file')} tells a step time or rate"
        )
    if without:
        more = f" and {len(without) - _FEW} more" if len(without) > _FEW else ""
        said = f"{folder}: no steps in {', '.join(without[:_FEW])}{more}"
        cells[0] = replace(cells[0], remarks=(said, *cells[0].remarks))
    return cells


def _cluster(given: GivenRun, catalog: Catalog, path: Path) -> MeasuredCluster:
    """Return where a file was measured that does not say so."""
    if given.instance is None:
        raise InputError(f"{path}: does not say where it was measured: give --on")
    platform = load_platform(catalog, given.instance)
    nodes = given.nodes or 1
    return MeasuredCluster(
        instance=platform.instance.name,
        nodes=nodes,
        ranks=nodes * platform.instance.chips * platform.chip.ranks(given.logical_size),
        neuron=isinstance(platform.chip.unit, NeuronCores),
    )


def _row(given: GivenRun, catalog: Catalog, path: Path, name: str) -> EvidenceFile:
    """Return a log as a file of one row; it need not say what the options do."""
    if given.model is None:
        raise InputError(f"{path}: {_FOR_A_LOG}")
    cluster = _cluster(given, catalog, path)
    ranks = cluster.ranks
    layout = given.layout
    settled = {knob: layout.degree(knob) for knob in ("global_batch", "sequence") if layout[knob]}
    steps = read_steps(path, RunSize(ranks=ranks, **settled))
    if steps.global_batch is None or (steps.sequence is None and not layout["sequence"]):
        raise InputError(f"{path}: {_FOR_A_LOG}")
    read = {"global_batch": steps.global_batch, "sequence": steps.sequence}
    stated = {knob: value for knob, value in read.items() if value is not None}
    cells = {
        **cells_of({**stated, **layout.given}),
        "instance": cluster.instance,
        "ranks": str(ranks),
        "model": given.model,
        "nodes": str(cluster.nodes),
        "step_time_s": repr(steps.step_time_s),
    }
    if given.logical_size is not None:
        cells["lnc"] = str(given.logical_size)
    if steps.recompilations:
        cells["recompilations"] = str(steps.recompilations)
    if steps.memory_bytes is not None:
        cells["memory_gb"] = repr(steps.memory_bytes / GIB)
    row = EvidenceRow(id=name, line=1, cells=cells)
    said = f"{path}: {'; '.join(steps.remarks)}"
    return EvidenceFile(name=path.name, set="steps", rows=(row,), remarks=(said,))

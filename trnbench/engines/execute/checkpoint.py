"""Runs that survive being killed: the whole state in one file, which appears at once or not at all.

A file is written beside its place, brought to the disk and renamed; the last two stay. What is kept
are whole weights and optimizer states, of which every rank takes its part; with the same
layout, seed and number of BLAS threads a run goes on to the bit.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.optimizer import StateName
from trnbench.engines.execute.trainer import Trainer
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.catalog.whole_file import put_whole

KEPT = 2
_SUFFIX = ".npz"
_UNFINISHED = ".unfinished"  # Of files that older versions began
_NOTE = "note"
_STATES: tuple[StateName, ...] = ("weights", "mean", "square", "master")
_FAULTS = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError),
    zipfile.BadZipFile,
)
"""Exceptions of reading a damaged file."""


def save(
    folder: Path, trainer: Trainer, losses: Sequence[float], run: Mapping[str, object]
) -> Path:
    """Write a checkpoint of a trainer into a folder; return its path.

    `run` is the identity that a later run must share to go on from here. A disk that is full or
    read-only is an environment fault, and leaves the checkpoints before unchanged.
    """
    arrays = _arrays(trainer)
    note = {"run": _plain(run), "losses": list(losses), "digest": _digest(arrays)}
    arrays[_NOTE] = np.frombuffer(json.dumps(note).encode(), dtype=np.uint8)
    target = folder / _name(trainer.steps_done)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        put_whole(target, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
        _sync(folder)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder}: cannot write a checkpoint: {error.strerror or error}",
            hint="checkpoints written before are still there",
        ) from error
    _tidy(folder)
    return target


def resume(folder: Path, trainer: Trainer, run: Mapping[str, object]) -> tuple[float, ...] | None:
    """Give a trainer the state of a folder's newest checkpoint; return the losses of its steps.

    None if there is no checkpoint.

    A file that is damaged or of another run is an input error; the trainer is then as it was.
    """
    steps = checkpoints(folder)
    if not steps:
        return None
    # Everything is checked before the first array is taken over.
    arrays, theirs, losses = _read(steps[-1], steps[:-1])
    _refuse_other(steps[-1], theirs, _plain(run))
    if _shapes(arrays) != _shapes(_arrays(trainer)):
        raise InputError(
            f"{steps[-1]}: a checkpoint of a model with other weights",
            hint="give the same options, or another folder",
        )
    for i, (_, state) in enumerate(trainer.states()):
        names = [name for name in _STATES if f"{i}.{name}" in arrays]
        state.restore({name: arrays[f"{i}.{name}"] for name in names})
    trainer.steps_done = len(losses)
    return losses


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"step-*{_SUFFIX}"))


def _name(step: int) -> str:
    return f"step-{step:08d}{_SUFFIX}"


def _check_sizes(file: BinaryIO) -> None:
    """Refuse an archive whose parts claim more bytes than the file has."""
    # A small archive can unpack to more than any memory; checkpoints are stored unpacked.
    held = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED or part.file_size > held:
                raise ValueError(f"{part.filename} is packed")
            with archive.open(part) as content:
                np.lib.format.read_magic(content)
                shape, _, kind = np.lib.format.read_array_header_1_0(content)
            if math.prod(shape) * kind.itemsize > part.file_size:
                raise ValueError(f"{part.filename} claims more than it has")
    file.seek(0)


def _arrays(trainer: Trainer) -> dict[str, Numbers]:
    return {
        f"{i}.{name}": whole
        for i, (_, state) in enumerate(trainer.states())
        for name, whole in state.whole().items()
    }


def _shapes(arrays: Mapping[str, Numbers]) -> Mapping[str, tuple[int, ...]]:
    return {name: numbers.shape for name, numbers in arrays.items()}


def _digest(arrays: Mapping[str, Numbers]) -> str:
    total = sha256()
    # In the order of names: a digest must not depend on the order in which arrays were stored.
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def _plain(run: Mapping[str, object]) -> Mapping[str, object]:
    # As JSON gives it back: tuples become lists, so that a run equals its own note.
    plain: Mapping[str, object] = json.loads(json.dumps(run))
    return plain


def _read(
    path: Path, before: Sequence[Path]
) -> tuple[dict[str, Numbers], Mapping[str, object], tuple[float, ...]]:
    hint = "remove it to start again"
    if before:
        hint = f"remove it to go on from {before[-1].name}"
    try:
        with path.open("rb") as file:
            _check_sizes(file)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        note = json.loads(arrays.pop(_NOTE).tobytes())
        losses = tuple(float(loss) for loss in note["losses"])
        whole = note["digest"] == _digest(arrays)
        run = dict(note["run"])
        if path.name != _name(len(losses)):
            raise ValueError(f"a file of step {len(losses)} under another's name")
    except PermissionError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}") from error
    except _FAULTS as error:
        raise InputError(f"{path}: not a whole checkpoint", hint=hint) from error
    if not whole:
        raise InputError(f"{path}: a damaged checkpoint: its numbers have changed", hint=hint)
    return arrays, run, losses


def _refuse_other(path: Path, theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    """Refuse a checkpoint of another run, naming all that differs."""
    names = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    if names:
        differing = ", ".join(f"{n} {theirs.get(n)} there, {ours.get(n)} here" for n in names)
        raise InputError(
            f"{path}: a checkpoint of another run: {differing}",
            hint="give the same options, or another folder",
        )


def _tidy(folder: Path) -> None:
    for path in (*checkpoints(folder)[:-KEPT], *folder.glob(f"step-*{_UNFINISHED}")):
        with suppress(OSError):
            path.unlink()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

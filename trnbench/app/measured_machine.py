"""The machine that rows were measured on, as specs: for a moment, or in the user's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import finalize

from trnbench.answers.measure import MeasuredRow, StepsVerdict, StepVerdict
from trnbench.errors import InputError
from trnbench.evidence.measure.machine import MachineFiles, machine_files
from trnbench.evidence.measure.machine_fits import RowClock
from trnbench.evidence.measured_file import parts_of
from trnbench.evidence.rows import EvidenceFile, EvidenceRow
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.catalog.search import SINGULAR, Catalog, Folder, user_folder
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.library import load_published

_ORIGIN = "measured"


def with_machines(catalog: Catalog, files: Sequence[EvidenceFile]) -> Catalog:
    """Return the catalogue, and in it the machines of measured files that it does not know."""
    found: list[MachineFiles] = []
    for file in files:
        names = [row.text("instance") for row in file.rows if row.fault is None]
        if file.set != "measured" or not names or load_published(catalog, names[0], ""):
            continue
        try:
            found.append(machine_files(catalog, file.rows))
        except InputError:
            continue  # too few rows tell of it: each row says that its instance is unknown
    return beside(catalog, [machine.texts() for machine in found])


def beside(catalog: Catalog, files: Sequence[Mapping[tuple[str, str], str]]) -> Catalog:
    """Return a catalogue with more files in it, texts by section and name, as long as it is."""
    if not files:
        return catalog
    folder = TemporaryDirectory(prefix="trnbench-measured-")
    for texts in files:
        _write(texts, Path(folder.name))
    extended = Catalog((Folder(Path(folder.name), _ORIGIN), *catalog.folders))
    finalize(extended, folder.cleanup)
    return extended


def verdict_of(catalog: Catalog, file: EvidenceFile) -> StepsVerdict | None:
    """Return the training steps of a file as predicted from its other rows; None where it has
    no steps, or too little besides.
    """
    steps = [part for part in parts_of(file) if part.set == "steps"]
    if not steps:
        return None
    clocks: dict[RowClock, tuple[StepVerdict, ...]] = {}
    rested: tuple[str, ...] = ()
    shared = file.rows[0].text("backend") == "cpu"
    wanted: tuple[RowClock, ...] = ("wall", "processor") if shared else ("wall",)
    for clock in wanted:
        try:
            machine = machine_files(catalog, file.rows, clock=clock)
        except InputError:
            return None
        rested = machine.rows
        compared = compare_training(Reader(beside(catalog, [machine.texts()])), steps[0])
        by_id = {row.id: row for row in steps[0].rows}
        clocks[clock] = tuple(
            StepVerdict(
                id=one.id,
                measured_s=_measured_s(by_id[one.id], clock),
                predicted_s=one.predicted_s,
                low_s=one.low_s,
                high_s=one.high_s,
                reason=one.reason,
            )
            for one in compared
        )
    return StepsVerdict(rests_on=rested, wall=clocks["wall"], processor=clocks.get("processor", ()))


def _measured_s(row: EvidenceRow, clock: RowClock) -> float:
    if clock == "wall":
        return row.positive("step_time_s")
    return row.positive("processor_s") / min(row.whole("cores"), row.whole("ranks"))


def evidence_of(rows: Sequence[MeasuredRow]) -> EvidenceFile:
    """Return measured rows as the file of them would be read."""
    read = (
        EvidenceRow(id=row.cells["id"], line=line, cells=row.cells)
        for line, row in enumerate(rows, start=2)
    )
    return EvidenceFile(name=_ORIGIN, set="measured", rows=tuple(read))


def refuse_taken(catalog: Catalog, name: str, *, force: bool) -> None:
    """Refuse the name of a machine that is somebody else's, or one's own unless it may go."""
    for section in ("instances", "chips"):
        for entry in catalog.users(section).get(name, ()):
            own = entry.path.is_relative_to(user_folder())
            if not (own and force):
                raise InputError(
                    f"--write-spec: {name!r} is the name of {_article(SINGULAR[section])} already: "
                    f"{entry.path}",
                    hint="--force replaces it" if own else "choose another",
                )


def write_machine(catalog: Catalog, rows: Sequence[MeasuredRow]) -> tuple[Path, ...]:
    """Write the machine of measured rows into the user's folder; return what was written."""
    machine = machine_files(catalog, evidence_of(rows).rows)
    return _write(machine.texts(), user_folder())


def _write(texts: Mapping[tuple[str, str], str], folder: Path) -> tuple[Path, ...]:
    written = []
    for (section, name), text in texts.items():
        path = folder / section / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        written.append(path)
    return tuple(written)


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"

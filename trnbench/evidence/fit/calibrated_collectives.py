"""A fitted communication stack as a data file: the instance's stack, with the moved numbers."""

from __future__ import annotations

import datetime
from typing import cast

from trnbench.evidence.fit.collectives import TUNINGS, CollectiveFit
from trnbench.evidence.fit.entries import Table, behind, cited, moved_entry
from trnbench.facts.calibration.collective_stack import FILE_PREFIX
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.records import Record

_HEADER = """\
# Written by `trnbench calibrate`. What is derived was moved by timed collectives and says what it
# was before; everything else stands as it was believed before the fit.
"""


class CalibratedCollectives(Record, eq=False):
    """A communication stack fitted to timed collectives; `remarks` are the readers'."""

    fit: CollectiveFit
    name: str
    date: datetime.date
    catalog: Catalog
    remarks: tuple[str, ...] = ()

    def text(self, *, name: str | None = None) -> str:
        """The file's text, under another name if given."""
        fit = self.fit
        table = read_toml(self.catalog.find("calibration", fit.stack.name).path)
        title = f"{fit.stack.title}, fitted to collectives of {fit.instance}"
        table |= {"name": name or self.name, "title": title if fit.better else fit.stack.title}
        table["instances"] = [fit.instance]
        table["begun_as"] = fit.stack.name
        if not fit.better:
            return f"{_HEADER}\n{toml_text(table)}"
        table.pop("inherits_from", None)
        source = cited(table, f"This project, fit to {len(fit.rows)} timed collectives", self.date)
        tunings = cast("dict[str, Table]", table[TUNINGS])
        for (tuning, key), one in zip(fit.places, fit.parameters, strict=True):
            if one.moved:
                known = tunings[tuning][key]
                entry = dict(known) if isinstance(known, dict) else {"value": known}
                tunings[tuning][key] = entry | moved_entry(entry, one, source)
        table = behind(table, "title", {"fitted_rows": [row.id for row in fit.rows]})
        return f"{_HEADER}\n{toml_text(table)}"


def stack_name(asked: str | None, instance: str) -> str:
    """Name of a fitted communication stack: the requested one, or the instance's."""
    name = asked or f"own-{instance}"
    bare = name.removeprefix("training-").removeprefix(FILE_PREFIX)
    return f"{FILE_PREFIX}{bare}"

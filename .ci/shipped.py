"""What makes first answers of a wheel as quick as later ones: `python .ci/shipped.py FOLDER`.

As a build hook it adds to a wheel what commands keep in the user's cache folder: shipped data files
as parsed, and closed forms of groups of ranks placed on shipped instances. It all follows from data
and code of the same wheel and is named after them, so that nothing of it can be out of date. An
editable install has none: there data and code change.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
MODELS = ("llama3.1-70b", "mixtral-8x7b")
NODES = tuple(2**power for power in range(10))


class Shipped(BuildHookInterface[Any]):
    """Works it out for a wheel that is to be installed elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is worked out beside the data files of the wheel."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, __file__, self._made.name]
        subprocess.run(command, check=True, env=environment, cwd=ROOT)
        for kind in ("forms", "tables"):
            folder = Path(self._made.name, "trnbench", kind)
            build_data["force_include"][str(folder)] = f"trnbench/_data/kept/{kind}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the wheel."""
        if version != "editable":
            self._made.cleanup()


def work_out(folder: str) -> None:
    """Leave in a cache folder what answers about shipped instances keep there."""
    os.environ["XDG_CACHE_HOME"] = folder
    from trnbench.analytic.step.engines import keep_all_forms
    from trnbench.app import search_layouts
    from trnbench.catalog.search import SECTIONS, Catalog, open_catalog
    from trnbench.catalog.toml_file import read_known
    from trnbench.errors import TrnbenchError

    def searched(catalog: Catalog, instance: str, model: str) -> None:
        with suppress(TrnbenchError):  # no model of this kind runs there
            search_layouts(
                model=model,
                instance=instance,
                nodes=NODES,
                global_batch=1024,
                sequence=4096,
                precision="bf16-master",
                catalog=catalog,
                micro_batch=1,
                vpp=1,
                recompute="full",
            )

    catalog = open_catalog()
    for section in SECTIONS:
        for entry in catalog.entries(section):
            read_known(entry.path)
    for entry in catalog.entries("instances"):
        for model in MODELS:
            searched(catalog, entry.name, model)
        keep_all_forms()


if __name__ == "__main__":
    work_out(sys.argv[1])

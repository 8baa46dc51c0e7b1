"""Steps of configurations that people run already: their knobs, on the cluster asked about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.parsing import clusters
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.launch.catalogue import FRAMEWORKS
from trnbench.launch.reading import read_config
from trnbench.verbs.asking.knobs import layout_of


def of_configuration(
    catalog: Catalog, on: str | Sequence[str], path: Path, given: PartialLayout
) -> tuple[tuple[str, int], PartialLayout]:
    """Return the cluster, and the layout of a configuration on it; knobs given beside it win.

    Without a number of nodes the cluster has as many hosts as the configuration names. On another
    number of hosts than those of the configuration the replicas are left open.
    """
    where = clusters(on)
    if len(where) != 1:
        raise InputError("--config: a configuration is of one cluster; give one with --on")
    ((instance, nodes),) = where
    found = read_config(path)
    platform = load_platform(catalog, instance)
    told = ":" in (on if isinstance(on, str) else on[0])
    if not told and found.hosts is not None:
        nodes = max(found.hosts // platform.instance.hosts, 1)
    try:
        layout = layout_of(**found.knobs)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from None
    if found.hosts is not None and found.hosts != nodes * platform.instance.hosts:
        layout = layout.changed(dp=None)
    return (instance, nodes), layout.changed(**given.said)


def config_words(path: Path, layout: PartialLayout) -> str:
    title = FRAMEWORKS[read_config(path).framework].title
    knobs = ", ".join(f"{name} {value}" for name, value in layout.pairs)
    return f"{path}: {title}: {knobs}"

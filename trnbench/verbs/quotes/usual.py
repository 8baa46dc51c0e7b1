"""Options of a run where nobody says them: those of a fleet's job, and the usual ones."""

from __future__ import annotations

from typing import Any

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.choices import USUAL_INSTANCES, USUAL_MODEL, USUAL_TOKENS
from trnbench.verbs.asking.option import Given


def with_usual(
    catalog: Catalog, given: Given
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """The options with those of a fleet's job and the usual ones, and which these are."""
    whole = {**given, "model": given.get("model") or USUAL_MODEL}
    if ":" in whole["model"] or whole["model"].endswith(".toml"):
        from trnbench.verbs.fleet.jobs import with_job  # few runs are a fleet's

        model, options = with_job(catalog, whole.pop("model"), whole)
        whole = {**options, "model": model}
    assumed = [] if given.get("model") else [("model", whole["model"])]
    if not any(whole.get(length) for length in ("tokens", "samples", "phase")):
        whole["tokens"] = USUAL_TOKENS
        assumed.append(("tokens", show(USUAL_TOKENS, Dimension.COUNT)))
    if not whole.get("on"):
        whole["on"] = USUAL_INSTANCES
        assumed.append(("on", ", ".join(USUAL_INSTANCES)))
    return whole, tuple(assumed)

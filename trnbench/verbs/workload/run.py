"""Models as files: what lists say of each, and one made of a Hugging Face configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trnbench.errors import DataFileError, InputError
from trnbench.facts.catalog.search import CONFIGURATION, Catalog, user_folder
from trnbench.facts.workload.hf_config import (
    ImportedModel,
    changed_on,
    import_config,
    read_config,
)
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.weights import active_parameter_count, parameter_count
from trnbench.show.row import Row


def model_facts(catalog: Catalog) -> Mapping[str, Row]:
    """Return family, parameters and context of each model that can be read, for lists."""
    facts: dict[str, Row] = {}
    for entry in catalog.entries("models"):
        try:
            model = load_model(catalog, entry.name)
        except DataFileError:
            continue  # the list says so in place of its title
        transformer = model.transformer
        facts[entry.name] = {
            "family": model.family,
            "parameters": parameter_count(model),
            "active": active_parameter_count(model),
            "context": transformer.position.length if transformer and model.vocabulary else None,
        }
    return facts


def import_model(
    path: Path, name: str | None = None, *, family: str | None = None, depths: bool = False
) -> ImportedModel:
    """Return the model file of a Hugging Face config.json, or of the folder that holds one.

    The model is called as asked, or as the folder. With `family` it is read as one of that, with
    `depths` its modules that predict further tokens are taken in.
    """
    config = read_config(path)
    if name is None:
        if not path.is_dir():
            raise InputError("the model needs a name: give --name, or --output NAME.toml")
        name = path.resolve().name.lower()
    file = path / CONFIGURATION if path.is_dir() else path
    read_on = changed_on(file)
    return import_config(config, name, date=read_on, origin=str(file), family=family, depths=depths)


def own_model_path(name: str) -> Path:
    """Path of a new model among the user's own, in a folder that is there."""
    path = user_folder() / "models" / f"{name}.toml"
    if path.exists():
        raise InputError(f"{path} is there already; nothing is overwritten")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path

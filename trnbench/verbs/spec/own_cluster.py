"""`spec new`: a cluster of one's own as a small file that is like a known one, and its price."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.search import SINGULAR, Catalog, user_folder
from trnbench.facts.hardware.fabric import FullMesh, Switch
from trnbench.facts.hardware.instance import Instance, Platform
from trnbench.facts.hardware.library import load_chip, load_instance, load_platform
from trnbench.facts.prices.owned import RateTerm, rate_terms
from trnbench.facts.records import Record, tag_of
from trnbench.facts.units import Dimension, show
from trnbench.machine.fabric import build_fabric
from trnbench.verbs.measure.machine import article
from trnbench.verbs.spec.question import SpecNewQuestion


class NewCluster(Record):
    """Paths and texts of the files of a new cluster, each checked; the terms of its hourly rate."""

    files: tuple[tuple[Path, str], ...]
    terms: tuple[RateTerm, ...] = ()
    usd_per_hour: float | None = None
    warnings: tuple[str, ...] = ()


def new_cluster(
    catalog: Catalog, asked: SpecNewQuestion, *, file: Path | None = None, today: datetime.date
) -> NewCluster:
    """Return the files of a cluster of one's own; refuse a name that is taken.

    `file` is where its spec goes, None for the folder of the user's own data files.
    """
    base = load_platform(catalog, asked.like)
    path = file or user_folder() / "instances" / f"{asked.name}.toml"
    priced = path.parent.parent / "prices" / path.name
    _refuse_taken(catalog, asked.name, (path, priced) if asked.force else ())
    if path.name != f"{asked.name}.toml":
        raise InputError(f"-o {path}: the file of {asked.name!r} must be named {asked.name}.toml")
    if path.parent.name != "instances":
        raise InputError(
            f"-o {path}: an instance is found in a folder named instances only",
            hint=f"write to FOLDER/instances/{path.name}, and use it with --spec-dir FOLDER",
        )
    text = _instance_text(catalog, base, asked, today)
    _check(catalog, asked.name, text)
    files = [(path, text)]
    owning = asked.owning
    terms = rate_terms(owning) if owning else ()
    rate = sum(term.usd_per_hour for term in terms) if terms else asked.usd_per_hour
    if rate is not None:
        words = "; ".join(f"{term.name} {term.note}" for term in terms) or "as its owner states"
        files.append((priced, _price_text(asked.name, rate, words, today)))
    for new, _ in files:
        if new.exists() and not asked.force:
            raise InputError(
                f"{new} is there already; nothing is overwritten", hint="--force replaces it"
            )
    return NewCluster(
        files=tuple(files),
        terms=terms,
        usd_per_hour=rate,
        warnings=tuple(_kept_links(catalog, base, asked)),
    )


def _kept_links(catalog: Catalog, base: Platform, asked: SpecNewQuestion) -> Iterator[str]:
    """Yield a warning of links between chips that are those of another chip."""
    chip = base.chip if asked.chip is None else load_chip(catalog, asked.chip)
    if chip.name == base.chip.name:
        return
    for level in base.instance.fabric:
        if not isinstance(level, Switch):
            continue
        kept = level.bandwidth_per_chip_one_way_bytes_per_s
        rates = {
            other.bandwidth_per_chip_one_way_bytes_per_s: entry.name
            for entry in reversed(catalog.entries("instances"))
            if catalog.table(entry.path).get("chip") == chip.name
            for other in load_instance(catalog, entry.name).fabric
            if isinstance(other, Switch) and other.name == level.name
        }
        listed = "; ".join(f"{_rate(rate)} in {name}" for rate, name in sorted(rates.items()))
        if kept not in rates:
            yield (
                f"{level.name} keeps {_rate(kept)} per chip one way, as with {base.chip.name} in "
                f"{base.instance.name}"
                + (f"; with {chip.name} it is {listed}: name that under --like" if listed else "")
            )


def _rate(bytes_per_s: float) -> str:
    return show(bytes_per_s, Dimension.BYTES_PER_S)


def _refuse_taken(catalog: Catalog, name: str, replaced: Sequence[Path]) -> None:
    parsing.file_name(name)
    for section in ("instances", "chips", "prices"):
        users = catalog.users(section).get(name)
        if users and users[0].path not in replaced:
            raise InputError(
                f"{name!r} is the name of {article(SINGULAR[section])} already: {users[0].path}",
                hint="choose another; nothing is overwritten",
            )


def _instance_text(
    catalog: Catalog, base: Platform, asked: SpecNewQuestion, today: datetime.date
) -> str:
    """Return the file: who it is like, and what is otherwise."""
    chips = asked.chips or base.instance.chips
    changed = [f"chips = {chips}"] if chips != base.instance.chips else []
    chip = base.chip
    if asked.chip is not None:
        chip = load_chip(catalog, asked.chip)
        if type(chip.unit) is not type(base.chip.unit):
            raise InputError(
                f"--chip {chip.name} has other compute units than the chips of {asked.like}",
                hint="name an instance with such chips under --like",
            )
    levels = {**dict(_resized(base.instance, chips)), **dict(_rewired(base.instance, asked))}
    if levels:
        joined = ", ".join(f"{name} = {{ {keys} }}" for name, keys in levels.items())
        changed.append(f"fabric = {{ {joined} }}")
    network = f", network {asked.network[0]} x {asked.network[1]}" if asked.network else ""
    network += f", {asked.oversubscription:.4g}:1" if asked.oversubscription is not None else ""
    network += ", rail-optimised" if asked.rails else ""
    lines = [
        f'name = "{asked.name}"',
        f'title = "{chips} x {chip.name}, like {base.instance.name}{network}"',
        'provider = "own"',
        f'like = "{base.instance.name}"',
        *([f'chip = "{chip.name}"'] if chip.name != base.chip.name else []),
        *changed,
        *([_OWNER.format(date=today)] if changed else []),
        *(['source = "owner"', 'kind = "vendor"'] if changed else []),
    ]
    return "\n".join(lines) + "\n"


_OWNER = 'sources.owner = {{ title = "Its owner, by trnbench spec new", date = {date} }}'


def _resized(instance: Instance, chips: int) -> Iterator[tuple[str, str]]:
    """Yield the level that joins all chips, with as many as there are now."""
    if chips == instance.chips:
        return
    joining = [level for level in instance.fabric if tag_of(level) in instance.scale_up_kind]
    if len(joining) != 1 or not isinstance(joining[0], Switch | FullMesh):
        kinds = " and ".join(instance.scale_up_kind) or "nothing"
        raise InputError(
            f"--chips {chips}: {instance.name} joins its {instance.chips} chips by {kinds}, "
            "which has no rule for another number",
            hint="say the whole [[fabric]] in the file, or name another instance under --like",
        )
    yield joining[0].name, f"chips = {chips}"


def _rewired(instance: Instance, asked: SpecNewQuestion) -> Iterator[tuple[str, str]]:
    """Yield the network with other adapters, or another spine."""
    keys = []
    if asked.network is not None:
        keys += [
            f"adapters = {asked.network[0]}",
            f'bandwidth_per_adapter_one_way = "{asked.network[1]}"',
        ]
    if asked.oversubscription is not None:
        keys.append(f"oversubscription = {asked.oversubscription:.12g}")
    if asked.rails:
        keys.append("rails = true")
    if not keys:
        return
    if instance.network is None:
        raise InputError(
            f"{instance.name} has no network to change",
            hint="name an instance with network adapters under --like",
        )
    yield instance.network.name, ", ".join(keys)


def _check(catalog: Catalog, name: str, text: str) -> None:
    """Refuse a file that could not be read back, or whose links do not join its chips."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        instance = load(path, Instance, catalog)
    build_fabric(instance, nodes=2 if instance.network else 1)


def _price_text(name: str, usd_per_hour: float, words: str, today: datetime.date) -> str:
    rate = f'"{usd_per_hour!r} USD/h"'
    return (
        "\n".join(
            [
                f'name = "{name}"',
                f'title = "{name}, USD per hour of one instance"',
                "",
                "[[price]]",
                'region = "any"',
                'option = "quote"',
                f'usd_per_hour = {{ value = {rate}, source = "owner", kind = "assumed", '
                f"low = {rate}, high = {rate} }}",
                f"date_from = {today}",
                f"date_to = {today}",
                f'note = "{words}"',
                "",
                "[sources]",
                f'owner = {{ title = "Its owner, by trnbench spec new", date = {today} }}',
            ]
        )
        + "\n"
    )

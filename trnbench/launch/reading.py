"""Configurations that people run -> their layout, and the number of processes.

Readable are NxD Training's YAML, torchtitan's function or older TOML, arguments of Megatron-LM,
Megatron Bridge and Optimum Neuron in a script, and Slurm scripts or folders that lead to one of
these. Nothing that is read is run.

Anchors of YAML make much of little: a few lines of merges (`<<: [*a, *a]`) or of lists of aliases
stand for more nodes than any memory holds. So nodes are counted as often as they would be built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trnbench.errors import InputError
from trnbench.facts.catalog.foreign import foreign
from trnbench.facts.catalog.text_file import read_text, refused
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Value
from trnbench.launch.arguments import Flags, read_flags, whole
from trnbench.launch.frameworks import bridge, megatron, nxdt, optimum, torchtitan

if TYPE_CHECKING:
    from yaml.nodes import Node

Knobs: TypeAlias = dict[str, Value]
_MOST_BYTES = 1 << 20
_MOST_PYTHON_BYTES = 1 << 18
"""Limit for Python: its syntax tree is about a hundred times as large."""
_DEEP = 3
"""Depth of scripts that call scripts."""
_IN_A_FOLDER = (nxdt.CONFIG, f"{torchtitan.MODULE}.py", "train.sh")


class NoLayout(InputError):
    """A script without a layout that leads to no file with one."""


class ConfigFile(Record):
    """Content of a configuration: knobs by name, hosts and processes if stated."""

    path: Path
    framework: str
    knobs: Mapping[str, Value]
    hosts: int | None = None
    host_ranks: int | None = None

    @property
    def ranks(self) -> int | None:
        if self.hosts is None or self.host_ranks is None:
            return None
        return self.hosts * self.host_ranks


def read_config(path: Path) -> ConfigFile:
    """Content of a configuration, a script, or a folder that was launched."""
    if path.is_dir():
        inside = next((path / name for name in _IN_A_FOLDER if (path / name).is_file()), None)
        if inside is None:
            raise InputError(f"{path}: no configuration of a framework is in this folder")
        config = _read(inside, _DEEP, {})
        script = path / "train.sh"
        if config.ranks is None and script.is_file():
            config = _placed(config, read_flags(str(script), _text(script)))
    else:
        config = _read(path, _DEEP, {})
    return _with_replicas(config)


def _read(path: Path, deep: int, seen: dict[Path, int]) -> ConfigFile:
    """Content of a file; `seen` are files read before, with the depth left when they were read."""
    seen[path] = deep
    with foreign(path, "a configuration"):
        match path.suffix.lower():
            case ".yaml" | ".yml":
                config = _of_yaml(path)
            case ".toml":
                config = _of_toml(path)
            case ".py":
                config = _of_python(path)
            case _:
                config = _of_script(path, deep, seen)
    # Only the upper limit matters here: zero and negative knobs are refused by the layout itself.
    for name, value in config.knobs.items():
        if isinstance(value, int) and not isinstance(value, bool):
            whole(str(path), name, max(value, 1))
    return config


def _of_python(path: Path) -> ConfigFile:
    text = read_text(path, what="configuration", max_bytes=_MOST_PYTHON_BYTES)
    try:
        knobs = torchtitan.layout_of_function(str(path), text)
    except ValueError as error:
        raise refused(path, str(error)) from None
    return ConfigFile(path=path, framework=torchtitan.FACTS.name, knobs=knobs)


def _text(path: Path) -> str:
    return read_text(path, what="configuration", max_bytes=_MOST_BYTES)


def _of_yaml(path: Path) -> ConfigFile:
    config = read_yaml(path)
    if not isinstance(config, Mapping) or "distributed_strategy" not in config:
        raise refused(path, "has no distributed_strategy; expected a configuration of NxD Training")
    trainer = config.get("trainer")
    trainer = trainer if isinstance(trainer, Mapping) else {}

    def counted(name: str) -> int | None:
        count = trainer.get(name)
        return None if count is None else whole(str(path), f"trainer.{name}", count)

    try:
        knobs = nxdt.layout_of(config)
    except ValueError as error:
        raise refused(path, str(error)) from None
    return ConfigFile(
        path=path,
        framework=nxdt.FACTS.name,
        knobs=knobs,
        hosts=counted("num_nodes"),
        host_ranks=counted("devices"),
    )


def _of_toml(path: Path) -> ConfigFile:
    table = read_toml(path)
    if not isinstance(table.get("parallelism"), Mapping):
        raise refused(path, "has no [parallelism]; expected a configuration of torchtitan")
    # The knobs read here have different names in these tables, which are therefore merged.
    settings: dict[str, object] = {}
    for name in ("training", "parallelism", "activation_checkpoint"):
        part = table.get(name)
        settings |= part if isinstance(part, Mapping) else {}
    # Versions with TOML files recompute parts of a layer unless told otherwise.
    settings.setdefault("mode", "selective")
    knobs = torchtitan.layout_of(str(path), settings)
    return ConfigFile(path=path, framework=torchtitan.FACTS.name, knobs=knobs)


_SIGNS: tuple[tuple[str, str, Callable[[Flags], Knobs]], ...] = (
    (megatron.FACTS.name, "tensor_model_parallel_size", megatron.layout_of),
    (megatron.FACTS.name, "micro_batch_size", megatron.layout_of),
    (optimum.FACTS.name, "tensor_parallel_size", optimum.layout_of),
    (optimum.FACTS.name, "per_device_train_batch_size", optimum.layout_of),
)
"""Framework, a flag that only this framework has, and the reader of its flags."""


def _of_script(path: Path, deep: int, seen: dict[Path, int]) -> ConfigFile:
    text = _text(path)
    flags = read_flags(str(path), text)
    # Megatron Bridge first: its overrides KEY=VALUE stand beside flags that others have as well.
    if any(key in flags.settings for key in bridge.DEGREES.values()):
        config = ConfigFile(path=path, framework=bridge.FACTS.name, knobs=bridge.layout_of(flags))
        return _placed(config, flags)
    for name, sign, reader in _SIGNS:
        if sign in flags:
            return _placed(ConfigFile(path=path, framework=name, knobs=reader(flags)), flags)
    for inside in _called(path, text, flags) if deep else ():
        # A script seen with as many levels left has nothing new; scripts may call each other.
        if seen.get(inside, 0) >= deep:
            continue
        try:
            return _placed(_read(inside, deep - 1, seen), flags)
        except NoLayout:
            continue
    raise NoLayout(
        f"{path}: says no layout; expected a YAML of NxD Training, a torchtitan configuration, or "
        "arguments of Megatron-LM, Megatron Bridge or Optimum Neuron"
    )


def _called(path: Path, text: str, flags: Flags) -> list[Path]:
    """Files beside a script to which it leads: configurations and scripts that it names."""
    named = [f"{flags.text('config_name')}.yaml", f"{flags.text('module')}.py"]
    named += [str(flags.text(name)) for name in ("config_file", "job.config_file")]
    words = (word.rstrip(".-") for word in re.findall(r"[\w.-]+", text))
    named += [word for word in words if word.endswith((".sh", ".yaml", ".yml", ".toml"))]
    # Only the last part of a name counts: folders of the machine that ran the script are not here.
    # A look-up of a name of more than 255 characters would fail instead of finding nothing.
    paths = (path.parent / Path(name).name for name in dict.fromkeys(named) if len(name) < 256)
    files = dict.fromkeys(file for file in paths if file.is_file() and file.name != path.name)
    return list(files)


def _placed(config: ConfigFile, flags: Flags) -> ConfigFile:
    """The configuration with missing hosts and processes taken from a script's flags."""

    def counted(name: str) -> int | None:
        text = flags.text(name)
        return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,6}", text) else None

    return replace(
        config,
        hosts=config.hosts or counted("nnodes"),
        host_ranks=config.host_ranks or counted("nproc_per_node"),
    )


def _with_replicas(config: ConfigFile) -> ConfigFile:
    """The configuration with replicas from its processes, and global batch from replicas."""
    knobs = dict(config.knobs)
    each = knobs.pop(optimum.REPLICA_BATCH, None)
    # Expert parallelism is absent from the product: its ranks are those of the replicas.
    held = 1
    for name in ("tp", "pp", "cp"):
        degree = knobs.get(name, 1)
        held *= degree if isinstance(degree, int) else 1
    if config.ranks is not None and config.ranks % held == 0:
        knobs.setdefault("dp", config.ranks // held)
    if isinstance(each, int) and isinstance(knobs.get("dp"), int):
        knobs["global_batch"] = each * int(knobs["dp"])
    return replace(config, knobs=knobs)


MAX_BYTES = 1 << 17
"""Configurations have some kilobytes."""
MOST_NODES = 100_000


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - plain data
    """Plain data of the single document of a file; DataFileError for any other content."""
    import yaml

    text = read_text(path, what="configuration", max_bytes=MAX_BYTES)
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"line {line}: has the character U+{error.character:04X}; remove it"
        raise refused(path, message) from None
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _count(path, root, {})
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" in line {place.line + 1}" if place is not None else ""
        raise refused(path, f"is not one YAML document{where}; correct it there") from None
    finally:
        loader.dispose()


def _count(path: Path, node: Node, counts: dict[Node, int]) -> int:
    """Nodes below a node, aliases counted at every use; an error above `MOST_NODES`."""
    if node in counts:
        if not counts[node]:
            raise refused(path, f"line {_line(node)}: has an anchor inside itself; remove it")
        return counts[node]
    # Zero marks a node under way: a meeting with this mark is an anchor inside itself.
    counts[node] = 0
    inside = node.value if isinstance(node.value, list) else ()
    # Mappings hold pairs of nodes, sequences hold nodes.
    pairs = (item if isinstance(item, tuple) else (item,) for item in inside)
    total = 1 + sum(_count(path, part, counts) for pair in pairs for part in pair)
    if total > MOST_NODES:
        message = f"line {_line(node)}: stands for more than {MOST_NODES:,} values"
        raise refused(path, f"{message} with its aliases; write fewer")
    counts[node] = total
    return total


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1

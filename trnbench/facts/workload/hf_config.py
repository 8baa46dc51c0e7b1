"""Import of Hugging Face's config.json as a model file, by the tables of `families.toml`.

Absent keys get the library's own defaults; sizes have none and are required. Configurations of
mamba_ssm, which name no architecture, keep the mixer's numbers in `ssm_cfg` and pad the vocabulary
when a model is built, are first rewritten as Hugging Face's `mamba2`, with the defaults of
`MambaConfig` and `Mamba2` (state-spaces/mamba).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from trnbench.errors import DataFileError, Fault, InputError, UnknownNameError
from trnbench.facts.catalog.foreign import read_object
from trnbench.facts.catalog.provenance import Provenance
from trnbench.facts.catalog.search import CONFIGURATION
from trnbench.facts.catalog.structure import structure
from trnbench.facts.catalog.text_file import refused, refused_with_all
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.config_language import Fields, Scope
from trnbench.facts.workload.layers import MAX_LAYERS, LayerKind, as_pattern
from trnbench.facts.workload.model import Model

ConfigTable = dict[str, object]

BASES = ("base", "encoder")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_STRUCTURAL = re.compile(
    r"size|dim|rank|head|layer|expert|window|hidden|ffn|group|kernel|conv|state|mlp|attn|attention"
    r"|vocab|adapter|projector|index|embed|depth|width|tower|compress|share"
)
"""Words in keys that may change parameters or FLOP."""
_PREDICTED = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
_LISTS = ("optional", "zero", "inert", "unread")


class ImportedModel(Record):
    """A model of a configuration, its file, and remarks on ignored keys."""

    name: str
    family: str
    model: Model
    text: str
    ignored: tuple[str, ...]


def read_config(path: Path) -> dict[str, object]:
    """The configuration in a config.json, or in the folder of one."""
    if path.is_dir():
        inside = path / CONFIGURATION
        if not inside.is_file():
            raise refused(path, f"a folder without {CONFIGURATION}")
        path = inside
    return read_object(path)


def configured_model(path: Path) -> Model:
    """The model of a config.json, called as the folder that holds it."""
    name = re.sub(r"[^a-z0-9._-]+", "-", path.resolve().parent.name.lower()).lstrip("._-")
    made = import_config(
        read_config(path), name or "model", date=changed_on(path), origin=str(path)
    )
    return replace(made.model, provenance=Provenance(path=str(path)))


def changed_on(path: Path) -> datetime.date:
    """The day a file was last changed: the same file gives the same model on any day."""
    return datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()


@cache
def families() -> Mapping[str, Mapping[str, object]]:
    """Every importable family of models, with its inherited tables."""
    written = read_toml(Path(__file__).with_name("families.toml"))
    by_name: dict[str, Mapping[str, object]] = {}

    def whole(name: str) -> Mapping[str, object]:
        if name not in by_name:
            own = written[name]
            assert isinstance(own, Mapping)
            like = own.get("like")
            by_name[name] = own if like is None else _taken_over(whole(str(like)), own)
        return by_name[name]

    return {name: whole(name) for name in written}


def _taken_over(base: Mapping[str, object], own: Mapping[str, object]) -> Mapping[str, object]:
    model = _copied(base["model"])
    for path in own.get("drop", ()):  # type: ignore[attr-defined]
        *way, last = str(path).split(".")
        inside = model
        for part in way:
            inside = inside[part]  # type: ignore[assignment]
        del inside[last]
    joined = _merged({**base, "model": model}, own)
    lists = {key: [*base.get(key, ()), *own.get(key, ())] for key in _LISTS}  # type: ignore[misc]
    alone = {key: own.get(key) for key in ("architectures", "model_types", "inside") if key in own}
    kept = {k: v for k, v in joined.items() if k not in ("architectures", "model_types", "inside")}
    return {**kept, **lists, **alone}


def _merged(base: Mapping[str, object], own: Mapping[str, object]) -> ConfigTable:
    result = dict(base)
    for key, value in own.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def _copied(table: object) -> ConfigTable:
    assert isinstance(table, Mapping)
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in table.items()}


def family_names() -> tuple[str, ...]:
    return tuple(sorted(name for name in families() if name not in BASES))


def import_config(
    config: Mapping[str, object],
    name: str,
    *,
    date: datetime.date,
    origin: str = CONFIGURATION,
    family: str | None = None,
    depths: bool = False,
) -> ImportedModel:
    """The file `name`.toml for the configured model.

    `date` is the date of the configuration, `origin` its name in messages; `family` overrides the
    configuration's own. `depths` includes the modules of multi-token prediction.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r:.60} cannot name a model; use small letters, digits, '.', '-' and '_'"
        )
    # Mamba's own format is rewritten first, so that a single reader knows all families.
    if "model_type" not in config and "d_model" in config and _MIXER in config:
        config = _mamba_as_hugging_face(config, origin)
    chosen = _family(config, origin) if family is None else _known(family)
    reader = _Reader(chosen, config)
    model = reader.model()
    reader.refuse_unread()
    if reader.faults:
        raise refused_with_all(origin, list(dict.fromkeys(reader.faults)))
    head: ConfigTable = {"name": name, "title": f"{name}, imported from a {chosen} configuration"}
    predicted = reader.predicted if depths else ()
    if depths and not predicted:
        message = f"missing: there is nothing to take in with --mtp; one of {', '.join(_PREDICTED)}"
        raise refused(origin, message, _PREDICTED[0])
    for _, count in predicted[:1]:
        head["mtp_depths"] = count
    built = structure({**head, **model}, Model)
    if isinstance(built, list):
        raise refused_with_all(origin, built)
    source: ConfigTable = {"title": f"Hugging Face config.json of {name}", "date": date}
    remarks: ConfigTable = {"source": "config", "kind": "vendor", "sources": {"config": source}}
    text = toml_text({**head, **remarks, **model})
    ignored = (*reader.ignored(), *(() if depths else reader.without_depths()))
    return ImportedModel(name=name, family=chosen, model=built, text=text, ignored=ignored)


def _known(family: str) -> str:
    if family not in family_names():
        raise UnknownNameError("family", family[:60], family_names())
    return family


def _family(config: Mapping[str, object], origin: str) -> str:
    name = config.get("model_type")
    named = config.get("architectures")
    classes = named if isinstance(named, list) else []
    for family, table in families().items():
        if name in (family, *table.get("model_types", ())) and family not in BASES:  # type: ignore[misc]
            return family
    # `model_type` is decisive; classes help with configurations that leave it out or rename it.
    for family, table in families().items():
        if any(architecture in table.get("architectures", ()) for architecture in classes):  # type: ignore[operator]
            return family
    if not isinstance(name, str):
        message = "missing" if name is None else "expected a text"
        raise refused(origin, f"{message}; one of {', '.join(family_names())}", "model_type")
    unknown = UnknownNameError("architecture", name[:60], family_names(), where=origin)
    unknown.hint = f"--as FAMILY reads it as one of {', '.join(family_names())}"
    raise unknown


class _Reader:
    """Reader of a configuration, or of a table in one, as a family."""

    def __init__(self, family: str, config: Mapping[str, object]) -> None:
        self.table = families()[family]
        self.config = config
        inside = self.table.get("inside")
        nested = config.get(str(inside)) if inside else None
        # Multimodal configurations keep the text model in a table; keys outside count as well.
        self.inner = nested if isinstance(nested, Mapping) else config
        self.scope = Scope(self.table, Fields(self.inner), Fields(config))
        self.parts: dict[str, _Reader] = {}
        self.nested = {str(inside)} if isinstance(nested, Mapping) else set()
        for key, about in self._tables("tables"):
            value = config.get(key)
            if isinstance(value, Mapping):
                self.parts[key] = _Reader(str(about["like"]), value)
                self.scope.tables[key] = self.parts[key].part
        self._made: ConfigTable | None = None

    @property
    def faults(self) -> list[Fault]:
        """Every fault so far."""
        own = [fault for fields in self.scope.fields for fault in fields.faults]
        return own + [
            Fault(f"{key}.{fault.path}", fault.message)
            for key, part in self.parts.items()
            for fault in part.faults
        ]

    def part(self, name: str) -> object:
        """A part of this model, or the value of a key."""
        made = self.model()
        return made[name] if name in made else self.scope.value(name)

    def model(self) -> ConfigTable:
        """Tables of the model file."""
        if self._made is not None:
            return self._made
        # Set before the evaluation: an expression that asks for this model while it is made gets
        # the value of a key instead of an endless recursion.
        self._made = {}
        for key, about in self._tables("only"):
            value, why = about["value"], str(about["why"])
            self.scope.used.add(key)
            self.scope.fields[0].only(key, value, why)  # type: ignore[arg-type]
        for key, most in self._of("most").items():
            value = self.scope.value(key)
            if isinstance(value, float) and isinstance(most, float) and value > most:
                self.scope.fault(key, f"must be at most {most:g}, found {value}")
        equal = self.table.get("equal")
        if isinstance(equal, list) and not self.scope.evaluate(str(equal[0])):
            key, _, why = str(equal[1]).partition(": ")
            self.scope.fault(key, why)
        made = self._built(_copied(self.table["model"]))
        transformer = made.get("transformer")
        if isinstance(transformer, dict):
            _settle_layers(transformer, self.scope)
        self._made = made
        return made

    def _built(self, table: ConfigTable) -> ConfigTable:
        """A table with its expressions evaluated, without empty results."""
        made: ConfigTable = {}
        order = table.pop("order", None)
        for key, leaf in table.items():
            if isinstance(leaf, dict):
                if "when" in leaf and not self.scope.evaluate(str(leaf.pop("when"))):
                    continue
                value: object = self._built(leaf)
                # A kind without a word of its own is the plain one.
                if not value and key not in self._kinds():
                    continue
            else:
                value = self.scope.evaluate(str(leaf))
                if value is None:
                    continue
            made[key] = value
            # Expressions below count on the number of layers, whatever key it was read from.
            if key == "layers":
                self.scope.bound["num_layers"] = value
        if order is not None:
            count = made.get("layers")
            layers = min(count, MAX_LAYERS) if isinstance(count, int) else 0
            made["order"] = [self._at(str(order), i) for i in range(layers)]
        return made

    def _kinds(self) -> Mapping[str, object]:
        transformer = self._of("model").get("transformer")
        kinds = transformer.get("kinds", {}) if isinstance(transformer, Mapping) else {}
        return kinds if isinstance(kinds, Mapping) else {}

    def _at(self, expression: str, layer: int) -> str:
        self.scope.bound["i"] = layer
        value = self.scope.evaluate(expression)
        del self.scope.bound["i"]
        return str(value)

    def _of(self, part: str) -> Mapping[str, object]:
        entries = self.table.get(part, {})
        return entries if isinstance(entries, Mapping) else {}

    def _tables(self, part: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        for key, about in self._of(part).items():
            if isinstance(about, Mapping):
                yield key, about

    def _left(self) -> Iterator[str]:
        """Yield non-empty keys that nothing read."""
        skipped = [*self.table.get("inert", ()), *self.table.get("unread", ())]  # type: ignore[misc]
        inert = re.compile("|".join(skipped))
        seen = self.scope.used | self.nested | set(self.parts)
        tables = (self.inner,) if self.inner is self.config else (self.inner, self.config)
        for key in dict.fromkeys(key for table in tables for key in table):
            said = next(table[key] for table in tables if key in table)
            empty = said in (None, False, 0, "", [], {})
            if not (empty or key in seen or inert.fullmatch(key)):
                yield key

    def refuse_unread(self) -> None:
        """Add a fault for every unread key that may change parameters or FLOP."""
        for part in self.parts.values():
            part.refuse_unread()
        for key in self._left():
            if _STRUCTURAL.search(key):
                self.scope.fault(key, "not read, and it may change parameters or FLOP")

    def ignored(self) -> Iterator[str]:
        """Yield remarks on ignored keys."""
        for key in self._left():
            yield f"{key} is ignored"
        for name, part in self.parts.items():
            yield from (f"{name}.{words}" for words in part.ignored())

    @property
    def predicted(self) -> tuple[tuple[str, object], ...]:
        tables = (self.config,) if self.inner is self.config else (self.config, self.inner)
        depths = ((key, table.get(key)) for table in tables for key in _PREDICTED)
        return tuple((key, count) for key, count in depths if count)

    def without_depths(self) -> Iterator[str]:
        """Yield a remark on omitted modules of multi-token prediction."""
        left_out = "modules that predict further tokens are left out; --mtp takes them in"
        yield from (f"{key} {count}: {left_out}" for key, count in self.predicted)


def _settle_layers(transformer: ConfigTable, scope: Scope) -> None:
    """Turn the order of layers into a pattern and its kinds, or into plain parts without one."""
    order = transformer.pop("order", None)
    kinds = transformer.pop("kinds", {})
    if not isinstance(order, list) or not isinstance(kinds, dict):
        return
    unknown = sorted({name for name in order if name not in kinds})
    if unknown or not order:
        if not scope.fields[0].faults:
            scope.fault("layer_types", f"has layers of no known kind: {', '.join(unknown)[:60]}")
        return
    used = {name: kinds[name] for name in dict.fromkeys(order)}
    made = {name: LayerKind(**about) for name, about in used.items()}
    feeds, mixers = (
        {getattr(layer, part) for layer in made.values()} for part in ("feed_forward", "mixer")
    )
    for part, there in (("mlp", feeds), ("moe", feeds), ("attention", mixers), ("scan", mixers)):
        if part not in there:
            transformer.pop(part, None)
    if len(used) == 1 and mixers == {"attention"} and feeds != {"none"}:
        (kind,) = made.values()
        # Equal layers need no pattern: the window moves to the model's attention.
        if kind.rotary and kind.first_norm:
            bounds = {"window": kind.window, "chunk": kind.chunk}
            attention = transformer["attention"]
            assert isinstance(attention, dict)
            attention |= {key: value for key, value in bounds.items() if value}
            return
    # Dense layers before all layers with experts are a number, too; any other order is a pattern.
    leading = next((i for i, name in enumerate(order) if name != "dense"), len(order))
    moe = transformer.get("moe")
    if set(used) == {"dense", "moe"} and set(order[leading:]) == {"moe"} and isinstance(moe, dict):
        moe["dense_layers"] = leading
        return
    transformer["pattern"] = as_pattern(tuple(order))
    transformer["kinds"] = used


_MIXER, _PADDING = "ssm_cfg", "pad_vocab_size_multiple"
_KEYS = {"d_model": "hidden_size", "n_layer": "num_hidden_layers"}
_MIXER_KEYS: Mapping[str, tuple[str, object]] = {
    "d_state": ("state_size", 128),
    "d_conv": ("conv_kernel", 4),
    "headdim": ("head_dim", 64),
    "ngroups": ("n_groups", 1),
    "chunk_size": ("chunk_size", 256),
    "conv_bias": ("use_conv_bias", True),
    "bias": ("use_bias", False),
    "expand": ("expand", 2),
}
"""Key of a mixer -> the key of Hugging Face, and the default."""
_PLAIN: Mapping[str, object] = {"attn_layer_idx": [], "attn_cfg": {}, "d_intermediate": 0}
"""Keys of other kinds of layers, absent from plain Mamba-2 models."""
_MIXER_PLAIN: Mapping[str, object] = {"d_ssm": None, "D_has_hdim": False, "rmsnorm": True}
_INERT = ("layer", "A_init_range", "norm_before_gate", "conv_init", "use_mem_eff_path")


def _mamba_as_hugging_face(config: Mapping[str, object], origin: str) -> dict[str, object]:
    """The same model in Hugging Face's form; other models than Mamba-2 are refused."""
    config = {key: value for key, value in config.items() if value is not None}
    mixer = config.get(_MIXER)
    if not isinstance(mixer, Mapping):
        raise refused(origin, "expected a table", _MIXER)
    mixer = {key: value for key, value in mixer.items() if value is not None}
    faults = [
        *_unlike(config, {**_PLAIN, "rms_norm": True}, ""),
        *_unlike(mixer, _MIXER_PLAIN, f"{_MIXER}."),
        *(
            Fault(f"{_MIXER}.{key}", "not read, and it may change parameters or FLOP")
            for key in mixer
            if key not in (*_MIXER_KEYS, *_MIXER_PLAIN, *_INERT) and not key.startswith("dt_")
        ),
    ]
    if mixer.get("layer") != "Mamba2":
        layer = mixer.get("layer", "Mamba1, the default")
        message = f"only Mamba2 layers can be imported, found {layer!s:.60}"
        faults.insert(0, Fault(f"{_MIXER}.layer", message))
    if faults:
        raise DataFileError(origin, faults)
    read = {_MIXER, _PADDING, "tie_embeddings", *_KEYS, *_PLAIN, "rms_norm"}
    layer = {
        "model_type": "mamba2",
        "tie_word_embeddings": config.get("tie_embeddings", True),
        **{key: value for key, value in config.items() if key not in read},
        **{name: config.get(key) for key, name in _KEYS.items()},
        **{name: mixer.get(key, default) for key, (name, default) in _MIXER_KEYS.items()},
    }
    widths = [layer[key] for key in ("expand", "hidden_size", "head_dim")]
    match widths:
        case [int(expand), int(hidden), int(head)] if head > 0:
            layer["num_heads"] = expand * hidden // head
        case _:
            pass  # Whoever reads the numbers says which of them is none.
    words, multiple = config.get("vocab_size", 50277), config.get(_PADDING, 8)
    match words, multiple:
        case int(), int() if multiple > 0:
            layer["vocab_size"] = -(-words // multiple) * multiple
        case _:
            raise refused(origin, "expected a whole number above 0", _PADDING)
    return layer


def _unlike(config: Mapping[str, object], plain: Mapping[str, object], path: str) -> list[Fault]:
    return [
        Fault(f"{path}{key}", f"only {value!r} can be imported")
        for key, value in plain.items()
        if config.get(key) not in (None, value)
    ]

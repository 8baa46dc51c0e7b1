"""Steps in two older sets of columns, translated into those of `columns`.

Published tables were first collected with columns of their own, some of them prose: how the weights
are cut stands in the name of the software, a launch script tells of recompute. What each word means
is said here once, row by row, without a model or a prediction: cells in, cells out. The shipped
files were written by the same translation (`workloads/published/convert.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trnbench.catalog.search import Catalog
from trnbench.evidence.columns import KNOB_COLUMNS, MODEL_COLUMNS
from trnbench.evidence.rows import OLDER, EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.step_row import UNTRUSTED
from trnbench.hardware.library import load_chip, load_published

_DOUBTS = ("INCONSISTENT", "SUSPICIOUS", "not usable")
"""Marks in a row's notes of what its collector would not stand by."""
_AGREE = 0.1
"""How far two cells that say the same may lie apart: rounding, not contradiction."""
_FEWEST_CHUNKS = "2"
"""Virtual stages of an interleaved schedule whose number is not published."""
_GPU_FORMATS = (
    (("mxfp8", "fp8-mx"), "mxfp8"),
    (("fp8-blockwise", "fp8-subchannel"), "fp8-blockwise"),
    (("fp8", "float8"), "fp8"),
    (("bf16",), "bf16-master"),
    (("fp16",), "fp16-master"),
    (("tf32",), "tf32"),
    (("fp32",), "fp32"),
)
"""Words of a dtype column -> recipe; the first that is there wins. Mixed precision unless said."""
_TRAINIUM_FORMATS = (
    (("fp32optimizer", "mixed", "master"), "bf16-master"),
    (("bf16+sr", "bf16-sr"), "bf16-sr"),
    (("bf16",), "bf16-pure"),
    (("fp32",), "auto-cast-bf16"),
)
"""The same on Trainium: XLA_USE_BF16 keeps no master copy, fp32 is cast by the compiler."""
_TRAINIUM_SOFTWARE = (
    ("neuronx-nemo-megatron", "neuronx-nemo-megatron"),
    ("neuronx-distributed", "neuronx-distributed"),
    ("torch-neuronx", "torch-neuronx"),
    ("nxd-training", "nxd-training"),
    ("huggingface", "torch-neuronx"),
    ("nemo path", "neuronx-nemo-megatron"),
    ("gpt3", "neuronx-nemo-megatron"),
)
"""Words about a Trainium run -> its software; the first that is there wins."""
_JOBS = {"pre-training": "pretrain", "fine-tuning": "finetune"}
_ZERO = re.compile(r"zero-?\s*(\d)|^(\d)\b", re.IGNORECASE)
_VERSION = re.compile(r"\b\d+\.\d+(?:\.\d+)*\b")
_EXPERTS = re.compile(r"(?P<experts>\d+)\s+experts?,?\s+top-(?P<top_k>\d+)")
_EXPERT_PARTS = {
    "expert_ffn": re.compile(r"expert ffn\s+(\d+)"),
    "shared_experts": re.compile(r"\+\s*(\d+)\s+shared"),
    "dense_layers": re.compile(r"dense_layers=(\d+)|(\d+)\s+dense layers?"),
    "head_size": re.compile(r"head_dim\s+(\d+)"),
}


def steps_of(catalog: Catalog, file: EvidenceFile) -> EvidenceFile:
    """Return a file of steps with the columns of `columns`, translated where it has older ones."""
    if file.set not in OLDER:
        return file
    rows = tuple(_translated(catalog, file, row) for row in file.rows)
    return replace(file, set="steps", rows=rows)


def _translated(catalog: Catalog, file: EvidenceFile, row: EvidenceRow) -> EvidenceRow:
    gpu = file.set == "gpu_training"
    cells = _of_gpus(catalog, row) if gpu else _of_trainium(catalog, row)
    # A column that both sets have under the same name, and any knob that a row says by its name.
    kept = ("id", "use", "source", "model", "nodes", "outcome", "notes")
    named = (*kept, *(column.name for column in (*MODEL_COLUMNS, *KNOB_COLUMNS)))
    same = {name: row.text(name) for name in named if row.said(name)}
    found = {name: cell for name, cell in {**same, **cells}.items() if cell}
    doubt = _doubt(row) or _contradiction(row, _rates_s(row, gpu=gpu))
    if not doubt and "experts" in found and "ep" not in found:
        doubt = "ep is not said, and the model has experts"
    if doubt:
        others = [part.strip() for part in row.text("notes").split(";") if doubt not in part]
        found |= {"trust": UNTRUSTED, "notes": "; ".join(filter(None, [doubt, *others]))}
    return replace(row, cells=found)


def _of_gpus(catalog: Catalog, row: EvidenceRow) -> Mapping[str, str]:
    framework, recompute = row.text("framework"), row.text("recompute").lower()
    interleaved = not row.said("vpp") and "interleaved" in framework.lower()
    return {
        "instance": _gpu_instance(catalog, row),
        "ranks": row.text("n_gpus"),
        **({"vpp": _FEWEST_CHUNKS} if interleaved else {}),
        "zero": _gpu_zero(row),
        "sequence_parallel": _gpu_sequence_parallel(row),
        "recompute": _recompute(recompute),
        "offload": "optimizer" if "offload" in recompute else "",
        "attention": _attention(row),
        "precision": _format(row.text("dtype"), _GPU_FORMATS),
        "framework": framework,
        "release": (_VERSION.findall(framework) or [""])[0],
        "step_time_s": _step_time(row, _rates_s(row, gpu=True)),
        **_experts(row.text("moe").lower()),
    }


def _gpu_instance(catalog: Catalog, row: EvidenceRow) -> str:
    """Return the machine's name; or how it is called, where that is none or of another chip."""
    system, gpu = row.text("system"), row.text("gpu")
    instance = load_published(catalog, system, gpu)
    called = f"{gpu} in {system}" if gpu else system
    if instance is None:
        return called
    chip = load_chip(catalog, instance.chip).name
    return instance.name if chip.startswith(gpu.partition("-")[0].lower()) else called


def _gpu_zero(row: EvidenceRow) -> str:
    text = row.text("zero") or row.text("framework")
    found = _ZERO.search(text)
    if found:
        return found[1] or found[2]
    if "SHARD_GRAD_OP" in text:
        return "2"
    if "distributed optimizer" in text.lower():
        return "1"
    # Weights cut over fewer ranks than there are replicas are taken as cut over all of them.
    sharded = row.said("fsdp_shard") and row.text("fsdp_shard") != "1"
    return "3" if sharded or "FSDP" in text or "FULL_SHARD" in text else ""


def _gpu_sequence_parallel(row: EvidenceRow) -> str:
    if row.said("sequence_parallel"):
        return row.text("sequence_parallel")
    if "sequence parallel" in row.text("recompute").lower():
        return "1"
    return "0" if "no sequence parallel" in row.text("notes").lower() else ""


def _of_trainium(catalog: Catalog, row: EvidenceRow) -> Mapping[str, str]:
    instance = load_published(catalog, row.text("instance"), "")
    dp = next((c for c in ("DP_derived", "DP", "DP_published") if row.said(c)), "")
    zero = _ZERO.search(row.text("zero"))
    return {
        "instance": row.text("instance") if instance is None else instance.name,
        "ranks": row.text("neuroncores"),
        **{name: row.text(name.upper()) for name in ("tp", "pp", "cp", "ep")},
        "dp": row.text(dp),
        "mbs": row.text("microbatch"),
        "gbs": row.text("global_batch"),
        "seq": row.text("seq_len") if row.said("seq_len") else "",
        "job": _JOBS.get(row.text("task").lower(), row.text("task")),
        "zero": (zero[1] or zero[2]) if zero else "",
        "sequence_parallel": _trainium_sequence_parallel(row),
        "recompute": _recompute(row.text("activation_recompute").lower()),
        "attention": _attention(row),
        "precision": _format(row.text("dtype_mode"), _TRAINIUM_FORMATS),
        "framework": _trainium_software(row),
        "release": row.text("neuron_release") or _release_of(row.text("published_first")),
        "trust": row.text("trust"),
        "step_time_s": _step_time(row, _rates_s(row, gpu=False)),
    }


def _release_of(published: str) -> str:
    """Return the release that a table's first date means, or else the date."""
    first_date_of_2_5 = "2022-11-23"
    return (
        "2.4"
        if len(published) == len(first_date_of_2_5) and published < first_date_of_2_5
        else published
    )


def _trainium_sequence_parallel(row: EvidenceRow) -> str:
    text = row.text("sequence_parallel").lower()
    if text.startswith(("yes", "true", "on")):
        return "1"
    return "0" if text.startswith(("no", "false", "off")) else ""


def _trainium_software(row: EvidenceRow) -> str:
    """Return the software of a Trainium run, and with it the publisher's name of its model."""
    if row.said("framework"):
        return row.text("framework")
    texts = (row.text(column) for column in ("activation_recompute", "notes", "source", "model"))
    told = " ; ".join(texts).lower()
    software = next((name for words, name in _TRAINIUM_SOFTWARE if words in told), "")
    return f"{software}, {row.text('model')}" if software == "torch-neuronx" else software


def _recompute(text: str) -> str:
    """Return the mode that a text begins with; nothing where it does not say one."""
    return next((mode for mode in ("none", "selective", "full") if text.startswith(mode)), "")


def _attention(row: EvidenceRow) -> str:
    if row.said("attention"):
        return row.text("attention")
    return "fused" if "flash" in row.text("notes").lower() else ""


def _format(text: str, formats: tuple[tuple[tuple[str, ...], str], ...]) -> str:
    lower = text.lower()
    return next((recipe for words, recipe in formats if any(w in lower for w in words)), text)


def _experts(text: str) -> Mapping[str, str]:
    """Return what a text such as '8 experts top-2, expert ffn 768, head_dim 128' says."""
    if not text:
        return {}
    cells = {"experts": text}
    if found := _EXPERTS.search(text):
        cells = found.groupdict()
    for column, pattern in _EXPERT_PARTS.items():
        if part := pattern.search(text):
            cells[column] = next(filter(None, part.groups()))
    if "mla" in text.split(", "):
        cells["latent"] = "1"
    if "sliding window" in text:
        cells["window"] = text.rpartition(", ")[2]
    return cells


def _doubt(row: EvidenceRow) -> str:
    parts = (part.strip() for part in row.text("notes").split(";"))
    return next((part for part in parts if any(mark in part for mark in _DOUBTS)), "")


def _rates_s(row: EvidenceRow, *, gpu: bool) -> list[float]:
    """Return the step times that a row's rates mean, s; none where cells are not to be read."""
    found: list[float] = []
    try:
        batch = row.whole("gbs" if gpu else "global_batch")
        if gpu and row.said("tokens_per_s_per_gpu"):
            rate = row.positive("tokens_per_s_per_gpu") * row.whole("n_gpus")
            found.append(batch * row.whole("seq") / rate)
        if not gpu and row.said("seq_per_s"):
            found.append(batch / row.positive("seq_per_s"))
        if not gpu and row.said("tokens_per_s") and row.said("seq_len"):
            found.append(batch * row.whole("seq_len") / row.positive("tokens_per_s"))
    except RowFault:
        return found
    return found


def _step_time(row: EvidenceRow, rates_s: list[float]) -> str:
    if row.said("step_time_s") or not rates_s:
        return row.text("step_time_s")
    return repr(rates_s[0])


def _contradiction(row: EvidenceRow, rates_s: list[float]) -> str:
    """Return in words how a row's times contradict one another, if they do."""
    try:
        times = [row.positive("step_time_s"), *rates_s] if row.said("step_time_s") else rates_s
    except RowFault:
        return ""
    for other in times[1:]:
        if abs(other / times[0] - 1) > _AGREE:
            return f"its rate means {other:.4g} s a step, and it says {times[0]:.4g} s"
    return ""

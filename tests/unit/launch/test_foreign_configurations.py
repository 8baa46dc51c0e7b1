"""Configurations that others wrote, or spoilt: one message that names the file, of any size."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnbench.errors import DataFileError, InputError
from trnbench.launch.arguments import MOST_CHARACTERS, read_flags
from trnbench.launch.reading import MOST_NODES, read_config, read_yaml

NXDT = "distributed_strategy: {tensor_model_parallel_size: 8}\n"
MEGATRON = "torchrun x.py --tensor-model-parallel-size 2 --recompute-granularity selective "
BRIDGE = "x.py model.tensor_model_parallel_size=2 model.recompute_granularity=selective "
NINE = ",".join(["*a{}"] * 9)


def grown(times, link, first):
    """A YAML text of some lines, each nine times what the one before stands for."""
    links = (
        f"a{n + 1}: &a{n + 1} {link.replace('NINE', NINE.replace('{}', str(n)))}"
        for n in range(times)
    )
    return "\n".join([f"a0: &a0 {first}", *links])


SPOILT = {
    "merges.yaml": (grown(11, "{<<: [NINE]}", "{k: 8}"), "values with its aliases"),
    "aliases.yaml": (grown(11, "[NINE]", "[1]"), "values with its aliases"),
    "inside.yaml": (NXDT + "n: &n [*n]", "line 2: has an anchor inside itself"),
    "date.yaml": (NXDT + "date: 2026-13-01", "month must be in 1..12"),
    "time.yaml": (NXDT + "date: 2026-01-01T25:61:61Z", "hour must be in 0..23"),
    "int.yaml": (NXDT + 'n: !!int "x"', "invalid literal"),
    "digits.yaml": (NXDT + f"n: {'9' * 5000}", "a number of too many digits"),
    "hex.yaml": (f"distributed_strategy: {{tensor_model_parallel_size: 0x{'f' * 5000}}}", "tp: "),
    "deep.yaml": (NXDT + "n: " + "[" * 20_000, "nested too deeply"),
    "kind.yaml": (NXDT + "model_alignment_strategy: {peft: [1]}", "a value of another kind"),
    "tag.yaml": (NXDT + "n: !!python/object:os.system {}", "is not one YAML document in line 2"),
    "plus.py": ("x = " + "+".join(["1"] * 50_000), "nested too deeply"),
    "dots.py": (f"x = x{'.a' * 50_000}()", "nested too deeply"),
    "hex.py": (f"f(tensor_parallel_degree=0x{'f' * 5000})", "tensor_parallel_degree: "),
    "variables.sh": (f"A0={'$A0' * 100}\n--tensor-model-parallel-size $A0", "its variables"),
    "modules.sh": (MEGATRON + "--recompute-modules core_attn mlp", "recompute of mlp is not"),
    "experts.sh": (
        MEGATRON + "--recompute-modules moe shared_experts",
        "recompute of moe and shared_experts is not modelled; modelled: core_attn",
    ),
    "bridge.sh": (BRIDGE + "model.recompute_modules=[mlp]", "recompute of mlp is not modelled"),
    "mode.sh": (MEGATRON.replace("selective", "most"), "recompute granularity most is not"),
    "factor.sh": (MEGATRON + "--moe-expert-capacity-factor x", "--moe-expert-capacity-factor"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_cannot_be_read_is_told_in_a_line(tmp_path, name):
    text, said = SPOILT[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(f"{path}: ")
    assert said in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 200


def test_a_module_named_twice_is_one(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(MEGATRON + "--recompute-modules layernorm layernorm core_attn")
    assert read_config(path).knobs["recompute"] == "attention-core,norms"


def test_merges_and_aliases_within_the_bound_are_read(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\nagain: [*base, *base]")
    base = {"a": 1, "b": 2}
    assert read_yaml(path) == {"base": base, "other": {"a": 1, "b": 3}, "again": [base, base]}


def test_a_character_that_yaml_does_not_allow_is_named_with_its_line(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: \x1b[0m\n")
    with pytest.raises(DataFileError, match=r"line 2: has the character U\+001B; remove it"):
        read_yaml(path)


@pytest.mark.parametrize("more", [0, 1])
def test_the_bound_counts_each_value_as_often_as_it_stands(tmp_path, more):
    # Two keys and their lists; the first of n numbers, the other that many times the first:
    # 1 + 2 + (n + 1) + 1 + times (n + 1) nodes.
    path = tmp_path / "x.yaml"
    n, times = 499, MOST_NODES // 500 - 2
    rest = MOST_NODES - (1 + 2 + 500 + 1 + times * 500)
    path.write_text(f"a: &a [{'1,' * n}]\nb: [{'*a,' * times}{'1,' * (rest + more)}]")
    if more:
        with pytest.raises(DataFileError):
            read_yaml(path)
    else:
        assert len(read_yaml(path)["b"]) == times + rest


HUGE = 1 << 19
GIANTS = {
    "a word": "x" * HUGE,
    "a name": f"run {'x.' * (HUGE // 2)}",
    "blank lines": "\n" * HUGE,
    "arrays that never end": "a=(\n" * (HUGE // 4),
    "defaults that never end": "${a:-" * (HUGE // 5),
    "a variable for each line": "".join(f"A{n}=${{A{n}:-x}}\n" for n in range(HUGE // 16)),
    "lists of modules": "--recompute-modules x " * (HUGE // 22),
    "one quote": "'" + "--x " * (HUGE // 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", GIANTS.values(), ids=GIANTS)
def test_what_is_long_is_read_in_one_go(tmp_path, text):
    # What grows as the square of such a text would not end.
    path = tmp_path / "x.sh"
    path.write_text(text)
    with pytest.raises(InputError):
        read_config(path)


def test_scripts_that_lead_to_each_other_are_read_a_few_times(tmp_path):
    names = [f"s{n}.sh" for n in range(30)]
    for name in names:
        (tmp_path / name).write_text("\n".join(names))
    with pytest.raises(InputError, match="says no layout"):
        read_config(tmp_path / names[0])


def test_pipes_are_refused(tmp_path):
    for name in ("x.yaml", "x.py", "x.toml", "x.sh"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataFileError, match="is a pipe"):
            read_config(tmp_path / name)


def test_variables_arrays_and_defaults_stand_in_their_places():
    text = """
#SBATCH --nodes=4
export TP=8
PP=${PP:-2}
ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size ${PP}
)
torchrun --nproc_per_node ${GPUS:-8} x.py "${ARGS[@]}" \\
    --seq-length=4096
"""
    flags = read_flags("x.sh", text)
    assert flags.whole("tensor_model_parallel_size") == 8
    assert flags.whole("pipeline_model_parallel_size") == 2
    assert (flags.text("nproc_per_node"), flags.text("nnodes")) == ("8", "4")
    assert flags.whole("seq_length") == 4096


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.text("$ABC {}:-x", max_size=40)), max_size=6))
def test_variables_never_make_more_than_the_bound(said):
    text = "\n".join(f'{name}="{value}"' for name, value in said) + "\n--x $A\n"
    flags = read_flags("x.sh", text)
    assert len(flags.text("x") or "") <= MOST_CHARACTERS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.sampled_from(sorted(SPOILT)), st.data())
def test_any_part_of_a_file_is_read_or_refused(tmp_path, name, data):
    text = SPOILT[name][0][:2000]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    path = tmp_path / name
    path.write_text(text[:start] + text[end:])
    assert read_or_refused(path).startswith(f"{path}: ")


def read_or_refused(path):
    """What the refusal says; where the file is read, that it is."""
    try:
        return f"{read_config(path).path}: "
    except InputError as error:
        return error.message

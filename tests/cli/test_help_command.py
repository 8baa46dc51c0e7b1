"""The words people meet: help, concepts, suggestions, and words that are not used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.lines import verbs
from trnbench.cli.derived_options import completes, completes_stacks
from trnbench.cli.first_screen import EXAMPLES, VERB_GROUPS
from trnbench.cli.main import VERBS
from trnbench.facts.catalog.concepts import concept, glossary, topic_titles
from trnbench.facts.workload.layout import KNOBS
from trnbench.show.guide import pages

ROOT = Path(__file__).parents[2]


def test_the_bare_command_shows_five_examples_that_fit_a_terminal(run):
    shown = run()
    assert shown.code == 0
    assert len(re.findall(r"^  trnbench ", shown.out, re.MULTILINE)) == 5
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", [(), *verbs()], ids=" ".join)
def test_help_is_whole(run, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*verb, "--help")
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    assert not re.search(r"\w\.\.\.$", shown.out, re.MULTILINE), "cut by dots"
    for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown.out, re.MULTILINE):
        assert re.search(rf"{option}.*\n?.*\w{{3}}", shown.out), f"{option} has no help"


@pytest.mark.parametrize("name", topic_titles())
def test_a_topic_uses_the_words_of_the_glossary_and_names_commands_that_are_there(run, name):
    shown = run("help", name)
    found = concept(name)
    assert shown.code == 0
    for word in found.terms:
        assert word in shown.out
    known = {" ".join(verb) for verb in verbs()}
    for command in found.commands:
        assert command.split()[1] in known or " ".join(command.split()[1:3]) in known


def test_help_explains_words_and_commands_and_names_the_nearest_topic(run):
    assert "share of the wall time" in run("help", "Goodput").out
    assert run("help", "compare").out == run("compare", "--help").out
    unknown = run("help", "layuot")
    assert (unknown.code, "did you mean 'layout'?" in unknown.err) == (2, True)
    listed = run("help").out
    assert all(name in listed for name in (*topic_titles(), *pages()))


@pytest.mark.parametrize("name", pages())
def test_a_page_is_printed_and_names_commands_and_pages_that_are_there(run, name):
    shown = run("help", name)
    assert shown.code == 0
    assert pages()[name] in shown.out
    assert "<!--" not in shown.out
    named = set(re.findall(r"`trnbench help ([a-z-]+)`", shown.out))
    assert named <= {*topic_titles(), *pages(), *(verb for (verb, *_) in verbs())}
    assert not re.search(r"\]\(#", shown.out), "a link to a part of another text"


def test_the_whole_guide_is_one_file_that_holds_every_page_and_word(run, tmp_path):
    path = tmp_path / "guide.md"
    assert run("help", "--all", "-o", path).code == 0
    text = path.read_text()
    assert all(f"# {title}\n" in text for title in pages().values())
    assert all(f"**{word}**" in text for word in glossary())
    refused = run("help", "purchase", "--all")
    assert (refused.code, "leave out 'purchase'" in refused.err) == (2, True)


@pytest.mark.parametrize("knob", KNOBS.values(), ids=KNOBS)
def test_every_knob_is_explained_by_a_word_or_a_topic(knob):
    texts = [*glossary().values(), *(concept(name).text for name in topic_titles())]
    named = re.compile(rf"{knob.option}(?![\w-])")
    assert knob.title in glossary() or any(named.search(text) for text in texts)


@pytest.mark.parametrize("name", KNOBS)
def test_help_of_a_knob_says_what_its_option_says(run, name):
    done = run("help", name.replace("_", "-"))
    assert done.code == 0
    said = " ".join(done.out.split())
    assert " ".join(KNOBS[name].help.split()) in said
    assert KNOBS[name].option in said


@pytest.mark.parametrize(
    ("name", "most_lines", "most_bytes"),
    [("README.md", 220, 14_336), ("CONTRIBUTING.md", 250, 24_000), ("CHANGELOG.md", 60, 9_000)],
)
def test_what_is_read_first_is_short(name, most_lines, most_bytes):
    text = (ROOT / name).read_text()
    assert len(text.splitlines()) <= most_lines
    assert len(text.encode()) <= most_bytes


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("h200", "h200 is a chip; instances with it: hgx-h200, p5e.48xlarge, p5en.48xlarge"),
        ("p5.4", "did you mean 'p5.48xlarge' or 'p5.4xlarge'?"),
        ("trn2.48xlrage", "did you mean 'trn2.48xlarge'?"),
        ("qqq", "unknown instance 'qqq'\n"),
    ],
)
def test_an_unknown_instance_gets_a_suggestion_that_helps(run, typed, said):
    done = run("compare", "llama2-7b", "--tokens", "1T", "--on", typed)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (("train", "--zero", "x"), "--zero: 'x' is not a whole number", "trnbench train --help"),
        (("train", "--zero", "9"), "--zero: 9 is not from 0 to 3", "trnbench train --help"),
        (("spec", "shwo"), "did you mean 'show'?", "trnbench spec --help"),
        (("compare", "--deadline", "2 moons"), "expected e.g. 60d, 8w, 3mo or 36h", None),
    ],
)
def test_a_usage_error_speaks_plainly_and_names_the_command(run, arguments, said, hint):
    done = run(*arguments)
    assert (done.code, said in done.err) == (2, True), done.err
    assert hint is None or f"hint: {hint}\n" in done.err


def test_a_stack_that_is_none_of_the_instance_gets_those_that_are(run):
    def asked(stack):
        return run("train", "llama3.1-8b", "--on", "trn2.48xlarge", "--stack", stack)

    assert "did you mean 'axlearn-trn2'?" in asked("axlearn-trn").err
    assert asked("axlearn").out == asked("axlearn-trn2").out
    assert asked("torchtitan").out == asked("torchtitan-trn2").out
    assert "megatron does not run on trn2.48xlarge" in asked("megatron").err
    other = asked("collective-neuron-trn2")
    assert (other.code, "is a communication calibration" in other.err) == (2, True)
    assert "axlearn-trn2" in other.err


def test_a_calibration_of_another_sort_is_no_start_of_a_fit(run, tmp_path):
    log = tmp_path / "steps.log"
    log.write_text(
        "".join(f"iteration {i} | elapsed time per iteration (ms): 9000.0\n" for i in range(1, 9))
    )
    on = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge:4", "--global-batch", 256)
    for stack, sort in (("collective-neuron-trn1", "communication"), ("chip-trainium1", "chip")):
        for named in (("--stack", stack), ("--stack", "mine", "--from", stack)):
            done = run("calibrate", log, *named, *on, "--sequence", 8192)
            assert (done.code, f"{stack} is a {sort} calibration" in done.err) == (2, True)
            assert "nxd-trn1" in done.err


def test_the_first_cause_is_said_and_not_what_follows_from_it(run):
    done = run("train", "llama3.1-70b", "--on", "trn2.48xlarge:4", "--tp", 3)
    assert done.code == 1
    refusals = [line for line in done.out.splitlines() if line.startswith("no: ")]
    assert refusals == ["no: tp=3 does not divide 64 heads; try 2, 4, 1"]


def test_what_does_not_fit_names_one_figure_of_the_memory_there_is(run):
    done = run("train", "llama3.1-405b", "--on", "p5.48xlarge:4")
    assert done.code == 1
    (of,) = set(re.findall(r"([\d.]+ GiB)(?: available|:)", " ".join(done.out.split())))
    assert of == "78.4 GiB"


def test_names_behind_a_comma_are_completed():
    lists = completes(("instances",), several=True)
    assert "trn1.32xlarge:4,p5.48xlarge" in lists("trn1.32xlarge:4,p5")
    assert "p5.48xlarge,p5.48xlarge" not in lists("p5.48xlarge,p5")
    assert completes_stacks()("torchtitan-trn") == ["torchtitan-trn2", "torchtitan-trn3"]


def test_a_model_nobody_knows_is_malformed_input(run, tmp_path):
    rows = tmp_path / "steps.csv"
    rows.write_text("instance,nodes,tp,gbs,seq,step_time_s\ntrn1.32xlarge,1,8,64,4096,9\n")
    done = run("validate", "--evidence", rows, "--model", "lama3.1-8b")
    assert (done.code, "did you mean 'llama3.1-8b'?" in done.err) == (2, True)
    assert run("validate", "--evidence", rows, "--model", "Llama 3.1 8B").code != 2


@pytest.mark.parametrize("verb", [" ".join(verb) for verb in verbs()])
def test_the_first_screen_has_few_options_and_two_examples_and_the_whole_one_has_all(run, verb):
    few, whole = run(*verb.split(), "--help"), run(*verb.split(), "--help-all")
    assert (few.code, whole.code) == (0, 0)
    told = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", few.out, re.MULTILINE)
    every = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", whole.out, re.MULTILINE)
    assert len(told) <= 18
    assert set(told) < set(every)
    assert f"{len(every) - len(told)} more options" in few.out
    assert {"--reward", "--adapter-rank", "--mini-batches"}.isdisjoint(told)
    assert len(EXAMPLES[verb]) == 2
    for line in EXAMPLES[verb]:
        assert f"  {line}\n" in few.out
        assert line.startswith(f"trnbench {verb}")
        assert set(re.findall(r"--[a-z-]+", line)) <= set(every)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("Trn2", "trn2.48xlarge: an instance type"),
        ("h100", "h100: a chip"),
        ("llama3.1-70b", "a model, Meta Llama 3.1 70B"),
        ("nxdt", "a training framework, NxD Training"),
        ("nxd-trn1", "a calibration"),
        ("--max-nodes", "--max-nodes: Without --nodes"),
        ("capacity-block", "reserved for whole days"),
        ("draws", "random guesses"),
    ],
)
def test_names_and_options_of_answers_are_explained(run, word, said):
    done = run("help", word)
    assert (done.code, said in done.out) == (0, True), done.out + done.err


def test_every_verb_stands_in_one_group():
    assert sorted(verb for group in VERB_GROUPS.values() for verb in group) == sorted(VERBS)

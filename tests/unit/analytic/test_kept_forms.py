"""Closed forms in the user's cache folder: the same answers, and no harm from what stands there."""

from pathlib import Path
from typing import Any

import pytest

from trnbench.engines.analytic.step import kept_forms
from trnbench.engines.analytic.step.engines import ExchangeSite
from trnbench.facts.catalog.kept import keep, kept
from trnbench.verbs.search_layouts.run import search_layouts

ASKED: dict[str, Any] = {
    **{"model": "llama2-7b", "nodes": (1, 3), "global_batch": 96, "sequence": 4096},
    "precision": "bf16-master",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "trnbench" / "forms"


def asked(monkeypatch, instance: str):
    """Return what a process finds that knows nothing yet."""
    monkeypatch.setattr(kept_forms, "_kept", {})
    found = search_layouts(instance=instance, **ASKED)
    return found.tally, found.ranked, found.by_nodes


def stored(digest: str) -> dict[str, Any]:
    engines = kept("forms", digest)
    assert isinstance(engines, dict)
    return engines


def never(*_):
    raise AssertionError("a group is placed anew")


@pytest.mark.parametrize("instance", ["trn2.48xlarge", "p5.48xlarge"])
def test_a_second_process_places_nothing_and_finds_the_same(folder, monkeypatch, instance):
    first = asked(monkeypatch, instance)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(ExchangeSite, "_placed", never)
    assert asked(monkeypatch, instance) == first


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "other", "no JSON"])
def test_a_damaged_file_is_as_good_as_none(folder, monkeypatch, harm):
    first = asked(monkeypatch, "trn1.32xlarge")
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    at = len(whole) // 2
    harmed = {
        "cut": whole[:at],
        "changed": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        "empty": b"",
        "other": b"\xff\xfe\n[]",
        "no JSON": b"{",
    }
    path.write_bytes(harmed[harm])
    assert asked(monkeypatch, "trn1.32xlarge") == first
    assert path.read_bytes() == whole


def test_what_another_process_stored_meanwhile_stays(folder, monkeypatch):
    asked(monkeypatch, "trn1.32xlarge")
    (path,) = folder.iterdir()
    digest = path.stem
    mine = stored(digest)
    keep("forms", digest, {**mine, "all-reduce 9 9 9 9 9": ["somebody else's", [], [], []]})
    monkeypatch.setitem(ASKED, "nodes", (1, 2))
    (forms,) = kept_forms._kept.values()
    search_layouts(instance="trn1.32xlarge", **ASKED)
    assert {*mine, "all-reduce 9 9 9 9 9"} < set(stored(digest))
    assert forms.digest == digest


def test_another_platform_or_stack_has_another_file_and_a_closed_folder_does_no_harm(
    folder, monkeypatch
):
    asked(monkeypatch, "trn1.32xlarge")
    asked(monkeypatch, "trn1n.32xlarge")
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    asked(monkeypatch, "trn1.32xlarge")


def test_what_was_found_without_a_search_is_stored_too(folder, monkeypatch):
    monkeypatch.setattr("trnbench.predict.search.pricing.keep_forms", lambda engines: None)
    asked(monkeypatch, "trn1.32xlarge")
    assert not folder.exists()
    kept_forms.keep_all_forms()
    assert len(list(folder.iterdir())) == 1

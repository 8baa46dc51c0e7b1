"""Where files are found, which wins, what it hides, and what aliases stand for."""

from __future__ import annotations

import pytest

from trnbench.errors import DataFileError, InputError, UnknownNameError
from trnbench.facts.catalog import search
from trnbench.facts.catalog.search import Catalog, Folder, open_catalog


def put(folder, place, name, text=""):
    path = folder / place / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or f'name = "{name}"\n')
    return path


@pytest.fixture
def folders(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    put(first, "chips", "alpha")
    put(second, "specs/chips", "alpha")
    put(second, "specs/chips", "beta", 'aliases = ["b", "u-beta"]\n')
    put(second, "workloads/models", "alpha")
    return first, second


def test_the_first_folder_wins_and_what_it_hides_stays_visible(folders):
    first, second = folders
    catalog = Catalog((Folder(first, "--spec-dir"), Folder(second, "built in")))
    alpha, beta = catalog.entries("chips")
    assert (alpha.name, alpha.path, alpha.origin) == (
        "alpha",
        first / "chips/alpha.toml",
        "--spec-dir",
    )
    assert alpha.hides == (second / "specs/chips/alpha.toml",)
    assert (beta.origin, beta.hides) == ("built in", ())
    assert [entry.name for entry in catalog.entries("models")] == ["alpha"]


def test_names_and_aliases_are_found_and_others_are_suggested(folders):
    catalog = Catalog((Folder(folders[1], "built in"),))
    assert catalog.find("chips", "u-beta").name == "beta"
    assert catalog.names("chips") == ("alpha", "beta", "b", "u-beta")
    with pytest.raises(UnknownNameError, match="unknown chip 'betta'; did you mean 'beta'"):
        catalog.find("chips", "betta")


def test_an_alias_used_twice_is_a_fault(folders):
    put(folders[1], "specs/chips", "gamma", 'aliases = ["b"]\n')
    with pytest.raises(DataFileError, match="duplicate name 'b'"):
        Catalog((Folder(folders[1], "built in"),)).find("chips", "b2")


def test_of_a_shipped_file_and_a_users_the_users_is_told_of_the_alias(folders):
    mine = put(folders[0], "chips", "aaa", 'aliases = ["b"]\n')
    catalog = Catalog((Folder(folders[0], "--spec-dir"), Folder(folders[1], "built in")))
    with pytest.raises(DataFileError) as refused:
        catalog.find("chips", "b")
    assert refused.value.file == str(mine)
    assert "specs/chips/beta.toml" in refused.value.message


@pytest.mark.parametrize("aliases", ['[["b"]]', "[{}]", "3"])
def test_an_alias_that_is_no_text_is_left_to_the_schema(folders, aliases):
    put(folders[0], "chips", "odd", f"aliases = {aliases}\n")
    catalog = Catalog((Folder(folders[0], "--spec-dir"), Folder(folders[1], "built in")))
    assert catalog.find("chips", "u-beta").name == "beta"


def test_an_unreadable_file_is_told_of_only_where_it_may_have_the_name(folders):
    put(folders[0], "chips", "broken", "name = ")
    catalog = Catalog((Folder(folders[0], "--spec-dir"), Folder(folders[1], "built in")))
    assert catalog.find("chips", "u-beta").name == "beta"
    with pytest.raises(DataFileError, match=r"broken\.toml: not valid TOML"):
        catalog.find("chips", "perhaps-an-alias-of-the-broken-one")


def test_order_of_folders(folders, tmp_path, monkeypatch):
    user = tmp_path / "user"
    put(user, "chips", "mine")
    monkeypatch.setattr(search, "user_folder", lambda: user)
    catalog = open_catalog([folders[0]], {"TRNBENCH_SPEC_PATH": str(folders[1])})
    assert [folder.origin for folder in catalog.folders] == [
        "--spec-dir",
        "TRNBENCH_SPEC_PATH",
        "user",
        "built in",
    ]
    assert catalog.find("chips", "mine").origin == "user"


def test_a_folder_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(InputError, match=r"--spec-dir: .* is not a folder"):
        open_catalog([tmp_path / "none"], {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"--spec-dir: .* has none of the folders chips/"):
        open_catalog([tmp_path / "empty"], {})
    with pytest.raises(InputError, match=r"TRNBENCH_SPEC_PATH: .* is not a folder"):
        open_catalog([], {"TRNBENCH_SPEC_PATH": "/no/such/folder"})


def test_the_current_folder_is_not_searched(tmp_path, monkeypatch):
    put(tmp_path, "chips", "here")
    monkeypatch.chdir(tmp_path)
    assert "here" not in open_catalog([], {}).names("chips")


def test_the_shipped_files_are_found_without_any_setting():
    assert open_catalog([], {}).find("chips", "trainium2").origin == "built in"


def test_shipped_files_are_read_once_in_a_process_until_they_change(folders):
    user, shipped = folders
    path = shipped / "specs/chips/beta.toml"

    def read(*others):
        return Catalog((*others, Folder(shipped, search.BUILT_IN))).table(path)

    assert read() is read()
    assert read(Folder(user, "--spec-dir")) is not read()
    put(shipped, "specs/chips", "beta", 'aliases = ["another"]\n')
    assert read()["aliases"] == ["another"]


def test_a_name_that_was_only_seen_says_so():
    with pytest.raises(UnknownNameError, match=r"seen in .*aws-neuron driver, not confirmed") as it:
        open_catalog(environment={}).find("instances", "trn3.48xlarge")
    assert "did you mean" not in str(it.value)

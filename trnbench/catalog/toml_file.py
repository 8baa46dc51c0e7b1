"""Reading and writing one TOML file; the only module that knows TOML's parser and writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomli

from trnbench.catalog.text_file import read_text, refused

MAX_BYTES = 1 << 20
"""Hand-written data is far below a mebibyte; more is a wrong file, and refused before reading."""


def read_toml(path: Path) -> dict[str, object]:
    """Return the table in `path`, or raise DataFileError saying what is wrong with the file."""
    try:
        return tomli.loads(read_text(path, what="TOML", max_bytes=MAX_BYTES))
    except RecursionError:
        raise refused(path, "not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise refused(path, f"not valid TOML: {error}") from None


def toml_text(table: Mapping[str, object]) -> str:
    """Return TOML that reads back as this table of texts, numbers, dates, lists and tables."""
    import tomli_w

    return tomli_w.dumps(table, indent=2)

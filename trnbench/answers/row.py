"""A row of an answer, as JSON and CSV hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Table = Mapping[str, object]
Cell = str | float | int | bool | None | Sequence[str] | Sequence[float] | Sequence[Table] | Table
Row = Mapping[str, Cell]

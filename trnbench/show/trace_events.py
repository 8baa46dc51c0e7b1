"""What a trace of played events is drawn from."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record, field


class TraceSpan(Record):
    """Something that took a lane from `start_s` to `end_s`."""

    process: str
    lane: str
    name: str
    start_s: float
    end_s: float
    arguments: Mapping[str, object] = field(default_factory=dict)

"""The README names every family of models that can be imported, and every job."""

from __future__ import annotations

import re

from tests.golden.documents import text_of_all
from trnbench.facts.workload.hf_config import family_names
from trnbench.facts.workload.layout import KNOBS

SECTION = re.compile(r"# Models and jobs\n(.*?)\n# ", re.DOTALL)


def test_every_family_and_job_is_named():
    (text,) = SECTION.findall(text_of_all())
    (families,) = re.findall(r"\n\n(`bert`.*?)\.\n\n", text, re.DOTALL)
    assert re.findall(r"`([^`]+)`", families) == list(family_names())
    assert {f"`{job}`" for job in KNOBS["job"].choices} <= set(re.findall(r"`[^`]+`", text))

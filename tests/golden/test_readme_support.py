"""The README's matrix of what is supported is what `info --support` says."""

from __future__ import annotations

import re

import pytest

from tests.golden.documents import check, text_of_all
from trnbench.show.text_table import markdown
from trnbench.verbs.info.support import jobs_supported, support
from trnbench.verbs.info.text import jobs_table, support_table


def check_table(name, table):
    part = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
    (found,) = part.finditer(text_of_all())
    check(
        f"<!-- {name} -->\n{found[0]}<!-- /{name} -->",
        f"<!-- {name} -->\n{markdown(table)}\n<!-- /{name} -->",
    )


@pytest.mark.slow
def test_the_matrix_of_what_is_supported_is_current():
    check_table("support", support_table(support()))


@pytest.mark.slow
def test_the_matrix_of_jobs_is_current():
    check_table("jobs", jobs_table(jobs_supported()))

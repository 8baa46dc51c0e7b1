"""The README says what precision recipes cast, store and send, and on which chips they run."""

from __future__ import annotations

import re

from tests.golden.documents import check, text_of_all
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.library import load_chip
from trnbench.program.precision import RECIPES
from trnbench.show.text_table import TextTable, markdown

TABLE = re.compile(r"(?<=<!-- precision -->\n).*?(?=<!-- /precision -->)", re.DOTALL)
HEADINGS = (
    *("precision", "linear products", "other products", "activations", "weights", "gradients sent"),
    *("optimizer", "chips"),
)


def rows():
    catalog = Catalog((Folder(built_in_folder(), BUILT_IN),))
    found = (load_chip(catalog, name) for name in catalog.names("chips"))
    chips = list({chip.name: chip for chip in found}.values())
    for recipe in RECIPES.values():
        kept = [recipe.weights, *([recipe.weight_operands] if recipe.quantised else [])]
        rounding = ", rounded stochastically" if recipe.rounding == "sr" else ""
        states = [f"moments {recipe.moments}"]
        states += [f"master {recipe.master}"] if recipe.master else []
        on = [
            chip.name
            for chip in chips
            if {chip.own_format(one) for one in (recipe.linear, recipe.other)} <= set(chip.formats)
        ]
        yield (
            f"`{recipe.name}`",
            recipe.linear,
            recipe.other,
            recipe.activations,
            " and ".join(kept) + rounding,
            recipe.reduction,
            ", ".join(states),
            "all" if len(on) == len(chips) else ", ".join(on),
        )


def test_the_table_of_precisions_is_current():
    (found,) = TABLE.finditer(text_of_all())
    table = markdown(
        TextTable(headings=HEADINGS, rows=tuple(rows()), right=(False,) * len(HEADINGS))
    )
    check(
        f"<!-- precision -->\n{found[0]}<!-- /precision -->",
        f"<!-- precision -->\n{table}\n<!-- /precision -->",
    )

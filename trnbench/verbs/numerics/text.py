"""Precision recipes side by side: losses, what is lost against fp32, and sums that stall."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import asdict
from trnbench.facts.units import counted, significant
from trnbench.show.charts.text import first_chart
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.verbs.numerics.run import NumericsAnswer
from trnbench.verbs.train.functional_text import loss_chart

NOTES = {
    "first_loss, final_loss": "means over the first and the last tenth of the steps and over all "
    "seeds, nats a token",
    "gap": "final loss less that of fp32 with the same seed and text; low and high over the seeds",
    "learned": "how much the loss fell, as a share of fp32's fall",
    "sums": "small steps added to a number one by one, rounded after each",
    "products": "fp32 operands cast to a format, summed in FP32. Root mean square error over the "
    "product's, near 1 and with the left operand times `scale`. a pruned one is compared with the "
    "product of all numbers",
    "state_bytes": "of one weight: itself, its master copy, gradient and moments",
}


def numerics_report(answer: NumericsAnswer, inputs: Mapping[str, object]) -> Report:
    """Return the report of a comparison, a row a recipe."""
    means = {curves.recipe.name: curves.losses.mean(0) for curves in answer.curves}
    return Report(
        verb="numerics",
        inputs=inputs,
        rows=answer.rows(),
        columns=(
            *columns("precision", "final_loss", "gap"),
            *columns("low_gap", "high_gap", spare=True),
            *columns("learned", "state_bytes"),
            *columns("title", spare=True),
        ),
        summary={
            "conventions": NOTES,
            "sums": [asdict(total) for total in answer.sums],
            "products": [asdict(demo) for demo in answer.products],
        },
        people=lambda report, style: _draw(report, answer, style),
        charts=(loss_chart(means, ", mean of the seeds"),),
    )


def _draw(report: Report, answer: NumericsAnswer, style: Style) -> str:
    seeds, steps = answer.curves[0].losses.shape
    title = style.strong(f"{answer.model} in {counted(len(answer.curves), 'recipe')}")
    how = (
        f"{counted(steps, 'step')} of {answer.tokens_per_step:,} tokens ({answer.task} text), "
        f"{counted(seeds, 'seed')}, learning rate {significant(answer.learning_rate)}. "
        "Final losses are means over the last tenth; low and high are over the seeds."
    )
    blocks = [f"{title}\n{style.wrap(how)}", draw_rows(report, style)]
    if steps > 1:
        blocks.append(first_chart(report, style))
    return "\n\n".join([*blocks, _sums(answer, style), _products(answer, style)])


def _sums(answer: NumericsAnswer, style: Style) -> str:
    cells = [
        (
            demo.format,
            f"{significant(demo.start)} + {demo.count:,} x {significant(demo.step)}",
            *(significant(n) for n in (demo.exact, demo.nearest, demo.stochastic)),
        )
        for demo in answer.sums
    ]
    return style.table(("adding in", "one by one", ">exact", ">to nearest", ">stochastic"), cells)


def _products(answer: NumericsAnswer, style: Style) -> str:
    cells = [
        (
            f"{demo.format}, {demo.pattern} sparse" if demo.pattern else demo.format,
            *(f"{significant(100 * error, 3)} %" for error in (demo.near_one, demo.small)),
        )
        for demo in answer.products
    ]
    scale = significant(answer.products[0].scale, 2)
    return style.table(("products cast to", ">error", f">of numbers near {scale}"), cells)

"""Claims beside what the specs and the model say of them, and how verdicts move with prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest

from trnbench.evidence.claims.claim import VERDICTS, Claimed, Move
from trnbench.facts.units import counted
from trnbench.show.figures import VERDICT_WORDS
from trnbench.show.report import Report, columns
from trnbench.show.text_table import GAP, Style, wrap
from trnbench.verbs.validate.answer import claim_row

CONVENTIONS = {
    "holds only if": "it holds for some of the figures, machines, runs or prices looked at",
    "undecided": "within the uncertainty, without a price, or without data",
    "headline": "the vendor's rate of the chip",
    "peak": "of the tensor units alone, which is what products can reach",
}


def _said(text: str) -> str:
    return VERDICT_WORDS.get(text, text)


_FIRST = max(len(_said(verdict)) for verdict in VERDICTS)
_HEADINGS = ("verdict".ljust(_FIRST), "claim", "what specs, prices or model say")
_CLAIM_SHARE = 0.42
"""Of the room that the verdicts leave."""


def claims_report(claims: Sequence[Claimed], inputs: Mapping[str, object]) -> Report:
    """Return the report of claims with their verdicts, a row each."""
    counts: dict[str, int] = {
        verdict: sum(claim.finding.verdict == verdict for claim in claims) for verdict in VERDICTS
    }
    return Report(
        verb="claims",
        inputs=inputs,
        rows=tuple(map(claim_row, claims)),
        columns=columns("claim", "verdict", "text", "says", "reason"),
        summary={"conventions": CONVENTIONS, "claims": len(claims), "verdicts": counts},
        people=lambda _, style: _draw(claims, counts, style),
    )


def _draw(claims: Sequence[Claimed], counts: Mapping[str, int], style: Style) -> str:
    blocks = []
    for group, members in groupby(claims, key=lambda claim: claim.group):
        listed = tuple(members)
        blocks.append(style.strong(group))
        blocks.append(_table(listed, style))
        blocks += [_moves(claim, style) for claim in listed if claim.finding.moves]
        blocks.append(_sources(listed, style))
    conventions = [f"{_said(term)}: {meaning}" for term, meaning in CONVENTIONS.items()]
    total = ", ".join(f"{_said(verdict)} {count}" for verdict, count in counts.items())
    blocks.append("\n".join(style.faint(style.wrap(line)) for line in conventions))
    blocks.append(f"{counted(len(claims), 'claim')}: {total}")
    return "\n\n".join(blocks)


def _table(claims: Sequence[Claimed], style: Style) -> str:
    room = style.width - _FIRST - 2 * len(GAP)
    middle = int(room * _CLAIM_SHARE)
    rows = [(_said(c.finding.verdict), _claim_cell(c), _finding_cell(c)) for c in claims]
    return _in_columns(_HEADINGS, rows, (_FIRST, middle, room - middle), style, apart=True)


def _in_columns(
    headings: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    widths: Sequence[int],
    style: Style,
    *,
    apart: bool = False,
) -> str:
    """Return a table whose cells take as many lines as they need; rows may be set `apart`."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        if lines and apart:
            lines.append(("",) * len(row))
        cells = [
            wrap(cell, width, "").splitlines() for cell, width in zip(row, widths, strict=True)
        ]
        lines += zip_longest(*cells, fillvalue="")
    return style.table(headings, lines)


def _claim_cell(claim: Claimed) -> str:
    by = ", ".join(dict.fromkeys(words.by for words in claim.said))
    aspect = f" - {claim.aspect}" if claim.aspect else ""
    return f'{claim.id}: "{claim.said[0].text}"{aspect} [{by}]'


def _finding_cell(claim: Claimed) -> str:
    parts = (claim.finding.says, claim.finding.reason, claim.note)
    return "; ".join(part for part in parts if part)


def _moves(claim: Claimed, style: Style) -> str:
    headings = ("prices of", "verdict", "gain", "best case")
    rows = [
        (str(move.price_date), _said(move.verdict), *_best(move)) for move in claim.finding.moves
    ]
    short = [max(map(len, column)) for column in zip(headings, *rows, strict=True)][:-1]
    widths = (*short, style.width - sum(short) - len(short) * len(GAP))
    return "\n".join([f"{claim.id} by price date", _in_columns(headings, rows, widths, style)])


def _best(move: Move) -> tuple[str, str]:
    where = f", {move.region}" if move.region else ""
    if move.best is None:
        return "-", f"no price of one side{where}"
    return move.best.says, move.best.what + where


def _sources(claims: Sequence[Claimed], style: Style) -> str:
    sources = {words.by: words.source for claim in claims for words in claim.said}
    return style.lines(f"[{by}] {source.title}, {source.date}" for by, source in sources.items())

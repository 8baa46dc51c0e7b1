"""Texts damaged at random, and the junk they are damaged with."""

from __future__ import annotations

import json
import random
import re

JUNK = (
    *("", "0", "-1", "1e400", "nan", "inf", "9" * 30, "0x10", "1_000", "1,000", "½", "²", "é"),
    *("true", "none", "null", "[]", "{}", '"', "'", "=", "\\", "\x00", "\x1b[31m", "\ufeff", "\r"),
    *("-", "--", "--=", "..", "/", "~", "*", "a,b", "1:2", ":", "@", "4 GiB", "4 GB/s", "1 parsec"),
)
NUMBERS = (
    *("0", "-1", "0.5", "3", "1e-300", "5e-324", "1e-9", "1e9", "1e308", "1e400", "nan", "-inf"),
    *("9" * 30, "9" * 400, "2147483647", "2147483648", "9223372036854775807", "1_000"),
)
_VALUE = re.compile(r'(?<=[=\[{,:\s])-?\d[\d_.eE+-]*|"[^"\n]*"')
_QUANTITY = re.compile(r'"-?\d[\d.,eE+-]*( ?)')


def other_values(text: str, chance: random.Random) -> str:
    """Return a text that keeps its form, with one or two values at their extremes."""
    for _ in range(chance.randint(1, 2)):
        found = list(_VALUE.finditer(text))
        if not found:
            return text
        at = chance.choice(found)
        new = chance.choice(NUMBERS)
        if quantity := _QUANTITY.match(at[0]):
            new = f'"{new}{at[0][quantity.end() - len(quantity[1]) :]}'
        elif at[0].startswith('"'):
            new = json.dumps(chance.choice(JUNK))
        text = text[: at.start()] + new + text[at.end() :]
    return text


def damaged(text: str, chance: random.Random) -> str:
    """Return a text with one to three places cut, doubled, swapped or overwritten."""
    if chance.random() < 0.6:
        return other_values(text, chance)
    for _ in range(chance.randint(1, 3)):
        lines = text.split("\n")
        at, line = chance.randrange(len(text) + 1), chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[at + chance.randint(1, 40) :]
            case 1:
                text = text[:at] + chance.choice(JUNK) + text[at:]
            case 2:
                text = "\n".join([*lines[:line], *lines[line + 1 :]])
            case 3:
                other = chance.randrange(len(lines))
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 4:
                key = lines[line].partition("=")[0]
                lines[line] = f"{key}= {chance.choice(JUNK)}"
                text = "\n".join(lines)
            case _:
                text = text[:at] + chr(chance.randrange(1, 0x3000)) + text[at + 1 :]
    return text


BYTES = (
    *(
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\x00",
        b"\r",
        b"\x1b[",
    ),
    *(
        b"9" * 400,
        b"x" * 200_000,
        b"1," * 50_000,
        b"[" * 3_000,
        b"{" * 3_000,
        b'"',
        b"nan",
        b"\n" * 50,
    ),
)
"""Bytes that are no text, too much of it, or the end of one."""
STEPS = (
    "id,model,instance,nodes,tp,pp,gbs,seq,precision,framework,step_time_s\n"
    "a,llama2-7b,trn1.32xlarge,1,8,1,64,4096,bf16,NxD,9.1\n"
    "b,llama2-7b,trn1.32xlarge,2,8,1,64,4096,bf16,NxD,4.9\n"
)

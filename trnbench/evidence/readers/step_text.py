"""Training logs as lines of text; the format is recognised by its lines, amid any others."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trnbench.evidence.readers.blocks import LineBlock, blocks
from trnbench.evidence.readers.mllog import MlLog
from trnbench.evidence.readers.readings import Readings
from trnbench.evidence.readers.step_formats import EXACT, SUMMARY, StepFormat, Told
from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.records import Record, State, field

_COMPILED = (b"NEURON_PARALLEL_COMPILE||", b"||PARALLEL_COMPILE||")
"""Final lines of compile-only runs, whose steps computed nothing."""
_COMPILATIONS = (
    *(b"Compiler status PASS", b"Compilation Successfully Completed"),
    *(b"will be recompiled", b"[__recompiles]"),
)
"""Words of the Neuron compiler, of its cache, and of torch.compile, after one compilation."""
_COMPILING = re.compile(b"|".join(map(re.escape, _COMPILATIONS)))
_STEPPED = re.compile(rb"step|iteration|s/it|it/s", re.IGNORECASE)
_FIRST_STEPS = 5
"""Lines of steps in which a run compiles its graphs: of the model, of the optimizer, of shapes."""
_GIB = 2.0**30
_BAR = re.compile(
    rb"\| (\d{1,9})/(\d{1,9}) \[(\d{1,6}(?::\d\d){1,3})<[^,\n\r]*, +[\d.]+(?:s/it|it/s)"
)
_CONSUMED = re.compile(rb"\| (\d{1,9})/(\d{1,9}) \[[^\]\n\r]*?consumed_samples=(\d{1,15})\.0\b")
"""A tqdm bar (NxD Training, Hugging Face Trainer). Its own rate is an average that starts cold, so
steps are told by the seconds that have passed, which are whole ones."""
_FINE_S = 50
"""Time difference, s, known to 2 % from whole seconds."""
_MOST_BARS = 256
_TWO = 2
_MANY = 1000
"""Bar states, or steps in words, after which no other format is tried."""

_NUMBER = rb"(\d[\d,]*+\.?+\d*+(?:e[-+]?\d+)?+)"
_BEFORE = rb"([^\d\n\r]{1,26})"
_UNIT = rb"\s*(ms\b|msec\b|us\b|s\b|sec\b)?"
_ANY_UNIT = rb"\s*(?:ms\b|msec\b|us\b|s\b|sec\b)"


class _Words(Record):
    """Words for a step's time, with the patterns of readable and unreadable lines."""

    name: bytes
    told: re.Pattern[bytes]
    unread: re.Pattern[bytes]

    @classmethod
    def of(cls, name: bytes) -> _Words:
        return cls(
            name=name,
            told=re.compile(name + _BEFORE + _NUMBER + _UNIT),
            unread=re.compile(name + rb"\s*[:=]\s*(?:nan|none|n/a|-)"),
        )

    def alike(self, label: bytes, unit: bytes) -> re.Pattern[bytes]:
        """Pattern of these words with one label and unit; empty with any other."""
        then = rb"\s*" + unit + rb"\b" if unit else rb"(?!" + _ANY_UNIT + rb")"
        return re.compile(self.name + rb"(?:" + re.escape(label) + _NUMBER + then + rb"|)")


_LONGEST_LINE = 4096
"""Longest line, bytes; step lines have a thousand or two."""
_LINE = re.compile(rb"[^\n\r]{1,%d}" % _LONGEST_LINE)

_TIMES = tuple(
    _Words.of(name)
    for name in (
        *(rb"step[ _-]?(?:time|latency)", rb"iteration[ _-]?(?:time|latency)"),
        *(rb"batch[ _-]?(?:time|latency)", rb"time per (?:iteration|step)", rb"train_step_timing"),
        *(rb"sec(?:onds)?/(?:step|it(?:eration)?)", rb"sec(?:onds)? per (?:step|it(?:eration)?)"),
    )
)
"""Words for a step's time, in lower case; each begins with letters that are quick to find."""
_PER_S = rb"[ _]?(?:/|per[ _]|_per_)s(?:ec(?:ond)?)?"
_RATES: tuple[tuple[Told, re.Pattern[bytes]], ...] = (
    ("tokens", re.compile(rb"tok(?:en)?s?" + _PER_S)),
    ("samples", re.compile(rb"seq(?:uence)?s?" + _PER_S)),
    ("samples", re.compile(rb"samples?" + _PER_S)),
)
_LINE_END = re.compile(rb"[\n\r]")
_WHOLE_RUN = (b"train_", b"eval_")
_LEADING_RATE = re.compile(_NUMBER + rb"\s*$")
_RATE = re.compile(rb"[^\d\n\r]{0,16}?[:=\s]\s*" + _NUMBER)
_EACH = re.compile(rb"/\s*(?:gpu|device|core|chip|rank)|per[ _](?:gpu|device|core|chip|rank)", re.I)
_MILLI, _MICRO = 1e-3, 1e-6


def logged(path: Path, block_bytes: int = 0) -> Readings:
    """Readings of a log by its best known format; empty without any."""
    exact, others = _readers(path)
    known: _Reader | None = None
    lines, compiles = 0, _Compiles()
    for whole in blocks(path, block_bytes):
        block = in_short_lines(whole)
        lines = block.line_of(len(block.text) - 1)
        if any(mark in block.text for mark in _COMPILED):
            known, (exact, others), compiles = None, _readers(path), _Compiles()
            block = _after_compiling(block)
        compiles.take(block.text)
        if known is not None:
            known.take(block)
            continue
        for reader in exact:
            if reader.mark in block.text:
                reader.take(block)
                told = reader.readings()
                known = known or (reader if told.values or told.skipped else None)
        if known is None:
            for other in others:
                other.take(block)
                if other.sure:
                    known = other
                    break
    readers: list[_Reader] = [known] if known else [*others, *exact]
    several = [one.readings() for one in readers]
    found = next((one for one in several if one.values), None)
    found = found or max(several, key=lambda one: one.unread + one.skipped)
    found.lines, found.recompilations = lines, compiles.again
    return found.checked(path)


def _readers(path: Path) -> tuple[list[MlLog | _Lines], list[_Bars | _Plain | _Lines]]:
    """Readers of unambiguous lines, and of others, which are tried until one is sure."""
    exact: list[MlLog | _Lines] = [MlLog(), *(_Lines.of(one) for one in EXACT)]
    return exact, [_Bars(), _Plain(path=path), _Lines.of(SUMMARY)]


def in_short_lines(block: LineBlock) -> LineBlock:
    """A block without lines long enough to stall a pattern."""
    # A progress bar writes a line of many megabytes whose states are parted by returns.
    if max(map(len, block.text.replace(b"\r", b"\n").split(b"\n"))) <= _LONGEST_LINE:
        return block
    # A return parts lines for every pattern, and moves no line's number.
    return LineBlock(text=_LINE.sub(_parted, block.text), line=block.line)


def _parted(found: re.Match[bytes]) -> bytes:
    return found[0] + b"\r" if len(found[0]) == _LONGEST_LINE else found[0]


def _after_compiling(block: LineBlock) -> LineBlock:
    end = max(block.text.rfind(mark) for mark in _COMPILED)
    start = block.text.find(b"\n", end) + 1 or len(block.text)
    return LineBlock(text=block.text[start:], line=block.line_of(start))


class _Compiles(State):
    """Compilations `again`, each after a step: those of one moment count once."""

    again: int = 0
    steps: int = 0
    stepped: bool = False

    def take(self, text: bytes) -> None:
        """Count those of a block of lines."""
        place = 0
        # Fixed words are found much quicker one by one than by a pattern of all.
        compiled = any(words in text for words in _COMPILATIONS)
        for mark in _COMPILING.finditer(text) if compiled else ():
            self._pass(text, place, mark.start())
            self.again += self.stepped and self.steps >= _FIRST_STEPS
            self.stepped, place = False, mark.end()
        self._pass(text, place, len(text))

    def _pass(self, text: bytes, place: int, end: int) -> None:
        while place < end and (self.steps < _FIRST_STEPS or not self.stepped):
            found = _STEPPED.search(text, place, end)
            if found is None:
                return
            self.steps, self.stepped = self.steps + 1, True
            place = text.find(b"\n", found.end()) + 1 or end


class _Lines(State):
    """Reader of the lines of one format, block by block."""

    format: StepFormat
    mark: bytes
    pattern: re.Pattern[bytes]
    others: tuple[re.Pattern[bytes] | None, ...]
    found: Readings

    @classmethod
    def of(cls, form: StepFormat) -> _Lines:
        more = (form.batch, form.skipped, form.memory)
        return cls(
            format=form,
            mark=form.marker.encode(),
            pattern=form.compiled(form.pattern),
            others=tuple(form.compiled(one) if one else None for one in more),
            found=Readings(
                format=form.name, told=form.told, window=form.window, remark=form.remark
            ),
        )

    @property
    def sure(self) -> bool:
        return False  # what has the mark is known by it; the summary of a run is one line

    def readings(self) -> Readings:
        return self.found

    def take(self, block: LineBlock) -> None:
        found, text = self.found, block.text
        if self.mark not in text:
            return
        read: list[Any] = self.pattern.findall(text)
        if text.count(self.mark) > len(read):
            self._miss(block)
        if not read:
            return
        batch, skipped, memory = self.others
        if batch:
            found.batches |= set(map(int, set(batch.findall(text))))
        if memory:
            held = max(map(_number, set(memory.findall(text))), default=0.0)
            found.memory_bytes = max(found.memory_bytes, held * _GIB)
        if skipped:
            read[:] = self._whole(read, text, skipped)
        values: Sequence[bytes] = read
        if self.pattern.groups > 1:
            steps: tuple[bytes, ...]
            steps, values = zip(*read, strict=True) if read else ((), ())
            found.steps.extend(map(int, steps))
        found.take(_numbers(values) * self.format.scale)

    def _whole(
        self, read: list[tuple[bytes, bytes]], text: bytes, skipped: re.Pattern[bytes]
    ) -> list[tuple[bytes, bytes]]:
        """Steps with an optimizer step."""
        skips = skipped.findall(text)
        if not any(skip.strip(b"0") for skip in skips):
            return read
        if len(skips) == len(read):
            whole = [one for one, skip in zip(read, skips, strict=True) if not skip.strip(b"0")]
        else:  # some lines lack one of the two: each line tells of its own step
            whole = [
                one
                for line in text.replace(b"\r", b"\n").split(b"\n")
                if not any(skip.strip(b"0") for skip in skipped.findall(line))
                for one in self.pattern.findall(line)
            ]
        self.found.skipped += len(read) - len(whole)
        return whole

    def _miss(self, block: LineBlock) -> None:
        """Count step lines that the pattern misses."""
        for number, line in enumerate(block.text.split(b"\n"), start=block.line):
            for state in line.split(b"\r"):
                if self.mark in state and not self.pattern.search(state):
                    self.found.miss(number, state.decode(errors="replace"))


class _Bar(State):
    """States of one progress bar: steps done and seconds passed."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[int] = field(default_factory=lambda: array("q"))

    @property
    def span_s(self) -> int:
        return max(self.seconds) - min(self.seconds)

    def paces(self) -> Iterator[float]:
        """Yield seconds per step over stretches long enough for whole-second clocks."""
        whole = _FINE_S if self.span_s >= 2 * _FINE_S else 1
        start = 0
        for end in range(1, len(self.steps)):
            done = self.steps[end] - self.steps[start]
            passed = self.seconds[end] - self.seconds[start]
            if done < 0 or passed < 0:
                start = end  # another epoch, or a run begun again
            elif done and passed >= whole:
                yield passed / done
                start = end


class _Bars(State):
    """Reader of progress bars, grouped by their total."""

    bars: dict[bytes, _Bar] = field(default_factory=dict)
    consumed: dict[bytes, dict[int, int]] = field(default_factory=dict)
    """Consumed samples by step, for each bar."""

    def take(self, block: LineBlock) -> None:
        if b"consumed_samples=" in block.text:
            self._take_consumed(block)
        if b"it/s" not in block.text and b"s/it" not in block.text:
            return
        found: list[tuple[bytes, bytes, bytes]] = _BAR.findall(block.text)
        by_total: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {}
        if len({total for _, total, _ in found}) == 1:
            by_total[found[0][1]] = found
        else:
            for one in found:
                by_total.setdefault(one[1], []).append(one)
        for total, states in by_total.items():
            if total not in self.bars and len(self.bars) >= _MOST_BARS:
                continue
            bar = self.bars.setdefault(total, _Bar())
            done, _, elapsed = zip(*states, strict=True)
            bar.steps.extend(map(int, done))
            bar.seconds.extend(_clocks(elapsed))

    def _take_consumed(self, block: LineBlock) -> None:
        """Record the samples at two states of each bar, which give the batch."""
        if self.bars and all(len(self.consumed.get(total, ())) >= _TWO for total in self.bars):
            return
        for done, total, samples in _CONSUMED.findall(block.text):
            of_bar = self.consumed.setdefault(total, {})
            if len(of_bar) < _TWO:
                of_bar[int(done)] = int(samples)

    def _batch(self, total: bytes) -> int | None:
        states = sorted(self.consumed.get(total, {}).items())
        if len(states) < _TWO:
            return None
        (first, before), (last, after) = states
        batch, rest = divmod(after - before, last - first)
        return batch if batch > 0 and not rest else None

    @property
    def sure(self) -> bool:
        return any(len(bar.steps) > _MANY for bar in self.bars.values())

    def readings(self) -> Readings:
        found = Readings(format="progress bar", remark="from a progress bar with 1 s resolution")
        if self.bars:
            longest = max(self.bars, key=lambda total: self.bars[total].span_s)
            found.values.extend(self.bars[longest].paces())
            found.batches.update(filter(None, [self._batch(longest)]))
        return found


class _Plain(State):
    """Reader of times and rates in words: "step time: 1.23 s", "450 tokens/s"."""

    path: Path
    found: Readings = field(default_factory=lambda: Readings(format="plain lines"))
    time: _Words | None = None
    alike: tuple[re.Pattern[bytes], float] | None = None
    rate: tuple[Told, re.Pattern[bytes]] | None = None

    @property
    def sure(self) -> bool:
        return len(self.found.values) > _MANY

    def readings(self) -> Readings:
        return self.found

    def take(self, block: LineBlock) -> None:
        """Read a block by the first words that gave a step; later blocks use only these."""
        block = LineBlock(text=block.text.lower(), line=block.line)
        if self._alike(block.text):
            return
        if self.rate is None:
            for time in [self.time] if self.time else _TIMES:
                if self._times(block, time):
                    self.time = time
                    return
        if self.time is None:
            for rate in [self.rate] if self.rate else _RATES:
                if self._rates(block, *rate):
                    self.rate = rate
                    return

    def _alike(self, text: bytes) -> bool:
        """Read a block by the label and unit of earlier blocks; False where others occur."""
        if self.alike is None:
            return False
        pattern, scale = self.alike
        read = pattern.findall(text)
        if not read or b"" in read:
            return False
        self.found.take(_numbers(read) * scale)
        return True

    def _times(self, block: LineBlock, words: _Words) -> bool:
        scales: dict[tuple[bytes, bytes], float] = {}
        before = len(self.found.values)
        read = words.told.findall(block.text)
        if len({(label, unit) for label, _, unit in read}) == 1:
            label, _, unit = read[0]
            if scale := _scale(label, unit):
                numbers = _numbers([number for _, number, _ in read])
                self.found.take(numbers * scale)
                self.alike = words.alike(label, unit), scale
            read = []
        for label, number, unit in read:
            if (scale := scales.get((label, unit), -1.0)) < 0:
                scale = scales[label, unit] = _scale(label, unit)
            if scale:
                self.found.add(None, _number(number) * scale)
        for one in words.unread.finditer(block.text):
            line = 0 if self.found.unread else block.line_of(one.start())  # the first is shown
            self.found.miss(line, one[0].decode(errors="replace"))
        return len(self.found.values) > before or self.found.unread > 0

    def _rates(self, block: LineBlock, told: Told, pattern: re.Pattern[bytes]) -> bool:
        """Read the first rate of each line."""
        text, end, before = block.text, 0, len(self.found.values)
        for found in pattern.finditer(text):
            start = found.start()
            if start < end or text[max(start - 6, 0) : start].endswith(_WHOLE_RUN):
                continue
            leading = _LINE_END.split(text[max(0, start - 40) : start])[-1]
            ending = _LINE_END.search(text, found.end())
            end = ending.start() if ending else len(text)
            number = _LEADING_RATE.search(leading) or _RATE.match(text, found.end(), end)
            if number is None:
                continue
            if _EACH.search(text, start, end):
                shown = (leading + text[start:end]).strip()[:80].decode(errors="replace")
                raise refused(
                    self.path,
                    f"line {block.line_of(start)}: a rate of one device, not of the cluster: "
                    f"{shown!r}",
                )
            self.found.told = told
            self.found.add(None, _number(number[1]))
        return len(self.found.values) > before


def _numbers(texts: Sequence[bytes]) -> FloatArray:
    """Numbers, possibly with thousands separators."""
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        plain = b" ".join(texts).replace(b",", b"").split()
        return np.fromiter(map(float, plain), np.float64, len(texts))


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))


def _scale(label: bytes, unit: bytes) -> float:
    """Factor to seconds, by label and unit; 0 if the number is no time."""
    if not label.endswith((b":", b"=", b" ", b"\t")):
        return 0.0
    how = unit or label
    return _MILLI if b"ms" in how else _MICRO if b"us" in how else 1.0


def _clocks(texts: Sequence[bytes]) -> list[int]:
    """Seconds of clock texts, vectorised where all have hours."""
    if {text.count(b":") for text in texts} != {_TWO}:
        return [_seconds(text) for text in texts]
    parts = np.fromiter(map(int, b":".join(texts).split(b":")), np.int64)
    seconds: list[int] = (parts.reshape(-1, 3) @ (3600, 60, 1)).tolist()
    return seconds


def _seconds(clock: bytes) -> int:
    total = 0
    for part in clock.split(b":"):
        total = total * 60 + int(part)
    return total


_Reader: TypeAlias = MlLog | _Lines | _Bars | _Plain

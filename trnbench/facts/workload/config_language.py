"""Typed fields of a foreign configuration, and expressions over its keys, as in `families.toml`.

Arithmetic, comparisons, conditions and a few functions, evaluated on a syntax tree: no code is run.
Every fault is collected; an expression without a value is a fault of its key.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.catalog.quantity import kind_of
from trnbench.facts.records import MAX_SIZE
from trnbench.facts.workload.model import ROTARY_BASE

_STAND_IN = 1
"""Value in place of a faulty number, so that one pass finds every fault."""


T = TypeVar("T")


class Fields:
    """Fields of one configuration; `faults` collects the errors of the fields read.

    A null value counts as absent, as in the libraries that write these files.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config
        self.faults: list[Fault] = []

    def fault(self, key: str, message: str) -> None:
        self.faults.append(Fault(key, message))

    def has(self, key: str) -> bool:
        return self._config.get(key) is not None

    def mentions(self, key: str) -> bool:
        return key in self._config

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number; without a default the key is required."""
        value = self._present(key, default)
        if value is None:
            return _STAND_IN
        if type(value) is not int:
            self.fault(key, f"expected a whole number, found {kind_of(value)}")
        elif not minimum <= value < MAX_SIZE:
            self.fault(key, f"must be from {minimum} to {MAX_SIZE - 1}")
        else:
            return value
        return _STAND_IN

    def real(self, key: str, default: float) -> float:
        """A positive number, or the default."""
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, f"expected a number, found {kind_of(value)}")
        elif not 0 < value < MAX_SIZE or not math.isfinite(value):
            self.fault(key, f"must be above 0 and below {MAX_SIZE}")
        else:
            return float(value)
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        return self._fitting(key, default, lambda value: isinstance(value, bool), "true or false")

    def text(self, key: str, default: str) -> str:
        return self._fitting(key, default, lambda value: isinstance(value, str), "a text")

    def items(self, key: str) -> list[object]:
        """A list of texts or numbers; empty if the key is absent."""

        def fits(value: object) -> bool:
            return isinstance(value, list) and all(isinstance(item, str | int) for item in value)

        return self._fitting(key, list[object](), fits, "a list of texts or numbers")

    def table(self, key: str) -> Mapping[str, object]:
        """A table; empty if the key is absent."""
        none: Mapping[str, object] = {}
        return self._fitting(key, none, lambda value: isinstance(value, Mapping), "a table")

    def _fitting(self, key: str, default: T, fits: Callable[[Any], bool], what: str) -> T:
        value = self._present(key, default)
        if fits(value):
            return cast("T", value)
        self.fault(key, f"expected {what}, found {kind_of(value)}")
        return default

    def only(self, key: str, value: bool | int | str, why: str) -> None:
        entry = self._config.get(key)
        if entry is not None and (type(entry) is not type(value) or entry != value):
            self.fault(key, f"only {value!r} can be imported, found {kind_of(entry)}: {why}")

    def _present(self, key: str, default: object) -> object:
        value = self._config.get(key)
        if value is not None:
            return value
        if default is None:
            near = did_you_mean(key, (name for name in self._config if isinstance(name, str)))
            self.fault(key, f"missing{near}")
        return default


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_tanh": "gelu",
    "quick_gelu": "gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_WRONG = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError)


class Scope:
    """Values of the names in expressions: keys of a configuration, typed by a family's defaults.

    `inner` is searched before the enclosing table `outer`. `used` collects the keys read, `tables`
    the scopes of nested tables.
    """

    def __init__(self, family: Mapping[str, object], inner: Fields, outer: Fields) -> None:
        self.family = family
        self.fields = (inner, outer)
        self.tables: dict[str, Callable[[str], object]] = {}
        self.bound: dict[str, object] = {}
        self.used: set[str] = set()

    def fault(self, key: str, message: str) -> None:
        self.fields[0].fault(key, message)

    def has(self, key: str) -> bool:
        return any(fields.has(key) for fields in self.fields)

    def value(self, key: str) -> object:
        """Value of a key, its default, or a stand-in for a missing one."""
        if key in self.bound:
            return self.bound[key]
        default = self._of("defaults").get(key)
        optional = key in self._names("optional")
        others = self._of("aliases").get(key)
        for name in (key, *(others if isinstance(others, list) else ())):
            self.used.add(name)
            for fields in self.fields:
                if fields.has(name):
                    return self._typed(fields, name, default, zero=key in self._names("zero"))
        if default is not None or optional:
            return default
        return self.fields[0].whole(key)

    def _typed(self, fields: Fields, name: str, default: object, *, zero: bool) -> object:
        match default:
            case bool():
                return fields.flag(name, default=default)
            case float():
                return fields.real(name, default)
            case str():
                return fields.text(name, default)
            case list():
                return fields.items(name)
            case Mapping():
                return fields.table(name)
            case _:
                return fields.whole(name, minimum=0 if zero else 1)

    def _of(self, part: str) -> Mapping[str, object]:
        entries = self.family.get(part, {})
        return entries if isinstance(entries, Mapping) else {}

    def _names(self, part: str) -> Sequence[str]:
        listed = self.family.get(part, ())
        return [str(name) for name in listed] if isinstance(listed, list) else ()

    def evaluate(self, text: str) -> object:
        """Value of an expression; None, and a fault, where it has no value."""
        tree = _tree(text)
        try:
            return self._of_node(tree)
        except _WRONG:
            key = next(
                (
                    n.id
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Name) and n.id not in self.bound and n.id not in _FUNCTIONS
                ),
                text,
            )
            self.fault(key, f"does not fit what is made of it: {text:.80}")
            return None

    def _of_node(self, node: ast.expr) -> object:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.value(node.id)
            case ast.Attribute(value=ast.Name(id=table)):
                return self.tables[table](node.attr)
            case ast.List() | ast.Tuple():
                return [self._of_node(item) for item in node.elts]
            case ast.Dict():
                return {
                    self._of_node(k): self._of_node(v)
                    for k, v in zip(node.keys, node.values, strict=True)
                    if k
                }
            case ast.Subscript():
                return self._of_node(node.value)[self._of_node(node.slice)]  # type: ignore[index]
            case ast.IfExp():
                return self._of_node(node.body if self._of_node(node.test) else node.orelse)
            case ast.UnaryOp(op=ast.Not()):
                return not self._of_node(node.operand)
            case ast.BoolOp():
                return self._first(node)
            case ast.Compare(ops=[one], comparators=[other]):
                return _COMPARED[type(one)](self._of_node(node.left), self._of_node(other))
            case ast.BinOp(op=ast.Div()):
                return self._divided(node)
            case ast.BinOp():
                return _BINARY[type(node.op)](self._of_node(node.left), self._of_node(node.right))
            case ast.Call(func=ast.Name(id=name)):
                return _FUNCTIONS[name](self, node.args)
            case _:
                raise TypeError(f"no expression of a family: {ast.dump(node)}")

    def _first(self, node: ast.BoolOp) -> object:
        # As Python does: the deciding value itself, and nothing behind it is evaluated, which may
        # be a key that only other configurations have.
        value: object = None
        for item in node.values:
            value = self._of_node(item)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _divided(self, node: ast.BinOp) -> object:
        whole, parts = self._of_node(node.left), self._of_node(node.right)
        assert isinstance(whole, int)
        assert isinstance(parts, int)
        # Stand-ins for faulty keys rarely divide: only the first fault is worth telling.
        if whole % parts and not any(fields.faults for fields in self.fields):
            self.fault(
                ast.unparse(node.right),
                f"{parts} does not divide `{ast.unparse(node.left)}` {whole}",
            )
        return max(whole // parts, 1)


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _name(node: ast.expr) -> str:
    return next(name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _activation(scope: Scope, arguments: Sequence[ast.expr]) -> object:
    value = scope._of_node(arguments[0])
    if value not in ACTIVATIONS:
        hint = did_you_mean(str(value), ACTIVATIONS)
        names = ", ".join(sorted(ACTIVATIONS))
        scope.fault(_name(arguments[0]), f"{kind_of(value)} is not one of {names}{hint}")
        return "gelu"
    return ACTIVATIONS[str(value)]


def _divisor(scope: Scope, arguments: Sequence[ast.expr]) -> object:
    """The first argument, which must divide the second."""
    parts, whole = (scope._of_node(argument) for argument in arguments)
    assert isinstance(whole, int)
    assert isinstance(parts, int)
    if whole % parts:
        scope.fault(
            _name(arguments[0]), f"{parts} does not divide `{ast.unparse(arguments[1])}` {whole}"
        )
    return parts


def _rotary_base(scope: Scope, arguments: Sequence[ast.expr]) -> object:
    """Base under a key, or in the newer table, which may differ by kind of layer."""
    plain, tables = (scope._of_node(argument) for argument in arguments)
    assert isinstance(tables, Mapping)
    by_layer = tables.get("full_attention")
    inner = Fields(by_layer if isinstance(by_layer, Mapping) else tables)
    base = plain or inner.real("rope_theta", ROTARY_BASE)
    scope.fields[0].faults += inner.faults
    return base


def _task(scope: Scope, arguments: Sequence[ast.expr]) -> object:
    """The configuration's task of two named ones; the second if unstated."""
    key, *known = arguments
    tasks = [scope._of_node(task) for task in known]
    named = scope._of_node(key)
    assert isinstance(named, Sequence)
    if any(not isinstance(name, str) for name in named):
        scope.fault(_name(key), f"expected a list of texts, found {kind_of(named)}")
    elif named and (len(named) > 1 or named[0] not in tasks):
        scope.fault(_name(key), f"only {tasks[1]} or {tasks[0]} can be imported")
    return tasks[0] if list(named) == tasks[:1] else tasks[1]


def _plain(function: Callable[..., object]) -> Callable[[Scope, Sequence[ast.expr]], object]:
    return lambda scope, arguments: function(*(scope._of_node(argument) for argument in arguments))


_FUNCTIONS: Mapping[str, Callable[[Scope, Sequence[ast.expr]], object]] = {
    "activation": _activation,
    "divisor": _divisor,
    "rotary_base": _rotary_base,
    "task": _task,
    "has": lambda scope, arguments: scope.has(str(scope._of_node(arguments[0]))),
    "mentions": lambda scope, arguments: any(
        fields.mentions(str(scope._of_node(arguments[0]))) for fields in scope.fields
    ),
    "len": _plain(len),
    "int": _plain(int),
    "max": _plain(max),
}

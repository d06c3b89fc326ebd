"""Conditions over the fields of tuples, as operators write them: `count > 3 and word != "the"`. Pure; never `eval`.

An expression may come over the network, so it is read with `ast` and walked here: constants, fields, comparisons, `and`, `or`,
`not`, `in`, arithmetic of numbers, `+` of texts, `value[key]`, `len`, `startswith`, `endswith`. Its length bounds its work.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from topo.errors import UserError

MAX_LENGTH = 1000
MAX_DEPTH = 50

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos}
_CALLS: dict[str, tuple[int, Callable[..., Any]]] = {
    "len": (1, len),
    "startswith": (2, str.startswith),
    "endswith": (2, str.endswith),
}
_ALLOWED = "fields, constants, comparisons, and, or, not, in, + - * / // %, value[key], len, startswith, endswith"


class Expression:
    """A condition.

    Args:
        text: as the operator wrote it.

    Attributes:
        names: the fields that it reads.

    Raises:
        UserError: it is no such expression; the message shows the place.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        if len(text) > MAX_LENGTH:
            raise UserError(f"an expression has at most {MAX_LENGTH} characters; this one has {len(text)}")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
            raise UserError(f"{text!r} is not an expression{place}; write one such as 'count > 3 and word != \"the\"'") from None
        self._root = tree.body
        self._check(self._root, 0)

    def __call__(self, fields: Mapping[str, Any]) -> Any:
        """Return its value for a tuple. Raises whatever comparing or computing raises; KeyError for a field that is missing."""
        return _value(self._root, fields)

    def check_fields(self, known: set[str], who: str) -> None:
        """Raise UserError where it reads a field that is not among the known ones of `who`."""
        if unknown := sorted(self.names - known):
            has = ", ".join(sorted(known)) or "none"
            raise UserError(f"{who} has no field {unknown[0]!r}; it has {has}")

    def _check(self, node: ast.AST, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UserError(f"an expression may be nested {MAX_DEPTH} deep")
        if isinstance(node, ast.Name):
            self.names.add(node.id)
        elif isinstance(node, ast.Call):
            name, arguments = _call_of(node)
            known = _CALLS.get(name)
            if known is None or len(arguments) != known[0] or node.keywords:
                raise self._refused(node)
            for argument in arguments:
                self._check(argument, depth + 1)
        elif self._is_allowed(node):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._check(child, depth + 1)
        else:
            raise self._refused(node)

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str | int | float | bytes | None)
        if isinstance(node, ast.Compare):
            return all(type(one) in _COMPARE for one in node.ops)
        if isinstance(node, ast.BinOp):
            return type(node.op) in _ARITHMETIC
        if isinstance(node, ast.UnaryOp):
            return type(node.op) in _UNARY
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Slice)
        return isinstance(node, ast.BoolOp | ast.Tuple | ast.List)

    def _refused(self, node: ast.AST) -> UserError:
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        return UserError(f"{part!r} may not stand in an expression; it may have {_ALLOWED}")


def _call_of(node: ast.Call) -> tuple[str, list[ast.expr]]:
    """Return name and arguments of `startswith(a, b)` and of `a.startswith(b)` alike."""
    if isinstance(node.func, ast.Name):
        return node.func.id, node.args
    if isinstance(node.func, ast.Attribute) and node.func.attr != "len":
        return node.func.attr, [node.func.value, *node.args]
    return "", []


def _value(node: ast.AST, fields: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return fields[node.id]
    if isinstance(node, ast.BoolOp):
        value: Any = None
        for part in node.values:
            value = _value(part, fields)
            if bool(value) is isinstance(node.op, ast.Or):
                break
        return value
    if isinstance(node, ast.Compare):
        left, result = _value(node.left, fields), True
        for compare, part in zip(node.ops, node.comparators, strict=True):
            right = _value(part, fields)
            result = _COMPARE[type(compare)](left, right)
            if not result:
                break
            left = right
        return result
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](_value(node.operand, fields))
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, _value(node.left, fields), _value(node.right, fields))
    if isinstance(node, ast.Subscript):
        return _value(node.value, fields)[_value(node.slice, fields)]
    if isinstance(node, ast.Call):
        name, arguments = _call_of(node)
        return _CALLS[name][1](*[_value(one, fields) for one in arguments])
    assert isinstance(node, ast.Tuple | ast.List)
    parts = [_value(one, fields) for one in node.elts]
    return parts if isinstance(node, ast.List) else tuple(parts)


def _arithmetic(node: ast.BinOp, left: Any, right: Any) -> Any:
    # Texts and lists times a number, and `%` of texts, take as much memory as an operator asks for.
    is_text = isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add)
    if not is_text and not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise TypeError(f"no arithmetic of {type(left).__name__} and {type(right).__name__}")
    return _ARITHMETIC[type(node.op)](left, right)

"""The sentences of the package that a report can show as a value, a reason or a note: all, without a few classes.

Every module of `doctor/` counts, so that a new one cannot be forgotten. A text does not count where it is only compared
with what others print, or where none of its words is prose.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import count
from pathlib import Path

MATCHING = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit", "strip"),
    *("lstrip", "rstrip", "replace", "find", "rfind", "index", "count", "compile", "match", "fullmatch", "search"),
    *("sub", "finditer", "findall", "get", "pop"),
}
"""Methods whose first argument is compared with another text."""
FOR_PROGRAMS = {
    *("option_table", "gauge", "Gauge", "AttributeError", "TypeError", "AssertionError", "without_start"),
}
"""Functions whose texts no report shows: options of other programs, help of metrics, errors of the code itself."""
FULL_VALUE, KEYS = -1, -2
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z{]|\} [a-z]{2,}|\} [a-z] [a-z]{2,}|\}'s [a-z]{2,}|^an? [a-z]{2,}$")
_NO_PROSE = re.compile(
    r"\(\?[:!=<]|\\|[\[(]\^|^/\S*$|^-(?!.*(?:: |; |expected | is | or ))|\||%[A-Za-z]|.\n.|\$\(|\$[a-z]\b|\"\$\w"
    r"|; exit [\d$]|\bimport \w+[,;]|^r=lambda|^from __|debug1|^NVIDIA |^[A-Z]\w+ [A-Z]\w+$|^\w+ -(?!.* (?:with|is) )",
    re.DOTALL,
)
"""Patterns, commands, programs and formats."""
_QUOTED = re.compile(r"(?<= )`[^`\n]+`")
"""A command in a sentence: what it holds is no sign of a program."""
_NAMED = re.compile(r"\{[a-z_]+\}")
_CONVERSION = re.compile(r"%\d*\.?\d*[sdrgf]|(?<!in braces )\{(?::[^{}]*)?\}")


def value_texts(root: Path) -> Iterator[str]:
    """The sentences of all modules below ``root``; what is filled in is ``{0}``, ``{1}``, whatever fills it."""
    for path in sorted(root.rglob("*.py")):
        yield from sentences(module_tree(path))


@cache
def module_tree(path: Path) -> ast.Module:
    """The syntax of a module, parsed once: many tests read all of them."""
    return ast.parse(path.read_text("utf-8"))


@lru_cache(maxsize=1)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """What `ast.walk` gives, in its order and in a third of its time."""
    results = [tree]
    for node in results:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                results += [entry for entry in value if isinstance(entry, ast.AST)]
            elif isinstance(value, ast.AST):
                results.append(value)
    return tuple(results)


def sentences(tree: ast.Module) -> Iterator[str]:
    """The sentences among the strings of a module that can be shown."""
    left_out = compared_texts(tree)
    for node in nodes(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(id(part) for part in ast.walk(node) if part is not node)
        elif isinstance(node, ast.BinOp) and literal(node):
            parts = (
                part for part in (*_terms(node), node.left, node.right) if not literal(part).startswith((";", ":"))
            )
            left_out.update(map(id, parts))
        elif isinstance(node, ast.Call) and _function_name(node) in FOR_PROGRAMS:
            left_out.update(id(part) for argument in node.args for part in ast.walk(argument))
    for node in nodes(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)) and id(node) not in left_out:
            text = literal(node)
            if _PROSE.search(text) and not _NO_PROSE.search(_QUOTED.sub("`", text)):
                yield text


def literal(node: ast.AST) -> str:
    """A string of the code, with ``{0}``, ``{1}`` for what an f-string, ``%``, ``format`` or ``+`` fills in.

    >>> literal(ast.parse("f'{a} of %s'", mode="eval").body), literal(ast.parse("'%d of {}'", mode="eval").body)
    ('{0} of %s', '{0} of {1}')
    >>> literal(ast.parse("'the file ' + path + ' is %d bytes' % size", mode="eval").body)
    'the file {0} is {1} bytes'
    """
    numbers = count()
    if isinstance(node, ast.BinOp):
        texts = [term for term in _terms(node) if _is_text(term)]
        if not texts or any(_NAMED.search(getattr(term, "value", "")) for term in texts if _is_plain(term)):
            return ""  # the parts of a finding's template are texts of their own
    return "".join(_text(term, numbers) for term in _terms(node) if isinstance(node, ast.BinOp) or _is_text(term))


def _terms(node: ast.AST) -> Iterator[ast.AST]:
    """The operands of a sum, or the node."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (*_terms(node.left), *_terms(node.right))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        yield node.left
    else:
        yield node


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or _is_plain(node)


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(term: ast.AST, numbers: Iterator[int]) -> str:
    if isinstance(term, ast.Constant) and isinstance(term.value, str):
        return _CONVERSION.sub(lambda _: f"{{{next(numbers)}}}", term.value)
    if isinstance(term, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else f"{{{next(numbers)}}}" for part in term.values)
        return "".join(map(str, parts))
    return f"{{{next(numbers)}}}"


def _function_name(call: ast.Call) -> str:
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def compared_texts(tree: ast.Module) -> set[int]:
    """The ids of the strings that are only compared with others: operands, indices, arguments of `MATCHING`.

    A private constant is, where it is used for nothing else; of its rows, the place that is compared.
    """
    results = {id(part) for node in nodes(tree) for part in _operands(node)}
    names = {node.id for node in nodes(tree) if isinstance(node, ast.Name) and id(node) in results}
    uses = _uses(tree, results, names)
    for statement in tree.body:
        value = getattr(statement, "value", None)
        for name in _assigned_names(statement):
            if name.startswith("_") and value is not None and uses[name] and None not in uses[name]:
                results.update(id(part) for place in uses[name] for part in _parts_at(value, place))
    return {id(inner) for node in nodes(tree) if id(node) in results for inner in _without_calls(node)}


def _operands(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.slice
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MATCHING:
        yield from node.args[:1]
        if node.func.attr == "split":
            yield node.func.value


def _uses(tree: ast.Module, results: set[int], names: set[str]) -> dict[str, set[int | None]]:
    """What each use of a name compares: the `WHOLE`, the `KEYS`, a place in its rows; None where it does not."""
    parents = {id(child): node for node in nodes(tree) for child in ast.iter_child_nodes(node)}
    uses: dict[str, set[int | None]] = defaultdict(set)
    for node in nodes(tree):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        above = parents[id(node)]
        if id(node) in results:
            uses[node.id].add(FULL_VALUE)
        elif (isinstance(above, ast.Subscript) and above.value is node) or (
            isinstance(above, ast.Attribute) and above.attr == "get"
        ):
            uses[node.id].add(KEYS)
        elif isinstance(above, ast.Attribute) and above.attr == "items":
            loop = parents[id(parents[id(above)])]
            uses[node.id].update(_places(loop, names))
        else:
            uses[node.id].update(_places(above, names) if getattr(above, "iter", None) is node else {None})
    return uses


def _places(loop: ast.AST, names: set[str]) -> set[int | None]:
    """Which variables of a loop are compared."""
    target = getattr(loop, "target", None)
    if isinstance(target, ast.Name) and target.id in names:
        return {FULL_VALUE}
    parts = target.elts if isinstance(target, ast.Tuple) else []
    return {place for place, part in enumerate(parts) if isinstance(part, ast.Name) and part.id in names} or {None}


def _assigned_names(statement: ast.stmt) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _parts_at(value: ast.expr, place: int | None) -> Iterator[ast.AST]:
    """The part of a constant that a use compares."""
    if isinstance(value, ast.Dict):
        yield from (part for part in (value.values if place == 1 else value.keys) if part is not None)
    elif place == FULL_VALUE:
        yield value
    elif place is not None and place >= 0:
        for row in getattr(value, "elts", ()):
            yield from getattr(row, "elts", ())[place : place + 1]


def _without_calls(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _without_calls(child)

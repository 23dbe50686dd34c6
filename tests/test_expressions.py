"""No regular expression of the program needs more than linear time: one host's answer would stop the run.

Every expression is found in the source, with the way it is used. From its parse tree follow the inputs that hurt such
an engine most: what each repetition repeats, pumped to 64 KB, after what leads there and before what cannot follow.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.every

parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

ROOT = Path(__file__).parents[1]
SIZE = 64 << 10
CPU_SECONDS = 0.4
"""Of one input. A linear expression needs a few milliseconds; a quadratic one needs 20 s and more."""
OWN_TEXT = {
    "doctor/cli/fast_list.py": "our own checks",
    "doctor/cli/search.py": "our own checks",
    "doctor/engine/check.py": "our own checks",
    "doctor/report/explain/examples.py": "our own pages",
    "doctor/remedy/template.py": "playbooks, which run commands as root anyway",
    "doctor/remedy/catalog.py": "playbooks, which run commands as root anyway",
    "doctor/report/explain/topics.py": "our own pages",
    "doctor/smoke/run/programs.py": "our own programs",
}
"""Modules whose expressions never meet text of a host, a file of the user, or the environment."""
SHORT = {"doctor/transport/launcher/slurm_steps.py": 2000}
"""Modules that cut what they read to fewer characters."""
METHODS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn"})
REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


class Use(NamedTuple):
    """One expression, and one way in which it is used."""

    place: str
    pattern: Any
    flags: int
    method: str


class Names(dict[str, Any]):
    """The names of a module; what only a function knows stands for itself as an ``x``."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        return re if name == "re" else "x"

    def value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<source>", "eval"), {}, self)


def uses_of(path: Path) -> Iterator[Use]:
    """Every use of an expression in one module."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    names, owners = Names(), {}
    methods: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with suppress(Exception):
                names[node.targets[0].id] = names.value(node.value)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            owners[node.value] = node.targets[0].id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            methods.setdefault(node.value.id, set()).add(node.attr)
    # One that is handed to a function is used as that function uses its parameter.
    by_parameter = {method for name, used in methods.items() if name not in (*owners.values(), "re") for method in used}
    for node in nodes:
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name.removeprefix("re.") in METHODS | {"compile"} and name.startswith("re."):
            used = {name[3:]}
            if name == "re.compile":
                used = methods.get(owners.get(node, "")) or by_parameter or {"search"}
            with suppress(Exception):  # An expression that is made while the program runs.
                pattern = names.value(node.args[0])
                flags = re.compile(pattern, flags_of(node, names)).flags & ~re.UNICODE
                pattern = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
                yield from (Use(f"{path.relative_to(ROOT)}:{node.lineno}", pattern, flags, method) for method in used)


def flags_of(call: ast.Call, names: Names) -> int:
    arguments = (*call.args[1:], *(keyword.value for keyword in call.keywords))
    return sum(
        int(names.value(argument))
        for argument in arguments
        if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", ast.unparse(argument))
    )


@cache
def every_use() -> list[Use]:
    files = sorted(path for folder in ("doctor", "checks") for path in (ROOT / folder).rglob("*.py"))
    return [use for path in files if str(path.relative_to(ROOT)) not in OWN_TEXT for use in uses_of(path)]


def samples(tokens: Any) -> list[str]:
    """A few short texts that a part of an expression matches."""
    names = [""]
    for operation, argument in tokens:
        names = [before + after for before in names for after in sample(str(operation), argument)][:4]
    return names


def sample(operation: str, argument: Any) -> list[str]:
    """A few short texts that one token matches."""
    if operation in ("LITERAL", "NOT_LITERAL"):
        return [chr(argument) if operation == "LITERAL" else "y" if argument == ord("x") else "x"]
    if operation in ("ANY", "IN"):
        return ["x", " "] if operation == "ANY" else members(argument)
    if operation == "BRANCH":
        return [text for branch in argument[1] for text in samples(branch)[:1]]
    if operation in REPEATS:
        least, _, body = argument
        return [text * max(least, 1) for text in samples(body)][:3] + ([""] if least == 0 else [])
    return samples(inside(operation, argument))


def inside(operation: str, argument: Any) -> Any:
    """The tokens in a group or an assertion."""
    if operation in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return argument[-1]
    return argument if operation == "ATOMIC_GROUP" else ()


def members(group: Any) -> list[str]:
    """Characters of a set: of each kind in it one."""
    negated, letters, kinds = False, [], []
    for operation, argument in group:
        name = str(operation)
        negated |= name == "NEGATE"
        if name == "LITERAL":
            letters.append(chr(argument))
        elif name == "RANGE":
            letters.append(chr(argument[0]))
        elif name == "CATEGORY":
            kinds.append(str(argument))
    if not negated:
        like = {"DIGIT": "0", "WORD": "w", "SPACE": " ", "NOT_DIGIT": "x", "NOT_WORD": "!", "NOT_SPACE": "x"}
        return [like[kind.removeprefix("CATEGORY_")] for kind in kinds] + letters[:3] + letters[-2:]
    return [letter for letter in "xw0 .-=:\t,!" if letter not in letters][:4]


def pumped(pattern: Any, flags: int) -> Iterator[str]:
    """Inputs of 64 KB, each made of what one repetition repeats, or of the expression's beginning again and again."""
    yield from ("x" * SIZE, " " * SIZE, "0" * SIZE, "\n" * SIZE, "x.-" * (SIZE // 3), "x " * (SIZE // 2))
    tree = parser.parse(pattern, flags)
    for before, body in repetitions(tree, ""):
        for text in samples(body)[:3]:
            if text:
                core = text * (SIZE // len(text))
                yield from (before + core, before + core + "\0", before + core + "\n!")
        for text in samples(body)[:1]:
            start = before + text
            yield start * (SIZE // max(len(start), 1))
            if before:
                yield before * (SIZE // len(before))


def repetitions(tokens: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Every repetition without a small bound: what leads to it, and what it repeats."""
    for operation, argument in tokens:
        name = str(operation)
        if name in REPEATS:
            _, most, body = argument
            if most > 64:
                yield before, body
            yield from repetitions(body, before)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from repetitions(branch, before)
        yield from repetitions(inside(name, argument), before)
        before += "" if name.startswith("ASSERT") else sample(name, argument)[0]


class TooSlow(Exception):
    """The expression was still at it when its time had ended."""


def run_out(*_: object) -> None:
    raise TooSlow


def is_linear(use: Use, text: str) -> bool:
    text = text[: SHORT.get(use.place.partition(":")[0])]
    compiled = re.compile(use.pattern, use.flags)
    data: Any = text.encode("utf-8") if isinstance(use.pattern, bytes) else text
    method = getattr(compiled, use.method)
    old = signal.signal(signal.SIGVTALRM, run_out)
    gc.disable()  # what other tests keep in memory costs this one nothing
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        result = method(b"" if isinstance(data, bytes) else "", data) if use.method in ("sub", "subn") else method(data)
        if use.method == "finditer":
            list(result)
    except TooSlow:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
        gc.enable()
    return True


@pytest.mark.every
def test_the_expressions_are_found() -> None:
    assert len(every_use()) > 150
    assert len({use.place.partition(":")[0] for use in every_use()}) > 60


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"\w*(?:token)\w*=", r"[ \t]+y", r"(?:\w+\s?)*:"])
def test_an_expression_that_is_not_linear_is_found(pattern: str) -> None:
    use = Use("here:1", pattern, 0, "search")
    assert not all(is_linear(use, text) for text in pumped(pattern, 0))


@pytest.mark.every
def test_every_expression_is_linear() -> None:
    slow = {}
    for use in dict.fromkeys(every_use()):
        for text in pumped(use.pattern, use.flags):
            if not is_linear(use, text):
                slow[use] = text[:40]
                break
    assert not slow, "\n".join(f"{use.place} {use.method} {use.pattern!r}: {text!r}..." for use, text in slow.items())

"""The code keeps to the field's words, to one meaning for a name, and to modules that can be read in one sitting."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.every

ROOT = Path(__file__).parents[1]
_VAGUE = """
one said told found shown known made given wanted whole plain words say tell heard met seen looked asked there missing
came come went gone stays left thing things what own odd scene muster deed crowd hand how
"""
VAGUE = frozenset(_VAGUE.split())
"""Words that say where a value came from, not what it is; and metaphors for terms that the field has."""
MOST_VAGUE = 3.0
"""Vague identifiers for 1,000 lines."""
MOST_LINES = 450
MOST_HOMONYMS = 5
MOST_MODULE_HOMONYMS = 42
LONG_FUNCTION = 40
MOST_LONG_FUNCTIONS = 23
MOST_LATE_IMPORTS = 310
"""Imports inside functions: for the start of the program, for what may not be installed, and for nothing else."""
SMALL_MODULE = 40
MOST_SMALL_MODULES = 110
MOST_AT_TOP = 12
AT_THE_ROOT = {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}

FILES = sorted((ROOT / "doctor").rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every module of the package."""
    return {path: ast.parse(path.read_text("utf-8")) for path in FILES}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name, parameter, attribute, function and class of a module, as often as it is there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def is_vague(name: str) -> bool:
    return name.lstrip("_").lower() in VAGUE


def test_vague_identifiers_are_found_in_every_place() -> None:
    tree = ast.parse("class Scene:\n    def told(self, one): return one.seen, _found, foundation\n")
    assert sorted(filter(is_vague, identifiers(tree))) == ["Scene", "_found", "one", "one", "seen", "told"]


@pytest.mark.every
def test_identifiers_say_what_a_value_is() -> None:
    lines = sum(path.read_text("utf-8").count("\n") for path in FILES)
    vague = Counter({str(path.relative_to(ROOT)): sum(map(is_vague, identifiers(trees()[path]))) for path in FILES})
    assert 1000 * vague.total() / lines <= MOST_VAGUE, vague.most_common(5)


def test_a_class_name_means_one_thing() -> None:
    classes = Counter(
        name
        for tree in trees().values()
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        if not name.startswith("_")
    )
    homonyms = [name for name, modules in classes.items() if modules > 1]
    assert len(homonyms) <= MOST_HOMONYMS, homonyms


def functions() -> list[ast.FunctionDef]:
    return [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_a_module_s_name_means_one_thing() -> None:
    names = Counter(path.name for path in FILES if not path.name.startswith("__"))
    homonyms = [name for name, modules in names.items() if modules > 1]
    assert len(homonyms) <= MOST_MODULE_HOMONYMS, homonyms


def test_a_function_fits_on_a_screen() -> None:
    long = [node.name for node in functions() if (node.end_lineno or 0) - node.lineno > LONG_FUNCTION]
    assert len(long) <= MOST_LONG_FUNCTIONS, long


@pytest.mark.every
def test_imports_stand_at_the_top() -> None:
    late = {
        node for function in functions() for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(late) <= MOST_LATE_IMPORTS


def test_few_modules_hold_next_to_nothing() -> None:
    small = [str(path.relative_to(ROOT)) for path in FILES if path.read_text("utf-8").count("\n") < SMALL_MODULE]
    assert len(small) <= MOST_SMALL_MODULES, small


@pytest.mark.parametrize("folder", ["doctor", "checks"])
def test_a_module_can_be_read_in_one_sitting(folder: str) -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in (ROOT / folder).rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_the_top_of_the_package_is_its_layers() -> None:
    assert len(list((ROOT / "doctor").glob("*.py"))) <= MOST_AT_TOP


def test_no_output_lies_beside_the_project_s_own_files() -> None:
    """What a run left in the folder of the project may hold the environment of whoever ran it."""
    git = shutil.which("git")
    argv = [git or "", "ls-files", "--", ":(glob)*"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split() if git else []
    assert {name for name in listed if not name.startswith(".")} <= AT_THE_ROOT


def test_what_python_3_10_refuses_is_not_there() -> None:
    """No class is a NamedTuple and generic; and typer takes ``list[str]`` alone, of a callback there, for a class."""
    sources = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "doctor").rglob("*.py")]
    nodes = [node for tree in sources for node in ast.walk(tree)]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for node in nodes if isinstance(node, ast.ClassDef)}
    assert [name for name, names in bases.items() if "NamedTuple" in names and len(names) > 1] == []
    keywords = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "callback"]
    callbacks = {keyword.value.id for keyword in keywords if isinstance(keyword.value, ast.Name)}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name in callbacks]
    assert {function.name for function in functions} >= {"_split_names", "require_finite"}
    annotations = [argument.annotation for function in functions for argument in function.args.args]
    assert not any(isinstance(annotation, ast.Subscript) for annotation in annotations)

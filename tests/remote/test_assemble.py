"""The programs that are sent to hosts: what is joined is what was written, and runs by the oldest Python."""

from __future__ import annotations

import ast
import builtins
import sys
from pathlib import Path

import pytest

from doctor.remote.bootstrap import assemble, joined_modules, read_module

ROOT = Path(__file__).parents[2] / "doctor"
PROGRAMS = {
    module: tuple(joined_modules(f"doctor.{module}"))
    for module in (
        "collect.collector.collector",
        "collect.collector.root_helper",
        "diagnose.bundler.bundler",
        "diagnose.excerpter.excerpter",
        "fix.executor.executor",
        "net.prober.prober",
        "smoke.programs.agent.agent",
        "transport.launcher.carrier.carrier",
        "transport.launcher.relay.relay_loop",
        "watch.attach.inspector.inspector",
    )
}
LONGEST = 300
"""Lines of a module."""


@pytest.fixture(params=PROGRAMS)
def modules(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return PROGRAMS[request.param]


def body(text: str) -> list[ast.stmt]:
    """A module's statements without docstrings and imports from doctor, which are not sent."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            node.body = [child for child in node.body if not is_text(child)]
    return [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and is_ours(str(node.module)))]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_ours(module: str) -> bool:
    return module.split(".", 1)[0] == "doctor"


def imported(text: str) -> set[str]:
    """The modules that a text imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    return names


def test_the_text_is_ascii_and_parses_as_python_3_6(modules: tuple[str, ...]) -> None:
    ast.parse(assemble(*modules).encode("ascii").decode(), feature_version=(3, 6))


def test_the_text_imports_the_standard_library_alone(modules: tuple[str, ...]) -> None:
    assert {name.split(".")[0] for name in imported(assemble(*modules))} <= sys.stdlib_module_names


def test_nothing_is_lost_but_docstrings_and_repeated_imports(modules: tuple[str, ...]) -> None:
    expected, imports = [], set()
    for module in modules:
        for node in body(read_module(module)):
            if not isinstance(node, ast.Import) or ast.unparse(node) not in imports:
                expected.append(node)
            imports.add(ast.unparse(node))
    expected.sort(key=lambda node: not ast.unparse(node).startswith("import _"))
    assert [ast.dump(node) for node in body(assemble(*modules))] == list(map(ast.dump, expected))


def test_no_module_redefines_a_name_of_another(modules: tuple[str, ...]) -> None:
    names = [
        name
        for node in ast.parse(assemble(*modules)).body
        for name in (
            [node.name]
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
            else [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
        )
    ]
    assert sorted(names) == sorted(set(names))


def test_every_name_is_defined(modules: tuple[str, ...]) -> None:
    """Of a module before it, or its own: as far as that can be told without running it."""
    tree = ast.parse(assemble(*modules))
    defined = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined.update(alias.asname or alias.name for alias in node.names)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used <= defined


def test_a_module_imports_names_of_modules_before_it_alone(modules: tuple[str, ...]) -> None:
    """By their own names: in the joined text there are no modules, and no other names."""
    for number, module in enumerate(modules):
        for node in ast.walk(ast.parse(read_module(module))):
            if isinstance(node, ast.ImportFrom) and is_ours(str(node.module)):
                assert node.module in modules[:number]
                assert all(alias.asname is None for alias in node.names)
            assert not isinstance(node, ast.Import) or not any(is_ours(alias.name) for alias in node.names)


def test_modules_are_short(modules: tuple[str, ...]) -> None:
    assert max(len(read_module(module).splitlines()) for module in modules) <= LONGEST


def test_no_module_is_forgotten() -> None:
    """Each of a program's folder is in its text, and each of the runtime in some program's."""
    sent = {module for modules in PROGRAMS.values() for module in modules}
    folders = {"doctor.remote.runtime", *(module.rpartition(".")[0] for module in sent)}
    sent |= joined_modules("doctor.smoke.programs.worker.main").keys()
    for folder in folders:
        path = ROOT.joinpath(*folder.split(".")[1:])
        assert {f"{folder}.{file.stem}" for file in path.glob("[a-z]*.py")} <= sent


FIRST = '''"""Of two
lines."""

import os

from doctor.x import (
    a,
)

A = 1
'''
SECOND = '''import os
from doctor.first import A


def f():
    """f."""
    # Why.
    return A
'''


def test_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.py").write_text("")
    (tmp_path / "first.py").write_text(FIRST)
    (tmp_path / "second.py").write_text(SECOND)
    monkeypatch.setattr("doctor.remote.bootstrap._PACKAGE", tmp_path)
    assert [*joined_modules("doctor.second")] == ["doctor.x", "doctor.first", "doctor.second"]
    assert assemble("doctor.second") == "import os\nA = 1\ndef f():\n return A\n"

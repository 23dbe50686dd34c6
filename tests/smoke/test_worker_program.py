"""The worker's parts are modules of ours; what is sent of them is one text that needs nothing of ours."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import CodeType

import pytest

from doctor.remote.bootstrap import joined_modules
from doctor.smoke.programs import worker
from doctor.smoke.run import programs

FOLDER = Path(worker.__file__).parent
ENTRIES = (*programs.STAGE_PARTS, "main", "stage_native", "mindspore_rank")
MODULES = joined_modules(*(f"{worker.__name__}.{name}" for name in ENTRIES))
SOURCES = {name.rpartition(".")[2]: text for name, text in MODULES.items()}
ALL_PARTS = [*SOURCES]
PYTHON = (3, 8)
"""The oldest interpreter that a job may use."""


def sent(part: str) -> str:
    """The part as it is sent."""
    return programs.without_own_imports(SOURCES[part])


def own_imports(part: str) -> dict[str, list[ast.alias]]:
    """The names that a part imports, wherever in its text, by the part that they come from."""
    imports = [node for node in ast.walk(ast.parse(SOURCES[part])) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if str(node.module).startswith("doctor")]
    return {str(node.module).rpartition(".")[2]: node.names for node in ours}


def defined_names(part: str) -> set[str]:
    """The names that a part itself binds at its top level."""
    return top_level_names(SOURCES[part])


def top_level_names(text: str) -> set[str]:
    body = ast.parse(text).body
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if hasattr(node, "target") else []
        nodes = [child for target in targets for child in ast.walk(target)]
        names |= {child.id for child in nodes if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    return names


def test_every_file_is_a_part() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__"} | {
        name.rpartition(".")[2] for name in MODULES if name.startswith(worker.__name__)
    }
    assert max(len(SOURCES[part].splitlines()) for part in ALL_PARTS) <= 320


@pytest.mark.parametrize("part", ALL_PARTS)
def test_a_part_is_a_module_with_a_docstring(part: str) -> None:
    name = next(name for name in MODULES if name.endswith(f".{part}"))
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("part", ALL_PARTS)
def test_a_part_imports_earlier_parts_alone(part: str) -> None:
    imports = own_imports(part)
    assert set(imports) <= set(ALL_PARTS[: ALL_PARTS.index(part)])
    assert not [name for names in imports.values() for name in names if name.asname], "nothing renames it on the host"


def test_no_name_is_defined_by_two_parts() -> None:
    """They share one namespace, so that the later would replace the earlier."""
    counts = Counter(name for part in ALL_PARTS for name in defined_names(part))
    assert [name for name, count in counts.items() if count > 1] == []
    assert counts["STAGES"] == counts["TracedComm"] == counts["LOADER_WORKERS"] == 1


def test_the_recorder_page_is_defined_once_for_both_programs() -> None:
    shared = defined_names("recorder_page")
    assert {"STAGES", "CURRENT", "PAGE_SIZE"} <= shared
    assert "doctor.smoke.programs.recorder_page" in joined_modules("doctor.smoke.programs.agent.agent")
    sources = [path for path in FOLDER.parent.rglob("*.py") if path.name != "recorder_page.py"]
    again = {path.name: shared & top_level_names(path.read_text("utf-8")) for path in sources}
    assert not {name: names for name, names in again.items() if names}


@pytest.mark.parametrize("part", ALL_PARTS)
def test_what_is_sent_of_a_part_runs_on_its_own_on_old_interpreters(part: str) -> None:
    text = sent(part)
    tree = ast.parse(text, feature_version=PYTHON)
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert not [module for module in modules if module.split(".")[0] == "doctor"]
    assert text.isascii()


def test_no_part_needs_more_than_the_oldest_standard_library(tmp_path: Path) -> None:
    pytest.importorskip("vermin", reason="vermin is not installed: no use of a newer standard library is found")
    for part in ALL_PARTS:
        (tmp_path / f"{part}.py").write_text(sent(part))
    target = "{}.{}-".format(*PYTHON)
    argv = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        "--no-eval-annotations",
        "--violations",
        f"-t={target}",
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


REMOVED = {"asynchat", "asyncore", "cgi", "crypt", "distutils", "imp", "nis", "pipes", "smtpd", "spwd", "telnetlib"}
"""Modules that Python 3.12 or 3.13 has no more; the worker is to run there, too."""


@pytest.mark.parametrize("part", ALL_PARTS)
def test_no_part_needs_what_newer_interpreters_have_removed(part: str) -> None:
    tree = ast.parse(sent(part))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in imported} & REMOVED


@pytest.mark.parametrize("part", ALL_PARTS)
def test_lines_keep_their_numbers(part: str) -> None:
    ours, lines = SOURCES[part].splitlines(), sent(part).splitlines()
    changed = [line for line, other in zip(ours, lines, strict=True) if line != other]
    assert all(line.startswith(("from doctor.", "    ", ")")) for line in changed)
    assert len(changed) >= len(own_imports(part))


def compiled(text: str) -> list[CodeType]:
    """The code of every part of a joined text, without running any of it."""
    codes: list[CodeType] = []
    exec(compile(text, "worker.py", "exec"), {"exec": codes.append})
    return codes


def test_the_joined_program_compiles_and_names_its_files() -> None:
    text = programs.program(("training", "native"), "mindspore")
    assert text.isascii()
    assert [code.co_filename for code in compiled(text)] == [f"worker/{part}.py" for part in ALL_PARTS]
    assert compiled(programs.program(("training",)))[-1].co_filename == "worker/main.py"


def test_a_stack_names_the_part_and_its_line() -> None:
    names = {"__name__": "worker"}
    exec(programs.worker(), names)
    with pytest.raises(AttributeError) as raised:
        names["tensor_bytes"](None)  # type: ignore[operator]
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.filename, last.name) == ("worker/values.py", "tensor_bytes")
    assert ".detach()" in SOURCES["values"].splitlines()[(last.lineno or 0) - 1]


def test_it_starts_without_doctor_and_without_torch() -> None:
    """As the agent starts it: the text on stdin, in an interpreter that has nothing but the standard library."""
    text = programs.program(("native",))
    boot = "import sys; exec(compile(sys.stdin.read(), 'worker.py', 'exec')); print(callable(main), torch, len(OPS))"
    argv = [sys.executable, "-I", "-S", "-c", boot]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd="/", timeout=60)
    assert (done.stdout, done.stderr) == ("True None 13\n", "")

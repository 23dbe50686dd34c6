"""What the hook does with a module that it waits for: once, when it is imported, however it was asked for before."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from doctor.watch.hook.start import AfterImport

NAME = "a_module_that_is_waited_for"


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The values with which the function was called."""
    (tmp_path / f"{NAME}.py").write_text("value = 'loaded'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def function(module: ModuleType) -> None:
        names.append(module.value)

    finder: Any = AfterImport
    monkeypatch.setattr(sys, "meta_path", [finder({NAME: function}), *sys.meta_path])
    yield names
    sys.modules.pop(NAME, None)


def test_it_is_called_after_the_import(called: list[str]) -> None:
    importlib.import_module(NAME)
    assert called == ["loaded"]


def test_a_program_may_ask_first_whether_the_module_is_there(called: list[str]) -> None:
    spec: Any = importlib.util.find_spec(NAME)
    assert spec.loader.get_source(NAME) == "value = 'loaded'\n", "the loader has all that the module's own has"
    assert copy.copy(spec.loader).get_filename(NAME) == spec.origin
    assert called == []
    importlib.import_module(NAME)
    importlib.reload(sys.modules[NAME])
    assert called == ["loaded"]


def test_it_is_called_where_the_program_loads_the_module_by_its_specification(called: list[str]) -> None:
    spec: Any = importlib.util.find_spec(NAME)
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert called == ["loaded"]
    assert module.__loader__ is module.__spec__.loader, "nothing of the hook is left in the module"


def test_an_import_that_fails_may_be_tried_again(called: list[str], tmp_path: Path) -> None:
    file = tmp_path / f"{NAME}.py"
    file.write_text("raise ImportError('not yet')\n")
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(NAME)
    file.write_text("value = 'loaded at the second time'\n")
    importlib.import_module(NAME)
    assert called == ["loaded at the second time"]


def test_another_module_is_none_of_its_business(called: list[str]) -> None:
    finder: Any = sys.meta_path[0]
    assert finder.find_spec("json") is None
    assert importlib.util.find_spec(f"{NAME}_too") is None

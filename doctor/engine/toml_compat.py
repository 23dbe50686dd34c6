"""TOML, by the standard library or, before Python 3.11, by the package that it was made from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_Form = TypeVar("_Form")


def loads(text: str) -> dict[str, Any]:
    """Raises: ValueError for invalid TOML; RecursionError for too deep nesting."""
    document: dict[str, Any] = tomllib.loads(text)
    return document


def read_table(path: Path, form: type[_Form]) -> _Form:
    """A file of data that comes with the package, as ``form``. Raises: OSError; ValueError for another form."""
    return msgspec.convert(loads(path.read_text("utf-8")), form)


def table_beside(file: str, form: type[_Form]) -> Callable[[], _Form]:
    """What reads the table that lies beside a module, its ``__file__``, once: see `read_table`."""
    return cache(lambda: read_table(Path(file).with_suffix(".toml"), form))


def toml_files(folder: Path) -> list[Path]:
    """The TOML files of a folder, by name, without hidden ones. Raises: OSError for one that cannot be listed."""
    names = [name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")]
    return [folder / f"{name}.toml" for name in sorted(names) if not name.startswith(".")]

"""Loads one object from every module of a package, so that a new file needs no list to be edited."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any


def module_constants(package: str, path: Iterable[str], constant: str) -> Iterator[Any]:
    """The value of ``constant`` in each module of ``package``, in the order of the modules' names.

    ``path``: the package's ``__path__``. Raises: AttributeError for a module without it.
    """
    for module in pkgutil.iter_modules(path):
        yield getattr(importlib.import_module(f"{package}.{module.name}"), constant)

"""In a rehearsal of NCCL or RCCL: torch brings its devices along as soon as it is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

if os.environ.get("REHEARSED") in ("cuda", "rocm"):

    class Finder:
        """Finds torch as usual, and installs the devices behind its import."""

        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            if name != "torch":
                return None
            sys.meta_path.remove(Finder)
            spec: Any = importlib.util.find_spec(name)
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                from devices import install  # type: ignore[import-not-found]

                install(os.environ["REHEARSED"])

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder)

"""What the program holds of its own: random generators, and copies of the parameters such as an average of them.

They are found by name in the variables of the functions that run when the training begins, and in what these hold; no
property is read, nothing of the program is called. Python 3.8, torch 2.1. A part of the hook.
"""

from __future__ import annotations

import random
import sys
import zlib
from typing import Any, Callable, Iterable, Iterator

from .digest import local_tensor, value_digest
from .digest_records import plain_name

MAX_DEPTH, MAX_LOOKED, MAX_ENTRIES = 4, 4000, 64
MAX_GENERATORS, MAX_COPIES = 32, 4
OPTIMIZED = 1
"""CO_OPTIMIZED: of a function's code, whose ``f_locals`` are copies."""
PASSED_BY = ("torch", "doctor", "_doctor_watch_hook", "importlib", "runpy", "threading")


class HeldValues:
    """Of one process, as it was found when its training began."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.generators: dict[str, Any] = {}
        self.copies: dict[str, Any] = {}
        """Modules, and dictionaries or lists of tensors."""

    def look(self, names: dict[str, Any], is_compared: Callable[[Any], bool]) -> None:
        """Looks for them anew. ``names``: the parameters; ``is_compared``: what was loaded, or is compared as such."""
        self.generators, self.copies = {}, {}
        passed = (self.torch.Tensor, self.torch.optim.Optimizer, int, float, str, bytes)
        visited = {id(self.torch.default_generator), id(random._inst)}
        rows = [(name, held, 0) for name, held in _variables()]
        for name, held, depth in rows:  # grows
            if issubclass(type(held), passed) or id(held) in visited or is_compared(held):
                continue
            if len(visited) > MAX_LOOKED:
                break
            visited.add(id(held))
            if _state_of(held) is not None:
                if len(self.generators) < MAX_GENERATORS:
                    self.generators.setdefault(name, held)
            elif len(self.copies) < MAX_COPIES and _is_copy(self.torch, held, names):
                self.copies.setdefault(name, held)
            elif depth < MAX_DEPTH:
                entries = _entries(held, self.is_module(held))
                rows += [(f"{name}.{key!s:.60}".replace(":", "."), entry, depth + 1) for key, entry in entries]

    def is_module(self, held: Any) -> bool:
        return issubclass(type(held), self.torch.nn.Module)

    def digests(self) -> dict[str, str]:
        """Of the generators' states."""
        return {name: f"{zlib.crc32(repr(_state_of(held)).encode()):08x}" for name, held in self.generators.items()}

    def tensors(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Of the copies: ``COPY:PARAMETER``, and the tensor. ``names``: the parameters'."""
        for label, copy in self.copies.items():
            rows = zip(names, copy) if isinstance(copy, (list, tuple)) else _named(copy)
            yield from ((f"{label}:{name}", tensor) for name, tensor in rows)


def _variables() -> Iterator[tuple[str, Any]]:
    """Of the program's functions that run, the innermost first, and of its main module."""
    frame: Any = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in PASSED_BY:
            variables = frame.f_locals
            rows = list(variables.items())
            # The frame keeps this copy, and with it what the program lets go; the program's own locals() stays.
            if sys.version_info < (3, 13) and frame.f_code.co_flags & OPTIMIZED and sys.getrefcount(variables) <= 3:
                variables.clear()
            for name, held in rows:
                yield (type(held).__name__ if name == "self" else name), held
        frame = frame.f_back
    yield from list(vars(sys.modules["__main__"]).items())


def _entries(held: Any, is_module: bool) -> list[tuple[Any, Any]]:
    """What a variable's value holds; of a module, without its parameters and the modules in it."""
    if issubclass(type(held), dict):
        return list(dict.items(held))[:MAX_ENTRIES]
    if type(held) in (list, tuple):
        return list(enumerate(held[:MAX_ENTRIES]))
    if issubclass(type(held), (type, type(sys), type(_entries))):
        return []
    try:
        rows = list(object.__getattribute__(held, "__dict__").items())  # other threads may write to it
        return [row for row in rows if not (is_module and row[0][:1] == "_")][:MAX_ENTRIES]
    except (AttributeError, TypeError):
        return []


def _state_of(held: Any) -> Any:
    """The state of a generator, which tells it from others; None of what is none."""
    kind = type(held)
    if kind.__name__ == "Generator" and kind.__module__.partition(".")[0] == "torch":
        return value_digest(held.get_state())
    if kind.__name__ in ("Generator", "RandomState") and kind.__module__.startswith("numpy.random"):
        return held._bit_generator.state
    return held.getstate() if kind is random.Random else None


def _named(copy: Any) -> list[tuple[str, Any]]:
    rows = dict.items(copy) if isinstance(copy, dict) else copy.named_parameters()
    return [(plain_name(str(name)), tensor) for name, tensor in rows]


def _is_copy(torch: Any, held: Any, names: dict[str, Any]) -> bool:
    """Whether it holds a tensor of the form of each parameter, and none of them itself."""
    rows: list[tuple[str, Any]] = []
    if type(held) in (list, tuple):
        rows = list(zip(names, held)) if len(held) == len(names) else []
    elif issubclass(type(held), torch.nn.Module):
        rows = _named(held)
    elif issubclass(type(held), dict) and dict.__len__(held) <= 4 * len(names):
        rows = _named(held) if all(issubclass(type(entry), torch.Tensor) for entry in dict.values(held)) else []
    rows = [row for row in rows if row[0] in names]
    if not rows or 2 * len(rows) < len(names):
        return False
    addresses = {local_tensor(tensor).data_ptr() for tensor in names.values()}
    return all(
        issubclass(type(tensor), torch.Tensor)
        and tensor.shape == names[name].shape
        and local_tensor(tensor).data_ptr() not in addresses
        for name, tensor in rows
    )

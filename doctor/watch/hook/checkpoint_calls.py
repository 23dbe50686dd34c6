"""The calls by which programs save and load checkpoints and set generators. Python 3.8, torch 2.1.

What frameworks do comes down to few of them: Lightning, DeepSpeed (its ``TorchCheckpointEngine``), accelerate and the
Trainer of transformers write optimizers, schedulers and generators by ``torch.save``; torch.distributed.checkpoint and
safetensors have calls of their own. A part of the hook.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from typing import Any, Callable

from .digest_records import plain_name

MAX_ITEMS, MAX_DEPTH = 20000, 5
SAVES = {
    "torch": (("save", 0, 1),),
    "torch.serialization": (("save", 0, 1),),
    "torch.distributed.checkpoint": (("save", 0, -1), ("async_save", 0, -1), ("save_state_dict", 0, -1)),
    "torch.distributed.checkpoint.state_dict_saver": (("save", 0, -1), ("async_save", 0, -1)),
    "safetensors.torch": (("save_file", 0, 1), ("save_model", 0, 1)),
}
"""By module: a function, the places of what is saved and of its path among the arguments."""
LOADS = {
    "torch": (("load", 0),),
    "torch.serialization": (("load", 0),),
    "torch.distributed.checkpoint": (("load", -1), ("load_state_dict", -1)),
    "torch.distributed.checkpoint.state_dict_loader": (("load", -1), ("load_state_dict", -1)),
    "safetensors.torch": (("load_file", 0), ("load_model", 1)),
}
SETTERS = {
    "torch": (("set_rng_state", "torch", 0),),
    "torch.random": (("set_rng_state", "torch", 0),),
    "random": (("setstate", "python", 0),),
    "numpy.random": (("set_state", "numpy", 0),),
    "torch.cuda": (("set_rng_state", "device", 0),),
    "torch.cuda.random": (("set_rng_state", "device", 0),),
    "torch.npu": (("set_rng_state", "device", 0),),
}
PATH_NAMES = ("f", "checkpoint_id", "filename")


class CheckpointCalls:
    """Wraps them.

    ``saving(content, path)`` and ``loading(kind, path, None, content)`` are called, ``setting(generator, state)``.
    """

    def __init__(self, saving: Callable[..., None], loading: Callable[..., None], setting: Callable[..., None]) -> None:
        self.saving, self.loading, self.setting = saving, loading, setting
        self.wrapped: set[tuple[str, str]] = set()
        self.modules = 0

    def install(self) -> None:
        """Wraps those of modules that are there; called again, those that the program has imported since."""
        if self.modules == len(sys.modules):
            return
        self.modules = len(sys.modules)
        for name, functions in SAVES.items():
            for function, content, path in functions:
                self._wrap(name, function, functools.partial(self._save, content, path), None)
        for name, loads in LOADS.items():
            for function, path in loads:
                self._wrap(name, function, None, functools.partial(self._load, path))
        for name, setters in SETTERS.items():
            for function, generator, state in setters:
                self._wrap(name, function, functools.partial(self._set, generator, state), None)

    def _wrap(self, module: str, function: str, before: Any, after: Any) -> None:
        owner = sys.modules.get(module)
        original = getattr(owner, function, None)
        if original is None or (module, function) in self.wrapped:
            return
        self.wrapped.add((module, function))
        if getattr(original, "of_doctor", False):  # one function under two names
            return

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if before is not None:
                before(arguments, named)
            result = original(*arguments, **named)
            if after is not None:
                after(result, arguments, named)
            return result

        wrapper.of_doctor = True  # type: ignore[attr-defined]
        setattr(owner, function, wrapper)

    def _save(self, content: int, path: int, arguments: Any, named: Any) -> None:
        values = arguments[content] if len(arguments) > content else next(iter(named.values()), None)
        self.saving(values, _path(path, arguments, named))

    def _load(self, path: int, result: Any, arguments: Any, named: Any) -> None:
        self.loading("file", _path(path, arguments, named), None, result)

    def _set(self, generator: str, state: int, arguments: Any, named: Any) -> None:
        value = arguments[state] if len(arguments) > state else next(iter(named.values()), None)
        if generator == "device" and len(arguments) < 1 and not named:
            return
        self.setting(generator, value)


def _path(place: int, arguments: Any, named: Any) -> str:
    value = arguments[place] if 0 <= place < len(arguments) else None
    for name in PATH_NAMES:
        value = named.get(name) if value is None else value
    if value is None or not isinstance(value, (str, os.PathLike)):
        value = getattr(value, "name", None)
    if not isinstance(value, (str, os.PathLike)):
        return ""
    return os.path.realpath(os.fspath(value))[:1000] if isinstance(os.fspath(value), str) else ""


class SavedContents:
    """Which parts of a training's state are in what is saved. Nothing of the program is called."""

    def __init__(self, torch: Any, names: dict[int, tuple[str, Any]]) -> None:
        self.torch = torch
        self.storages = {_storage(tensor) for _, tensor in names.values()} - {0}
        self.names = {name for name, _ in names.values()}
        self.generator_size = torch.get_rng_state().numel()
        self.parts: set[str] = set()
        self.budget = MAX_ITEMS

    def look(self, value: Any, key: str = "", depth: int = 0) -> None:
        """Looks through a value."""
        self.budget -= 1
        if self.budget < 0 or depth > MAX_DEPTH:
            return
        part = self._part(value)
        if part:
            self.parts.add(part)
        elif isinstance(value, self.torch.Tensor):
            self._tensor(value, key)
        elif isinstance(value, dict):
            self._mapping(value)
            for name, entry in list(value.items()):
                self.look(entry, str(name)[:200], depth + 1)
        elif isinstance(value, (list, tuple)):
            for entry in value[:256]:
                self.look(entry, key, depth + 1)
        elif hasattr(value, "state_dict") and hasattr(value, "__dict__"):
            for name, entry in list(vars(value).items())[:64]:
                self.look(entry, str(name)[:200], depth + 1)

    def _part(self, value: Any) -> str:
        """What an object is as a whole; empty where that is not known."""
        if isinstance(value, self.torch.nn.Module):
            return "model"
        if isinstance(value, self.torch.optim.Optimizer):
            return "optimizer"
        if isinstance(value, (list, tuple)):
            version = value[0] if len(value) == 3 and isinstance(value[0], int) else None
            is_python = version == random.getstate()[0] and isinstance(value[1], (list, tuple))
            is_numpy = len(value) == 5 and isinstance(value[0], str) and value[0] == "MT19937"
            return "generators" if is_python or is_numpy else ""
        return "scheduler" if hasattr(value, "last_epoch") and hasattr(value, "state_dict") else ""

    def _tensor(self, tensor: Any, key: str) -> None:
        if tensor.dtype == self.torch.uint8 and tensor.numel() == self.generator_size:
            self.parts.add("generators")
        elif plain_name(key) in self.names or _storage(tensor) in self.storages:
            self.parts.add("model")

    def _mapping(self, value: Any) -> None:
        if "param_groups" in value and "state" in value:
            self.parts.add("optimizer")
        if "last_epoch" in value and ("_step_count" in value or "base_lrs" in value or "_last_lr" in value):
            self.parts.add("scheduler")
        if "scale" in value and "growth_factor" in value:
            self.parts.add("scaler")


def _storage(tensor: Any) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    try:
        return int(local.untyped_storage().data_ptr())
    except Exception:  # a tensor without a storage of its own
        return 0

"""All that a training must find again when it goes on from a checkpoint, as digests. Python 3.8, torch 2.1.

A part of the hook.
"""

from __future__ import annotations

from typing import Any, Iterable

from .additive_digest import Piece, Pieces, digest_all
from .digest import Unread, finite_or_text, local_tensor
from .digest_records import MAX_TENSORS, plain_name
from .held_values import HeldValues

MAX_GROUPS, MAX_SETTINGS = 32, 24


class TrainingState:
    """Reads the state of one process's training. ``collection``: its modules and optimizers."""

    def __init__(self, torch: Any, collection: Any) -> None:
        self.torch, self.collection = torch, collection
        self.pieces, self.held = Pieces(torch), HeldValues(torch)
        self.schedulers: list[Any] = []
        self.scalers: list[Any] = []
        self.averages: list[Any] = []
        """Weak references, in the order in which they were made."""

    def names(self) -> dict[int, tuple[str, Any]]:
        """By the parameter's id: its name, and itself."""
        names: dict[int, tuple[str, Any]] = {}
        for name, tensor in self.collection.called.named():
            names.setdefault(id(tensor), (name, tensor))
        return names

    def known(self) -> list[Any]:
        """All tensors that `read` digests."""
        tensors = [tensor for _, tensor in self.names().values()]
        tensors += [tensor for _, tensor in self.collection.called.buffers()]
        tensors += [tensor for _, tensor, _ in self._averages()[1]]
        for optimizer in self.collection.ordered_optimizers():
            for state in list(optimizer.state.values()):
                tensors += state.values() if isinstance(state, dict) else ()
        return tensors

    def read(self, with_buffers: bool = True) -> dict[str, Any]:
        """The parameters, buffers, and what the optimizers keep, schedulers and scalers."""
        modules = self.collection.called.modules()
        self.pieces.learn(modules)
        names = self.names()
        unread: list[str] = []
        model = self._pieces(((name, tensor, None) for name, tensor in names.values()), unread)
        rows = self.collection.called.buffers() if with_buffers else []
        buffers = self._pieces(((*row, None) for row in rows), unread)
        states, numbers, settings, held = self._optimizers(names, unread)
        averaged, rows = self._averages()
        copies = self.held.tensors([name for name, _ in names.values()])
        averages = self._pieces([*rows, *((name, tensor, None) for name, tensor in copies)][:MAX_TENSORS], unread)
        digests = digest_all(self.torch, [*model, *states, *buffers, *averages])
        named = (item for root in modules for item in root.named_modules())
        evaluating = [plain_name(name) for name, module in named if not module.training and not module._modules]
        return {
            "model": {name: digests[name] for name, _ in model},
            "trained": sorted(held)[:MAX_TENSORS],
            "frozen": [name for name, tensor in names.values() if not tensor.requires_grad],
            "evaluating": evaluating[:MAX_TENSORS],
            "grads": _have_finite_gradients(tensor for _, tensor in names.values()),
            "buffers": {name: digests[name] for name, _ in buffers},
            "states": {name: digests[name] for name, _ in states},
            "numbers": numbers,
            "groups": settings,
            "schedulers": self._schedulers(),
            "scalers": self._scalers(),
            "averaged": averaged,
            "averages": {name: digests[name] for name, _ in averages},
            "unread": unread[:16],
        }

    def _pieces(self, rows: Iterable[tuple[str, Any, Any]], unread: list[str]) -> list[tuple[str, Piece]]:
        pieces = []
        for name, parameter, value in rows:
            try:
                piece = self.pieces.of(parameter, value)
                if piece.local.numel():
                    pieces.append((name, piece))
            except Exception as error:  # what cannot be read is reported; all the rest is read
                unread.append(f"{name}: {error if isinstance(error, Unread) else type(error).__name__}"[:160])
        return pieces

    def _optimizers(
        self, names: dict[int, tuple[str, Any]], unread: list[str]
    ) -> tuple[list[tuple[str, Piece]], dict[str, Any], list[dict[str, Any]], set[str]]:
        rows: dict[str, tuple[str, Any, Any]] = {}
        numbers: dict[str, Any] = {}
        settings: list[dict[str, Any]] = []
        held: set[str] = set()
        optimizers = self.collection.ordered_optimizers()
        # One that was made later for the same parameters has taken the place of the earlier one.
        owners = {
            id(tensor): optimizer
            for optimizer in optimizers
            for group in optimizer.param_groups
            for tensor in group["params"]
        }
        for optimizer in optimizers:
            count = 0
            for group in optimizer.param_groups:
                if not any(owners[id(tensor)] is optimizer for tensor in group["params"]):
                    continue
                if len(settings) < MAX_GROUPS:
                    settings.append(_settings(group))
                for tensor in group["params"]:
                    name = names.get(id(tensor), (f"optimizer tensor {count}", None))[0]
                    count += 1
                    held.add(name)
                    if id(tensor) not in names and len(rows) < 4 * MAX_TENSORS:  # a copy in the place of parameters
                        label = f"elements of {name}"
                        rows[label] = (label, tensor, tensor)
                    for key, value in (optimizer.state.get(tensor) or {}).items():
                        label = f"{key} of {name}"[:160]
                        if _is_number(value):
                            numbers[label] = finite_or_text(value)
                        elif hasattr(value, "untyped_storage") and len(rows) < 4 * MAX_TENSORS:
                            alike = tuple(value.shape) == tuple(tensor.shape)
                            rows[label] = (label, tensor if alike else value, value)
        return self._pieces(rows.values(), unread), numbers, settings, held

    def _schedulers(self) -> list[dict[str, Any]]:
        states = []
        for reference in self.schedulers:
            scheduler = reference()
            if scheduler is not None and len(states) < MAX_GROUPS:
                states.append({"n": type(scheduler).__name__[:60], "at": int(getattr(scheduler, "last_epoch", -1))})
        return states

    def _averages(self) -> tuple[list[int], list[tuple[str, Any, Any]]]:
        """Of each average, the number of its updates; and its tensors that are to be digested."""
        counts: list[int] = []
        rows: list[tuple[str, Any, Any]] = []
        for reference in self.averages:
            average = reference()
            if average is None or len(counts) >= 4:
                continue
            named = [*average.module.named_parameters(), *average.module.named_buffers()]
            rows += [(f"{len(counts)}:{plain_name(name)}", tensor, None) for name, tensor in named]
            counts.append(int(average.n_averaged))
        return counts, rows[:MAX_TENSORS]

    def _scalers(self) -> list[dict[str, Any]]:
        states = []
        for reference in self.scalers:
            scaler = reference()
            if scaler is not None and scaler.is_enabled() and len(states) < 4:
                states.append({"scale": finite_or_text(scaler.get_scale()), "good": int(scaler._get_growth_tracker())})
        return states


def _have_finite_gradients(tensors: Iterable[Any]) -> bool:
    """Also not where a loss scaler has left out a step for them."""
    gradients = [local_tensor(tensor.grad) for tensor in tensors if tensor.grad is not None]
    return bool(gradients) and all(bool(gradient.isfinite().all()) for gradient in gradients)


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return True
    return hasattr(value, "untyped_storage") and value.dim() == 0 and type(value).__name__ == "Tensor"


def _settings(group: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in group.items():
        if key == "params" or len(settings) >= MAX_SETTINGS:
            continue
        if hasattr(value, "untyped_storage") and value.numel() == 1:
            value = float(value)
        if value is None or isinstance(value, (bool, int, str)):
            settings[str(key)[:40]] = value if not isinstance(value, str) else value[:80]
        elif isinstance(value, float):
            settings[str(key)[:40]] = finite_or_text(value)
        elif isinstance(value, (list, tuple)) and all(isinstance(part, (int, float)) for part in value):
            settings[str(key)[:40]] = [finite_or_text(part) for part in value[:8]]
    return settings

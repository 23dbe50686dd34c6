"""All that a training must find again when it goes on from a checkpoint, as digests. Python 3.8, torch 2.1.

Digests add up: those of a tensor's shards are together that of the whole one. A digest is linear in the words of a
tensor and in their places in the whole one, modulo 2**64. So a state is compared with an earlier one also where another
number of ranks holds it. Nothing here communicates or changes a tensor. A part of the hook.
"""

from __future__ import annotations

from typing import Any, Iterable

from .digest import Unread, finite_or_text, local_tensor
from .digest_records import MAX_TENSORS, plain_name
from .held_values import HeldValues
from .shard_holders import is_flat

ROW = 1024
HOST_PART, DEVICE_PART = 1 << 18, 1 << 22
"""Elements that are summed at once, in a CPU's cache and on a device: so many times 8 bytes are needed for it."""
SUMS, PLACES = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd factors of the sum of all words, and of the sum of words times places."""
MASK = (1 << 64) - 1


class Piece:
    """A tensor of this rank, and where it lies in the whole one."""

    def __init__(self, local: Any, shape: Any, offsets: Any = None, start: int = 0) -> None:
        """``offsets``: of each dimension; None: it is a row of elements that begins at ``start``."""
        self.local, self.shape, self.offsets, self.start = local, tuple(shape), offsets, start

    @property
    def count(self) -> int:
        total = 1
        for size in self.shape:
            total *= int(size)
        return total


class Pieces:
    """Where this rank's parameters lie in the whole ones: plain tensors, DTensors, those of FSDP's first kind and of
    ZeRO's third stage.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.rows: dict[int, tuple[int, int]] = {}
        """Of a parameter that is a part of a flat one: where its row begins, and elements of the whole."""

    def learn(self, roots: Iterable[Any]) -> None:
        """Asks FSDP's wrappers."""
        self.rows = {}
        for root in roots:
            for module in root.modules():
                flat = getattr(getattr(module, "_handle", None), "flat_param", None)
                infos = getattr(flat, "_shard_param_infos", None)
                if flat is None or infos is None:
                    continue
                for tensor, info, count in zip(getattr(flat, "_params", None) or (), infos, flat._numels):
                    start = info.intra_param_start_idx if info.in_shard else 0
                    self.rows[id(tensor)] = int(start), int(count)

    def of(self, parameter: Any, value: Any = None) -> Piece:
        """The piece of ``parameter``, or of ``value`` that is kept for each of its elements. Raises: Unread."""
        torch = self.torch
        value = parameter if value is None else value
        if id(parameter) in self.rows:
            start, count = self.rows[id(parameter)]
            return Piece(local_tensor(value), (count,), None, start)
        if is_flat(parameter):
            raise Unread("flat")
        if value is parameter and getattr(parameter, "ds_tensor", None) is not None and not parameter.numel():
            return _zero_piece(parameter)
        placements = tuple(getattr(parameter, "placements", ()))
        if not placements:
            local = local_tensor(value)
            return Piece(local, local.shape)
        if any(placement.is_partial() for placement in placements):
            raise Unread("partial")
        utilities = torch.distributed.tensor._utils
        shape, offsets = utilities.compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, placements
        )
        local = local_tensor(value)
        if tuple(local.shape) != tuple(shape):
            raise Unread("padded")
        return Piece(local, parameter.shape, tuple(map(int, offsets)))


def _zero_piece(parameter: Any) -> Piece:
    """This rank's row of a parameter that ZeRO of stage 3 holds in parts: DeepSpeed, partition_parameters.py, where the
    last part is padded.
    """
    part, count = parameter.ds_tensor, int(parameter.ds_numel)
    start = int(parameter.ds_zero_partition_rank) * int(part.ds_numel)
    return Piece(part.detach().reshape(-1)[: max(0, count - start)], (count,), None, start)


def digest_all(torch: Any, pieces: Iterable[tuple[str, Piece]]) -> dict[str, Any]:
    """By name: digest, type, elements of the whole tensor; of a shard its own elements and its place, too.

    Waits for the device once.
    """
    sums: list[Any] = []
    rows: list[tuple[str, Piece]] = []
    with torch.no_grad():
        for name, piece in pieces:
            sums += _sums(torch, piece)
            rows.append((name, piece))
        numbers = _numbers(torch, sums)
    digests: dict[str, Any] = {}
    for place, (name, piece) in enumerate(rows):
        total = (numbers[2 * place] * SUMS + numbers[2 * place + 1] * PLACES) & MASK
        row: list[Any] = ["%016x" % total, str(piece.local.dtype).replace("torch.", ""), piece.count]
        if piece.local.numel() != piece.count:
            row += [piece.local.numel(), list(piece.offsets or (piece.start,))]
        digests[name] = row
    return digests


def _numbers(torch: Any, sums: list[Any]) -> list[int]:
    by_device: dict[Any, list[int]] = {}
    for place, value in enumerate(sums):
        by_device.setdefault(value.device, []).append(place)
    numbers = [0] * len(sums)
    for places in by_device.values():
        for place, number in zip(places, torch.stack([sums[place].reshape(()) for place in places]).tolist()):
            numbers[place] = int(number)
    return numbers


def _sums(torch: Any, piece: Piece) -> list[Any]:
    """The sum of all words, and of words times their places in the whole tensor."""
    integers = _as_integers(torch, piece.local)
    offsets = piece.offsets
    if offsets is None or tuple(piece.local.shape[1:]) == piece.shape[1:]:
        width = piece.count // max(piece.shape[0], 1) if piece.shape else 1
        start = piece.start if offsets is None else offsets[0] * width
        total, placed = _row_sums(torch, integers)
        return [total, placed + total * start]
    total = integers.sum(dtype=torch.int64)
    placed, stride = torch.zeros((), dtype=torch.int64, device=integers.device), 1
    for dimension in reversed(range(integers.dim())):
        others = [other for other in range(integers.dim()) if other != dimension]
        marginal = integers.sum(others, dtype=torch.int64) if others else integers.to(torch.int64)
        steps = torch.arange(len(marginal), dtype=torch.int64, device=integers.device) + offsets[dimension]
        placed = placed + (marginal * steps).sum() * stride
        stride *= int(piece.shape[dimension])
    return [total, placed]


def _row_sums(torch: Any, integers: Any) -> tuple[Any, Any]:
    flat = integers.reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    placed = torch.zeros((), dtype=torch.int64, device=flat.device)
    size = HOST_PART if flat.device.type == "cpu" else DEVICE_PART
    for start in range(0, len(flat), size):
        part = flat[start : start + size].to(torch.int64)
        length = len(part) // ROW * ROW
        rest = part[length:]
        amount = rest.sum()
        at = (rest * torch.arange(length, len(part), dtype=torch.int64, device=flat.device)).sum()
        if length:
            rows = part[:length].view(-1, ROW)
            across, down = rows.sum(0), rows.sum(1)
            amount = amount + down.sum()
            at = at + (across * torch.arange(ROW, dtype=torch.int64, device=flat.device)).sum()
            at = at + (down * torch.arange(len(down), dtype=torch.int64, device=flat.device)).sum() * ROW
        total, placed = total + amount, placed + at + amount * start
    return total, placed


def _as_integers(torch: Any, tensor: Any) -> Any:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    return tensor.view(kinds[tensor.element_size()])


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

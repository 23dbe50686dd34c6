"""Digests that add up: those of a tensor's shards are together that of the whole one. Python 3.8, torch 2.1.

A digest is linear in the words of a tensor and in their places in the whole one, modulo 2**64. So a state is compared
with an earlier one also where another number of ranks holds it. Nothing here communicates or changes a tensor. A part
of the hook.
"""

from __future__ import annotations

from typing import Any, Iterable

from .digest import Unread, local_tensor
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

"""Tensors and floats in the form in which events carry them."""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Iterable
from typing import Any

from doctor.smoke.programs.worker.libraries import torch


def digest(data: bytes | torch.Tensor) -> int:
    """A 64-bit checksum of bytes or of a tensor's bytes: equal data, equal digest."""
    if not isinstance(data, bytes):
        data = tensor_bytes(data)
    return zlib.crc32(data) | zlib.adler32(data) << 32


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes. Does not need NumPy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def finite_or_none(value: Any) -> float | None:
    """A float that JSON can hold; None for what is not finite."""
    value = float(value)
    return value if math.isfinite(value) else None


def relative_distance(values: torch.Tensor, expected: torch.Tensor) -> float | None:
    """The norm of the difference, as a share of the expected norm; None where that is 0, or something is not finite.

    Of numbers whose squares overflow, the largest difference.
    """
    norm, apart = float(expected.norm()), values - expected
    share = finite_or_none(apart.norm() / norm) if norm else None
    return finite_or_none(apart.abs().max()) if share is None and norm else share


def json_number(element: Any) -> float | str:
    """A float, or ``"nan"``, ``"inf"``, ``"-inf"``, which JSON has no number for."""
    value = float(element)
    return value if math.isfinite(value) else str(value)


def matmul_error(device: torch.device) -> float | None:
    """The relative error of a matrix product: some devices multiply float32 with fewer bits."""
    first, second = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = first @ second
    computed = (first.float().to(device) @ second.float().to(device)).cpu().double()
    return finite_or_none(((computed - exact).abs() / exact).max())


def exceeds(limit: float, errors: Iterable[float | None]) -> bool:
    """Whether any of these distances from the serial training is larger."""
    return any(error is not None and error > limit for error in errors)

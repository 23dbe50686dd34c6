"""Digests of a training program's tensors and values: equal values, equal digest. Python 3.8, torch 2.1.

Nothing here communicates, draws a random number or changes a tensor. A part of `doctor.watch.probe` and of the hook.
"""

from __future__ import annotations

import base64
import ctypes
import math
import random
import sys
import zlib
from typing import Any

try:
    import torch
except Exception:  # a broken torch is no matter of doctor: what needs none still works
    torch = None

SMALL = 16 << 10
"""Bytes up to which a tensor in host memory is digested by CRC-32 and Adler-32; above, by a weighted sum of words."""
MAX_INDICES = 2048
"""Indices that are written one by one; more of them become a bitmap."""
_MT_WORDS = 624 * 4
"""Bytes of the words of a Mersenne Twister of numpy."""
ROW = 1024
"""Words of a row of the weighted sum."""


class Unread(Exception):
    """A value that has no digest, and why."""


def local_tensor(tensor: Any) -> Any:
    """The strided tensor on this rank that holds the values. Raises: Unread where there is none."""
    for _ in range(4):
        kind = type(tensor)
        if kind is torch.Tensor or kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            break
        if hasattr(tensor, "_local_tensor"):
            tensor = tensor._local_tensor
        elif hasattr(tensor, "elem") and hasattr(tensor, "wait"):  # the pending result of a functional collective
            tensor = tensor.wait()
        else:
            raise Unread(kind.__name__)
    else:
        raise Unread("nested")
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise Unread("layout")
    if tensor.device.type == "meta":
        raise Unread("meta")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor


def tensor_digest(tensor: Any) -> Any:
    """A 64-bit digest of a strided tensor's values: text of a tensor in host memory, else a number on its device.

    Equal bytes in equal order, equal digest. Any one changed element changes it; of many changes at once, one in 2**32
    goes unnoticed up to SMALL bytes, and of those above it less.
    """
    with torch.no_grad():
        if not tensor.is_contiguous():
            tensor = tensor.detach().contiguous()
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and size <= SMALL:
            address = tensor.data_ptr()
            if size and not address:
                raise Unread("freed")
            data = ctypes.string_at(address, size)
            return "c%016x" % (zlib.crc32(data) | zlib.adler32(data) << 32)
        if size and not tensor.data_ptr():
            raise Unread("freed")
        word = _word_sum(tensor.detach(), size)
        return hex_word(int(word)) if tensor.device.type == "cpu" else word


def _word_sum(tensor: Any, size: int) -> Any:
    """The weighted sum of all words, modulo 2**64, of each word's row and column: a number on the tensor's device."""
    flat = tensor.reshape(-1)
    raw = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)
    if raw.storage_offset() % 8:
        raw = raw.clone()
    length = size // (8 * ROW) * 8 * ROW
    rest = raw[length:].to(torch.int64)
    total = (rest * _weights(len(rest), tensor.device)).sum() + size
    if length:
        rows = raw[:length].view(torch.int64).view(-1, ROW)
        total = total * 1000003 + (rows.sum(0) * _weights(ROW, tensor.device)).sum()
        total = total * 1000003 + (rows.sum(1) * _weights(len(rows), tensor.device)).sum()
    return total


def _weights(count: int, device: Any) -> Any:
    """Odd numbers, one for each position."""
    return (torch.arange(count, dtype=torch.int64, device=device) * 0x9E3779B97F4A7C15 % (1 << 62)) * 2 + 1


def value_digest(value: Any) -> Any:
    """The digest of a tensor, an array, text, or numbers. Raises: Unread where it has none."""
    if torch is not None and isinstance(value, torch.Tensor):
        return tensor_digest(local_tensor(value))
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        data = value.tobytes()
    elif isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif value is None or isinstance(value, (str, int, float, list, tuple, range)):
        data = repr(value).encode("utf-8", "replace")
    else:
        raise Unread(type(value).__name__)
    return "c%016x" % (zlib.crc32(data) | zlib.adler32(data) << 32)


def shape_of(value: Any) -> list[int]:
    """The sizes of a tensor or an array; empty for other values."""
    return [int(size) for size in getattr(value, "shape", ())][:16]


def hex_word(word: int) -> str:
    """A number of `tensor_digest` as text, as it is written."""
    return "w%016x" % (word & (1 << 64) - 1)


def encode_indices(indices: list[int]) -> dict[str, Any]:
    """Indices as they are written: one by one, or as a compressed bitmap; only their number where both are too long."""
    fields: dict[str, Any] = {"count": len(indices), "distinct": len(set(indices))}
    if len(indices) <= MAX_INDICES:
        fields["ix"] = indices
    elif min(indices) >= 0 and max(indices) < 1 << 26:
        bits = bytearray(max(indices) // 8 + 1)
        for index in indices:
            bits[index >> 3] |= 1 << (index & 7)
        packed = zlib.compress(bytes(bits), 1)
        if len(packed) <= 1 << 20:
            fields["bits"] = base64.b64encode(packed).decode("ascii")
    return fields


def raw_generators(torch_module: Any) -> dict[str, Any]:
    """The states of this process's generators, as they are; cheap enough for every step."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch_module.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states["numpy"] = _numpy_state(numpy)
    for name in ("cuda", "npu"):
        device = getattr(torch_module, name, None)
        if device is not None and device.is_initialized() and device.is_available():
            states["device"] = device.get_rng_state()
    return states


def _numpy_state(numpy: Any) -> Any:
    """Of numpy's global generator; of the usual one its words and its place as they lie in memory: 50 times as quick.

    Source: numpy numpy/random/src/mt19937/mt19937.h, ``mt19937_state``: 624 words, then an int.
    """
    generator = getattr(getattr(getattr(numpy.random, "mtrand", None), "_rand", None), "_bit_generator", None)
    if type(generator).__name__ != "MT19937":
        return numpy.random.get_state()
    return ctypes.string_at(generator.ctypes.state_address, _MT_WORDS + 4)


def generator_digests(states: dict[str, Any]) -> dict[str, str]:
    """The same, as digests by the generator's name."""
    return {name: generator_digest(name, state) for name, state in states.items()}


def generators(torch_module: Any) -> dict[str, str]:
    """Those of now."""
    return generator_digests(raw_generators(torch_module))


def generator_digest(name: str, state: Any) -> str:
    """Of one generator's state, as its own functions give and take it."""
    if name == "python":
        return "%08x" % zlib.crc32(repr(tuple(state)).encode())
    if name == "numpy":
        if isinstance(state, dict):
            state = (state.get("bit_generator"), state["state"]["key"], state["state"]["pos"])
        if isinstance(state, bytes):
            state = ("MT19937", state[:_MT_WORDS], int.from_bytes(state[_MT_WORDS:], sys.byteorder))
        return f"{value_digest(state[1])}.{int(state[2])}"
    return str(tensor_digest(local_tensor(state)))


def finite_or_text(value: Any) -> Any:
    """A float; ``nan``, ``inf`` or ``-inf``, which JSON has no number for, as text."""
    value = float(value)
    return value if math.isfinite(value) else str(value)

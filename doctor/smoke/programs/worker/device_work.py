"""What the device test does on a device: matrix products in each type, and copies, each with a check of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.values import digest

PRODUCTS_PER_PIECE = 8
"""So that waiting for the device takes next to nothing of the time."""
EXACT_REPEATS = 3
"""Products of whole numbers, all compared."""
NOT_SUPPORTED = ("not implemented", "not support", "unsupported", "not_supported", "out of memory", "no attribute")
"""What an error says when a device lacks a type or the memory; any other ends the rank, as in the job."""


LARGEST_FACTORS = {"float32": (255, 255), "float16": (7, 1), "bfloat16": (1, 1), "int8": (127, 127)}
"""By type: the largest element of either factor. Sums of 4,096 products of these are whole numbers that the type of the
result holds exactly: below 2**24 in float32 (also where it multiplies as TF32 or HF32), 2**11 in float16, 2**8 in
bfloat16, 2**31 in the int32 of int8. They are ten and more standard deviations away from that (eight in bfloat16)."""
ROWS_AT_A_TIME = 512


def whole_numbers(size: int, largest: int, seed: int) -> torch.Tensor:
    """A square matrix from -largest to largest, equal on every host; with 1 as the largest half of it is 0."""
    generator = torch.Generator().manual_seed(seed)
    if largest > 1:
        return torch.randint(-largest, largest + 1, (size, size), generator=generator, dtype=torch.int16)
    drawn = torch.randint(0, 4, (size, size), generator=generator, dtype=torch.int16)
    return (drawn == 1).to(torch.int16) - (drawn == 2).to(torch.int16)


def describe_wrong(product: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> dict[str, Any] | None:
    """Where the product of two matrices of whole numbers is wrong, or None where it is right.

    Freivalds' way: product x vector against first x (second x vector), all exact in float64, so that it costs next to
    nothing. A single wrong element never passes, as no element of the vector is 0.
    """
    vector = torch.randint(1, 8, (second.shape[1],), generator=torch.Generator().manual_seed(7)).double()
    through = torch.cat([torch.mv(rows.double(), vector) for rows in second.split(ROWS_AT_A_TIME)])
    for start in range(0, len(product), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        differs = torch.mv(product[rows].double(), vector) != torch.mv(first[rows].double(), through)
        if bool(differs.any()):
            row = start + int(differs.nonzero()[0])
            return describe_row(row, product[row], first[row], second)
    return None


def describe_row(row: int, result: torch.Tensor, factors: torch.Tensor, second: torch.Tensor) -> dict[str, Any]:
    """The first wrong element of a row, and how many of the row are wrong."""
    expected = torch.mv(second.double().t(), factors.double())
    columns = (result.double() != expected).nonzero().flatten().tolist()
    column = columns[0] if columns else 0
    return {
        "row": row,
        "column": column,
        "elements": len(columns),
        "expected": float(expected[column]),
        "got": str(float(result[column])),
    }


class DeviceWork:
    """One kind of work: ``run`` is timed, ``is_right`` compares its last result."""

    def __init__(
        self, amount: float, run: Callable[[], None], is_right: Callable[[], bool], fingerprint: int | None = None
    ) -> None:
        self.amount, self.run, self.is_right, self.fingerprint = amount, run, is_right, fingerprint


def multiply(first_factor: torch.Tensor, second_factor: torch.Tensor, out: torch.Tensor) -> None:
    """One product; of int8 in int32."""
    if first_factor.dtype == torch.int8:
        torch._int_mm(first_factor, second_factor, out=out)
    else:
        torch.mm(first_factor, second_factor, out=out)


def report_wrong(ctx: RankContext, test: str, comparison: str, wrong: int, compared: int, **where: Any) -> None:
    """``comparison``: exact, repeat or copy; ``where``: the first wrong element of an exact product."""
    ctx.emit("miscomputed", test=test, comparison=comparison, wrong=wrong, compared=compared, **where)


def product_work(ctx: RankContext, name: str) -> DeviceWork:
    """Products in one type. Whole numbers first, against their exact product; then numbers of all bits, repeated."""
    # Rows and columns: a product takes a fraction of a millisecond.
    dtype, size = getattr(torch, name), 256 if ctx.device.type == "cpu" else 4096
    out_type = torch.int32 if name == "int8" else dtype
    first = torch.zeros((size, size), dtype=out_type, device=ctx.device)
    again = torch.zeros_like(first)
    check_exact(ctx, name, first, again)
    generator = torch.Generator().manual_seed(11)
    if name == "int8":
        factors = [whole_numbers(size, 127, seed) for seed in (3, 4)]
    else:
        factors = [torch.randn((size, size), generator=generator) for _ in range(2)]
    first_factor, second_factor = (factor.to(dtype).to(ctx.device) for factor in factors)
    multiply(first_factor, second_factor, first)
    ctx.comm.synchronize()

    spare, pieces = torch.zeros_like(first), [0]

    def run() -> None:
        # Each of them is the one that is compared, by turns: an error may come every so many products.
        pieces[0] += 1
        for number in range(PRODUCTS_PER_PIECE):
            multiply(first_factor, second_factor, again if number == pieces[0] % PRODUCTS_PER_PIECE else spare)
        ctx.comm.synchronize()

    return DeviceWork(2.0 * size**3 * PRODUCTS_PER_PIECE, run, lambda: torch.equal(first, again), digest(first))


def check_exact(ctx: RankContext, name: str, first: torch.Tensor, again: torch.Tensor) -> None:
    """Reports products of whole numbers that differ from the exact one."""
    size, wrong = len(first), 0
    where: dict[str, Any] = {}
    factors = [whole_numbers(size, largest, 1 + seed) for seed, largest in enumerate(LARGEST_FACTORS[name])]
    on_device = [factor.to(getattr(torch, name)).to(ctx.device) for factor in factors]
    for repeat in range(EXACT_REPEATS):
        out = again if repeat else first
        multiply(on_device[0], on_device[1], out)
        ctx.comm.synchronize()
        if repeat and torch.equal(first, again):
            wrong += bool(where)
            continue
        error = describe_wrong(out.cpu(), factors[0], factors[1])
        if error:
            wrong, where = wrong + 1, where or error
    if where:
        report_wrong(ctx, f"product {name}", "exact", wrong, EXACT_REPEATS, **where)


def pattern(ctx: RankContext, nbytes: int, rank: int) -> torch.Tensor:
    """Bits of every kind on the host, for copies that come from this rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    block = torch.randint(-(2**31), 2**31 - 1, (min(nbytes // 4, 1 << 20),), generator=generator, dtype=torch.int32)
    return block.repeat(max(1, nbytes // 4 // len(block)))


def memory_work(ctx: RankContext) -> DeviceWork:
    """A copy within the device's memory: each byte is read and written, of far more than its caches hold."""
    source = pattern(ctx, 16 << 20 if ctx.device.type == "cpu" else 512 << 20, ctx.rank).to(ctx.device)
    target = torch.zeros_like(source)

    def run() -> None:
        target.copy_(source)
        ctx.comm.synchronize()

    return DeviceWork(2.0 * source.numel() * 4, run, lambda: torch.equal(source, target), None)


def host_buffer(ctx: RankContext) -> torch.Tensor:
    """In memory that the device reads by itself, where the driver gives such."""
    data = pattern(ctx, 8 << 20 if ctx.device.type == "cpu" else 256 << 20, ctx.rank)
    if ctx.device.type == "cpu":
        return data
    try:
        return data.pin_memory()
    except (RuntimeError, NotImplementedError):
        return data


def transfer_work(ctx: RankContext, to_device: bool) -> DeviceWork:
    """Copies from the host's memory to the device's, or back."""
    on_host = host_buffer(ctx)
    on_device = on_host.to(ctx.device).clone()
    returned = host_buffer(ctx)
    returned.zero_()
    if to_device:
        on_device.zero_()

    def run() -> None:
        if to_device:
            on_device.copy_(on_host)
        else:
            returned.copy_(on_device)
        ctx.comm.synchronize()

    def is_right() -> bool:
        return bool(torch.equal(on_device.cpu() if to_device else returned, on_host))

    return DeviceWork(on_host.numel() * 4.0, run, is_right)


def is_unsupported(error: BaseException) -> bool:
    """Whether the device lacks the type or the memory, and is not at fault."""
    text = str(error).lower()
    return isinstance(error, NotImplementedError) or any(message in text for message in NOT_SUPPORTED)


DEVICE_WORK: dict[str, Callable[[RankContext], DeviceWork]] = {
    **{f"product {name}": (lambda ctx, name=name: product_work(ctx, name)) for name in LARGEST_FACTORS},  # type: ignore[misc]
    "memory": memory_work,
    "host to device": lambda ctx: transfer_work(ctx, to_device=True),
    "device to host": lambda ctx: transfer_work(ctx, to_device=False),
}
"""By the name of the test, in the order in which all ranks do them."""

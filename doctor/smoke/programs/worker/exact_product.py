"""Matrix products whose exact result is known: of whole numbers so small that no type and no order of adding rounds."""

from __future__ import annotations

from typing import Any

from doctor.smoke.programs.worker.libraries import torch

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

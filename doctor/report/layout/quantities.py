"""Times, rates and sizes of figures, as the report says them."""

from __future__ import annotations

from doctor.report.layout.formatting import duration

BYTE_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def short_time(seconds: float) -> str:
    """Three digits: ``12 us``, ``1.83 ms``, ``2.1 s``."""
    if seconds < 0.001:
        return f"{seconds * 1000000.0:.0f} us"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else duration(seconds)


def byte_rate(*rates: float) -> str:
    """Bytes a second, all in the unit of the largest: ``1.2 / 2.4 GB/s``."""
    unit, name = next(((unit, name) for unit, name in BYTE_RATES if max(rates) >= unit), BYTE_RATES[-1])
    return f"{' / '.join(f'{rate / unit:.3g}' for rate in rates)} {name}"


def size(number: int) -> str:
    """Bytes in binary units: ``4 B``, ``64 KiB``, ``1 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number} B"

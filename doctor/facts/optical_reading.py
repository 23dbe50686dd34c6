"""What a module in a network port measures of itself, beside its own limits: light, temperature, voltage. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class OpticalReading(msgspec.Struct, frozen=True):
    """A measured value and the module's own thresholds."""

    value: float
    low: float
    high: float
    unit: str

    @property
    def is_outside(self) -> bool:
        """Whether the value is beyond a limit; a module without limits has the same number for both, 0."""
        return self.low < self.high and not self.low <= self.value <= self.high


def readings_outside(readings: Mapping[str, OpticalReading]) -> dict[str, dict[str, OpticalReading]]:
    """Those beyond a limit, by quantity and by name. The name is the quantity, with the number of the lane behind it.

    >>> dark = OpticalReading(-14.2, -10.4, 6.0, "dBm")
    >>> list(readings_outside({"Rx power 0": dark, "Rx power 2": dark, "Vcc": OpticalReading(3262.9, 0, 0, "mV")}))
    ['Rx power']
    """
    outside: dict[str, dict[str, OpticalReading]] = {}
    for name, reading in readings.items():
        if reading.is_outside:
            outside.setdefault(name.rstrip("0123456789 "), {})[name] = reading
    return outside

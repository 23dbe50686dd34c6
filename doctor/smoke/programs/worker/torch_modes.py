"""What torch applies to all tensors of a process. A rank whose process has changed it in mid-run says so itself.

Its peers would only see a call of another dtype, which either side of may be the wrong one, or numbers that are off.
"""

from __future__ import annotations

from collections.abc import Sequence

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.libraries import torch

DEFAULT_DTYPE = "get_default_dtype"


def autocast_is_enabled() -> bool:
    """On CPUs or on the kind of device that torch was built for."""
    on_cpus = getattr(torch, "is_autocast_cpu_enabled", bool)
    return bool(on_cpus() or torch.is_autocast_enabled())


class TorchModes:
    """The modes as they are now; `check` compares them with those of then."""

    def __init__(self) -> None:
        self.readers = {
            DEFAULT_DTYPE: torch.get_default_dtype,
            "get_default_device": lambda: torch.empty(0).device.type,
            "is_inference_mode_enabled": torch.is_inference_mode_enabled,
            "is_grad_enabled": torch.is_grad_enabled,
            "is_autocast_enabled": autocast_is_enabled,
        }
        self.begun_with = {name: read() for name, read in self.readers.items()}

    def check(self, names: Sequence[str] = ()) -> None:
        """Those of these names; none: all, which hold for the main thread alone. Raises: RuntimeError, of a change."""
        for name in names or self.readers:
            before, now = self.begun_with[name], self.readers[name]()
            if now != before:
                text = "torch.{0}() has changed from {1} to {2}: something in this process that is not the run did that"
                raise RuntimeError(filled(text, name, before, now))

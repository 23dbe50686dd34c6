"""Stands for torch_npu in a rehearsal: see `devices`."""

from devices import install  # type: ignore[import-not-found]

install("npu")

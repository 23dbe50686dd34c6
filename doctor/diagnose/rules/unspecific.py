"""Signatures that say less than others of the same process."""

from __future__ import annotations

UNSPECIFIC = frozenset({"program-failed", "python-exception", "ei9999-inner", "npu-507011"})
"""Signatures that report a failure without what failed: any other signature of the process says more."""

"""Where a process's digests go. Python 3.8, without torch: `doctor watch` itself reads it.

A part of `doctor.watch.probe` and of the hook.
"""

from __future__ import annotations

FOLDER = "DOCTOR_WATCH_PROBES"
"""The environment variable with the folder of the digests."""

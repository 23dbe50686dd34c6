"""Files as `doctor node` leaves them, for tests of what is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from doctor import __version__
from doctor.engine.fact import Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, Run

STARTED = "2026-01-01T12:00:00Z"
NO_ACCELERATORS = {
    "GpuCards": {"": Output(out='{"pci": 0, "driver": "", "tool": false}')},
    "NpuInventory": {
        "": Output(out='{"pci": {}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}')
    },
}
"""What a host without GPUs and NPUs answers."""


def run_of(
    name: str,
    *,
    own_name: str = "",
    addresses: Sequence[str] = (),
    observed_outputs: dict[str, dict[str, Output]] | None = None,
    **more: Any,
) -> Run:
    """The run of one host; ``addresses`` are its own, ``observed_outputs`` is more that it said, by fact."""
    interfaces = json.dumps([["lo", "127.0.0.1", 8], *(["eth0", address, 24] for address in addresses)])
    outputs = {"HostAddresses": {"": Output(out=interfaces)}, **(observed_outputs or {})}
    fields = {
        "source": "this host alone",
        "started": STARTED,
        "seconds": 0.5,
        "version": __version__,
        **more,
    }
    began = datetime.fromisoformat(str(fields["started"]).replace("Z", "+00:00")).timestamp()
    times: dict[str, Any] = {"sent": began, "began": began, "ended": began + 0.5, "received": began + 0.5}
    visit = Visit(**times, python="3.11.2", uid=0, name=own_name or name, local=True)
    return Run(SCHEMA, hosts={name: HostRecord(visit, outputs)}, **fields)


def line(run: Run) -> bytes:
    return msgspec.json.encode(run) + b"\n"


def leave(folder: Path, *runs: Run) -> Path:
    """One file a run, named after its host."""
    for run in runs:
        (name,) = run.hosts
        (folder / f"{name}.json").write_bytes(line(run))
    return folder

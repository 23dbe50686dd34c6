"""Whether the devices of this host say that its job has other hosts, too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.engine.evaluate import read_fact
from doctor.engine.record import HostRecord
from doctor.engine.texts import filled
from doctor.facts.gpu import GpuCards
from doctor.facts.npu import NpuInventory
from doctor.job.job_size import least_hosts


def more_ranks_than_devices(records: Iterable[HostRecord], environ: Mapping[str, str]) -> str:
    """Why a job of this host alone has other hosts: it has not so many devices. Empty where it has, or has none."""
    facts = [read_fact(record, fact) for record in records for fact in (NpuInventory, GpuCards)]
    counts = (len(fact.devices) if isinstance(fact, NpuInventory) else getattr(fact, "pci", 0) for fact in facts)
    least = least_hosts(environ, max(counts, default=0))
    return filled("the names of the job's hosts are unknown ({0} or more)", least) if least > 1 else ""

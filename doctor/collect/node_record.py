"""`doctor node`: the host's name, its state, and the record for `doctor merge`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import psutil

from doctor.collect.merge.merge_records import slurm_job_run
from doctor.collect.merge.node_records import HostIdentity, match_hosts
from doctor.engine.errors import CommandError
from doctor.engine.quantities import span_text
from doctor.engine.record import Run
from doctor.engine.run_writing import redact_run
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.environment.schedulers import scheduler_host_name
from doctor.facts.names import is_address
from doctor.hosts.nodeset import InventoryError, validate_host
from doctor.transport.this_host import addresses_of_interfaces


def host_name(name: str, fleet: Inventory | None, environ: Mapping[str, str]) -> str:
    """This host's name: as given, as Slurm says, as the fleet names it, or its own without the domain.

    Raises: CommandError.
    """
    node_name, chosen_name = os.uname().nodename, name or scheduler_host_name(environ)
    if not chosen_name and fleet:
        # whom of the fleet this host is, if any
        addresses = tuple(addresses_of_interfaces()) if any(map(is_address, fleet.hosts)) else ()
        chosen_name = next(iter(match_hosts(fleet.hosts, [HostIdentity(node_name, addresses=addresses)])), "")
    try:
        return validate_host(chosen_name or node_name.partition(".")[0], "--name" if name else "this host's own name")
    except InventoryError as error:
        raise CommandError(filled("{0}; expected --name NAME", error), 2 if name else 78) from None


def this_host_only(name: str, fleet: Inventory | None) -> Inventory:
    """An inventory of this host only, with the names of its fleet."""
    notes = (*(fleet.notes if fleet else ()), *host_state())
    slots, hosts = (fleet.slots, fleet.hosts) if fleet else ({}, (name,))
    return Inventory((name,), filled("this host alone, {0}", name), slots, True, notes, hosts)


def host_state() -> tuple[str, ...]:
    """The host's state in one line: shows a recent reboot, or load left by another job."""
    with suppress(psutil.Error, OSError, RuntimeError):
        memory, up = psutil.virtual_memory(), span_text(time.time() - psutil.boot_time())
        load = filled("load {0} on {1} CPUs", f"{os.getloadavg()[0]:.1f}", psutil.cpu_count())
        used = filled(
            "{0} of {1} GiB in use",
            f"{(memory.total - memory.available) / (1 << 30):.1f}",
            f"{memory.total / (1 << 30):.1f}",
        )
        return (filled("this host: up {0}, {1}, {2}", up, load, used),)
    return ()


def encode_record(run: Run, environ: Mapping[str, str]) -> bytes:
    """The run as one line, without secrets, and with the Slurm job that it was made in."""
    job_run = slurm_job_run(environ)
    run = (
        msgspec.structs.replace(run, probe_inputs=msgspec.structs.replace(run.probe_inputs, job=job_run))
        if job_run
        else run
    )
    return msgspec.json.encode(redact_run(run)) + b"\n"

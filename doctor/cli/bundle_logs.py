"""`doctor bundle-logs`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    HostOptions,
    SudoOption,
    WorkersOption,
    require_finite,
    ssh_options,
    validate_connection,
)
from doctor.cli.shared_options import expand_option_groups
from doctor.config.atomic_write import write_atomic_by
from doctor.diagnose.bundle.collect_bundle import collect_bundle
from doctor.diagnose.bundle.contents import Contents, bundle_summary
from doctor.diagnose.bundle.pack import Packing
from doctor.diagnose.bundle.support import BundleRequest
from doctor.diagnose.fetch.collect import DEFAULT_SINCE, default_places, parse_since, validate_places
from doctor.engine.errors import InputError, UsageError
from doctor.engine.sanitize import printable
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.connection import connected
from doctor.session.select_hosts import select_inventory
from doctor.transport.options import workers as usual_workers

NOT_WHOLE_EXIT_CODE = 12
_OTHER_ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".txz", ".tbz2", ".zst", ".xz", ".bz2")


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    logs: Annotated[
        list[str],
        typer.Option("--logs", metavar="PLACE", help="The job's logs on HOSTS, beside the usual places; repeatable."),
    ] = [],  # noqa: B006 - typer's way
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only files written since 30m, 2h, 1d; or all.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The archive, a .tar.gz.")] = None,
    devices_only: Annotated[
        bool, typer.Option("--devices-only", help="Only the state of the devices: before a job, for --before.")
    ] = False,
    before: Annotated[
        Path | None, typer.Option("--before", metavar="FILE", help="Take over the state of --devices-only.")
    ] = None,
    no_tools: Annotated[
        bool, typer.Option("--no-tools", help="Without msnpureport, asys and nvidia-bug-report.")
    ] = False,
    sos: Annotated[bool, typer.Option("--sos", help="Also sos report, which takes minutes.")] = False,
    python: Annotated[str, typer.Option(metavar="PATH", help="The job's Python interpreter on the hosts.")] = "python3",
    log_limit: Annotated[
        int, typer.Option("--log-limit", metavar="MIB", min=1, max=4096, help="Most MiB from one host.")
    ] = 128,
    total_limit: Annotated[
        int, typer.Option("--total-limit", metavar="MIB", min=1, max=65536, help="Most MiB from all hosts.")
    ] = 2048,
    as_json: Annotated[bool, typer.Option("--json", help="The table of contents on stdout.")] = False,
    connection: ConnectionOptions,
    sudo: SudoOption = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=5, max=7200, callback=require_finite, help="Seconds for each host.")
    ] = 600.0,
    workers: WorkersOption = 0,
) -> None:
    """Collect in one archive what a vendor's support asks for.

    The state of the devices, versions, CANN's plog folders, NCCL's and the job's logs, the environment, the kernel's
    messages, and what msnpureport, asys and nvidia-bug-report write, of each host. What looks like a secret is hidden;
    CONTENTS.txt says what was taken, from where, and what was left out and why. `doctor diagnose FILE` reads it.

    Exit codes: 0 written; 12 written, but not all of some host; 78 nothing to ask, or it cannot be written; 2 usage;
    130 interrupted.
    """
    validate_connection(connection)
    request = _request(logs, since, python, connection, sudo, timeout, log_limit)
    request = msgspec.structs.replace(request, tools=not no_tools, sos=sos, devices_only=devices_only)
    if devices_only and (before or sos or logs):
        raise UsageError(
            "--devices-only takes nothing but the state of the devices: expected it without --before, --sos, --logs"
        )
    path = out or Path(time.strftime("doctor-logs-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    _require_writable(path)
    inventory = select_inventory(hosts.selection_by(connection))
    if inventory.local and not connection.within:
        request = msgspec.structs.replace(request, places=validate_places(logs, is_here=True))

    def pack(contents: Contents, packing: Packing) -> None:
        try:
            write_atomic_by(path, lambda file: packing.write(contents, file))
        except OSError as error:
            raise InputError(
                filled("--out {0}: {1}; nothing was written", printable(str(path)), error.strerror)
            ) from None

    with (
        connected(inventory, connection.transport, ssh_options(connection)) as transport,
        closing(ProgressLine(len(inventory.hosts), sys.stderr)) as progress,
    ):
        contents = collect_bundle(
            inventory,
            transport,
            request,
            total_limit << 20,
            workers or usual_workers(len(inventory.hosts)),
            pack,
            lambda host, answered: progress.count(answered),
            before,
        )
    text = msgspec.json.encode(contents).decode() if as_json else bundle_summary(contents, path)
    write_stdout(text)
    raise typer.Exit(0 if contents.is_whole else NOT_WHOLE_EXIT_CODE)


def _request(
    logs: list[str], since: str, python: str, connection: ConnectionOptions, sudo: bool, timeout: float, limit: int
) -> BundleRequest:
    """Raises: UsageError."""
    if not python or not python.isprintable() or len(python) > 1000 or python.startswith("-"):
        raise UsageError(filled("--python {0}: expected the path of an interpreter", f"{printable(python, 80)!r}"))
    return BundleRequest(
        places=validate_places(logs),
        usual_places=default_places(os.environ, os.getcwd()),
        since=parse_since(since) if since else DEFAULT_SINCE,
        limit=limit << 20,
        seconds=timeout,
        python=python,
        within=tuple(shlex.split(connection.within)),
        sudo=sudo,
    )


def _require_writable(path: Path) -> None:
    """Raises: InputError where the archive could not be written in the end; UsageError for the name of another kind."""
    folder = path.parent
    if path.name.lower().endswith(_OTHER_ARCHIVES):
        raise UsageError(
            filled("--out {0}: the archive is a tar.gz; expected a name such as logs.tar.gz", printable(str(path)))
        )
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(filled("--out {0}: expected a file in a folder that can be written", printable(str(path))))

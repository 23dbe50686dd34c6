"""Collects a bundle: one session to each host, all at once, each bounded in bytes and in time."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from doctor import __version__
from doctor.diagnose.bundle.contents import SCHEMA, Contents
from doctor.diagnose.bundle.pack import Packing
from doctor.diagnose.bundle.read import state_before
from doctor.diagnose.bundle.spool import HostSpool, Room
from doctor.diagnose.bundle.support import BundleRequest
from doctor.diagnose.read.sources import SKIPPED_SUFFIXES
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.environment.inventory import Inventory
from doctor.remote.bootstrap import python_problem
from doctor.remote.request import marked_text, new_marker
from doctor.transport import Transport, TransportError
from doctor.transport.program import HostProgram, start_session, visit_hosts

BUNDLER = HostProgram("doctor.diagnose.bundler.bundler", packed=True)
MARGIN = 20.0
"""Seconds behind the program's own limit after which its session is closed: it ends a tool and sends its rest."""


def collect_bundle(
    inventory: Inventory,
    transport: Transport,
    request: BundleRequest,
    total: int,
    workers: int,
    pack: Callable[[Contents, Packing], None],
    progress: Callable[[str, bool], None] = lambda host, answered: None,
    before: Path | None = None,
) -> Contents:
    """Asks all hosts, and has ``pack`` write what came; returns the table of contents that it wrote.

    ``total``: bytes of content from all hosts. ``before``: an earlier bundle, whose state of the devices is taken over.
    An interrupt closes all connections, and nothing is written. Raises: InputError for an unusable earlier bundle.
    """
    room = Room(total)
    fields = request.fields(SKIPPED_SUFFIXES)
    rows = [*fields["sections"], *({"name": command["section"]} for command in fields["commands"])]
    sections = frozenset({"environment", "kernel", *(row["name"] for row in rows)})
    began = utc_text()
    earlier = state_before(before) if before else {}
    with tempfile.TemporaryDirectory(prefix="doctor-bundle-") as folder:
        spools: dict[str, HostSpool] = {}
        for number, host in enumerate(inventory.hosts):
            Path(folder, str(number)).mkdir(0o700)
            spools[host] = HostSpool(Path(folder, str(number)), sections, request.limit * 5 // 4 + (4 << 20), room)

        def visit(host: str) -> HostSpool:
            return _ask(host, transport, request, fields, spools[host])

        visit_hosts(inventory.hosts, transport, visit, workers, lambda host, spool: progress(host, not spool.error))
        for host, spool in spools.items():
            spool.add_state(earlier.get(host, {}))
        packing = Packing({host: spool.files for host, spool in spools.items()})
        contents = _contents(inventory, request, began, spools, packing)
        pack(contents, packing)
    return contents


def _contents(
    inventory: Inventory, request: BundleRequest, began: str, spools: Mapping[str, HostSpool], packing: Packing
) -> Contents:
    left_out = [row for host, spool in spools.items() for row in packing.left_out(host, spool.left_out)]
    return Contents(
        schema=SCHEMA,
        doctor=__version__,
        collected=began,
        source=inventory.source,
        since=request.since,
        places=list(request.places),
        hosts=list(inventory.hosts),
        files=packing.entries(),
        left_out=left_out,
        errors={host: spool.error for host, spool in spools.items() if spool.error},
    )


def _ask(
    host: str, transport: Transport, request: BundleRequest, fields: dict[str, object], spool: HostSpool
) -> HostSpool:
    """Runs the bundler on one host until it has sent its end, or its time is over."""
    marker = new_marker()
    first = json.dumps({"marker": marker, "seconds": request.seconds, **fields}).encode("ascii")
    start = BUNDLER.request(marker, first, within=request.within, as_root=request.sudo)
    late = threading.Event()
    try:
        session = start_session(transport, host, start)
    except TransportError as error:
        spool.error = strip_control_chars(error.text)
        return spool

    def close() -> None:
        late.set()
        session.close()

    timer = threading.Timer(request.seconds + MARGIN, close)
    timer.daemon = True
    timer.start()
    try:
        for line in session:
            text = marked_text(line, marker.encode("ascii"))
            if text is not None:
                spool.take(text)
            if spool.is_done:
                break
    except TransportError as error:
        spool.error = spool.error or strip_control_chars(error.text)
    finally:
        timer.cancel()
        session.close()
    spool.close()
    if not spool.is_done:
        spool.error = _why_not_whole(session.err, late.is_set(), request.seconds)
    return spool


def _why_not_whole(errors: bytes, late: bool, seconds: float) -> str:
    text = errors.decode("utf-8", "replace")
    if late:
        return filled("no end within {0} s", f"{seconds + MARGIN:g}")
    last = last_line(text)
    return python_problem(text) or filled("its answer is incomplete{0}", f": {last}" if last else "")

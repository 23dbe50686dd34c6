"""One collection: which places on which hosts, over which transport, made into a record."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.diagnose.fetch.ask_hosts import LogRequest, ask_hosts
from doctor.diagnose.fetch.saved_logs import SCHEMA, HostLogs, LogRecord
from doctor.diagnose.read.sources import SKIPPED_SUFFIXES
from doctor.diagnose.signature import Signature
from doctor.engine.errors import UsageError
from doctor.engine.quantities import DAY, parse_span
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.environment.inventory import Inventory
from doctor.session.connection import connected
from doctor.transport.options import SshOptions, workers

DEFAULT_SINCE = float(DAY)
"""Seconds of ``--since`` where it is not given."""
MAX_PLACES = 100


class CollectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How hosts are reached, and what they are asked for."""

    transport: str = "ssh"
    ssh: SshOptions = SshOptions()
    request: LogRequest
    workers: int = 0


def parse_since(text: str) -> float:
    """Seconds of ``90s``, ``30m``, ``2h``, ``1d``; ``all`` and ``0`` are 0. Raises: UsageError.

    >>> parse_since("2h")
    7200.0
    """
    if text in ("all", "0"):
        return 0.0
    seconds = parse_span(text, bare=False)
    if seconds is None:
        raise UsageError(filled("--since {0}: expected a time such as 30m, 2h or 1d, or all", f"{text!r}"))
    return seconds


def default_places(environ: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """Where frameworks write their logs by default. ``folder`` is the one that the user works in.

    Sources: CANN's environment variable reference (ASCEND_PROCESS_LOG_PATH, else ``$HOME/ascend/log``); MindSpore's
    msrun (``--log_dir`` is the working folder) and MindSpore Transformers (``output/msrun_log``); torchrun, which makes
    ``torchelastic_*`` in the temporary folder where ``--log-dir`` is not given
    (torch/distributed/elastic/multiprocessing/api.py). Dumps of flight recorders: torch/csrc/distributed/c10d/
    (TORCH_FR_DUMP_TEMP_FILE, before TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and torch_npu (TORCH_HCCL_DEBUG_INFO_TEMP_FILE).
    """
    cann = environ.get("ASCEND_PROCESS_LOG_PATH", "")
    places = [cann if os.path.isabs(cann) else "~/ascend/log"]
    for start in dict.fromkeys((glob_quoted(folder), "~")):
        places += [f"{start}/worker_*.log", f"{start}/scheduler.log"]
        places += [f"{start}/msrun_log", f"{start}/output/msrun_log"]
    places += _dump_places(environ)
    places += [f"{glob_quoted(tempfile.gettempdir())}/torchelastic_*", "/tmp/torchelastic_*"]
    return tuple(dict.fromkeys(places))


_DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE")


def _dump_places(environ: Mapping[str, str]) -> list[str]:
    """Where ranks leave the dumps of their flight recorders; each appends its rank."""
    named = [environ.get(name, "") for name in _DUMP_VARIABLES]
    places = [f"{glob_quoted(path)}[0-9]*" for path in named if os.path.isabs(path)]
    defaults = ("~/.cache/torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")
    return [*places, *(f"{place}[0-9]*" for place in defaults)]


def glob_quoted(path: str) -> str:
    """A path quoted for use in a pattern: its special characters match only themselves."""
    return re.sub(r"([*?[])", r"[\1]", path)


def validate_places(places: Sequence[str], is_here: bool = False) -> tuple[str, ...]:
    """The places as given; a relative one is below the login user's home, but ``is_here``, where this host alone is
    asked, below the current folder if it is there. Raises: UsageError.
    """
    if len(places) > MAX_PLACES:
        raise UsageError(filled("--logs is given {0} times; expected at most {1}", len(places), MAX_PLACES))
    for place in places:
        if not place or "\0" in place or len(place) > 4096 or not place.isprintable():
            raise UsageError(filled("--logs {0}: expected a file, a folder or a pattern", f"{printable(place, 80)!r}"))
    return tuple(_absolute(place, is_here) for place in places)


def _absolute(place: str, is_here: bool) -> str:
    if place.startswith(("/", "~")):
        return place
    if is_here and next(glob.iglob(place), None) is not None:
        return os.path.join(os.getcwd(), place)
    return f"~/{place}"


def collect_logs(
    inventory: Inventory,
    options: CollectionOptions,
    signatures: Mapping[str, Signature],
    progress: Callable[[str, bool], None] = lambda host, answered: None,
) -> LogRecord:
    """Asks all hosts."""
    request = msgspec.structs.replace(options.request, skipped=SKIPPED_SUFFIXES)
    started = utc_text()
    with connected(inventory, options.transport, options.ssh) as transport:
        hosts: dict[str, HostLogs] = ask_hosts(
            inventory.hosts, transport, request, signatures, options.workers or workers(len(inventory.hosts)), progress
        )
    return LogRecord(
        SCHEMA, inventory.source, started, request.places, request.since, hosts, job_hosts=tuple(inventory.hosts)
    )

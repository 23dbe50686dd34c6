"""A preflight of pods that check each other: one leads and evaluates, the others carry out its commands.

All of them end with the leader's exit code and line. Each is bounded in time by itself: one whose leader never comes,
or dies and is not started again, ends as unknown.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from doctor import __version__
from doctor.engine.bounded_read import read_bounded, read_bounded_text
from doctor.engine.errors import InputError, UsageError
from doctor.engine.language import localized_filled
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled
from doctor.environment.gang_place import GangPlace, PodDescription, count_pods, find_place
from doctor.environment.inventory import Inventory
from doctor.hosts.selection import PodAccess
from doctor.preflight.gathered import GatherProgress, NotReady
from doctor.preflight.host_leader import LeaderVerdict
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import LineSession, run_to_end
from doctor.transport.gang.links import PORTS, Gathering, MemberLink
from doctor.transport.gang.member import KEY_VARIABLE, Membership
from doctor.transport.gang.sealed import gang_key
from doctor.transport.local import Local
from doctor.transport.options import MAX_OUTPUT

if TYPE_CHECKING:
    from doctor.environment.job_context import JobContext
    from doctor.preflight.deadline import TimeBudget
    from doctor.preflight.options import GangOptions, PreflightOptions

NO_KEY = "none"
"""In the place of a file of ``--gang-key``: the pods know each other by their addresses."""
UNKEYED = (
    "--gang-key none: the pods are known by their addresses alone; a program that takes the address of one can run "
    "commands in the others"
)
MIN_KEY_BYTES = 16
_MAX_KEY_BYTES = 1 << 16
_RECEIPT_SECONDS = 5.0
"""Seconds that the leader waits until all members have its verdict."""
_MAX_LINE_CHARS = 4000
_OWN_POD = "127.0.0.1"
_MEET_SECONDS = 1.0
"""Seconds within which a leader notices a connection to itself."""


class GangVerdict(msgspec.Struct, frozen=True):
    """What the leader sends in the end."""

    code: int
    line: str = ""
    reason: str = ""
    """Why there is no verdict; then each member ends as unknown."""


class GangLeader:
    """Passes the verdict on to the gang, as `doctor.preflight.host_leader.Leader` does to the processes of a host."""

    note = ""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering

    def __enter__(self) -> GangLeader:
        return self

    def __exit__(self, *_: object) -> None:
        self._gathering.close()

    def announce(self, code: int, line: str, until: float) -> None:
        """Sends it, and waits a moment for receipts, not beyond ``until``."""
        verdict = GangVerdict(code, line[:_MAX_LINE_CHARS])
        if code >= 128:
            verdict = GangVerdict(
                code, reason=filled("{0} was ended by signal {1}", self._gathering.hosts[0], code - 128)
            )
        self._gathering.announce(msgspec.json.encode(verdict), min(until, time.monotonic() + _RECEIPT_SECONDS))


class Lead(NamedTuple):
    """This process leads."""

    inventory: Inventory
    transport: GangTransport


def join_gang(
    options: PreflightOptions,
    context: JobContext,
    environ: Mapping[str, str],
    budget: TimeBudget,
    progress: GatherProgress,
) -> Lead | LeaderVerdict:
    """Takes part: leads once all have come or the wait has ended, or carries out commands until the verdict is here.

    Raises: CommandError, NotReady.
    """
    assert options.gang
    place = _find_place(options, options.gang, context, environ)
    key, is_keyed = _read_key(options.gang.key, place, environ)
    if not is_keyed and not all(place.names):
        raise UsageError("--gang-key none: the names of this job's pods prove nothing; expected a key")
    if not is_keyed:
        print_stderr(filled("doctor: {0}", localized_filled(UNKEYED)))
        progress.add_notes(UNKEYED)
    if place.index:
        return _follow(options.gang, place, key, budget, progress)
    is_at = None if is_keyed else lambda index, address: address in _addresses(place.names[index])
    try:
        gathering = Gathering(place.hosts, key, __version__, is_at, place.is_named)
    except OSError as error:
        raise NotReady(filled("no port to meet the gang's pods at: {0}", error.strerror or error), "no-port") from None
    earlier_ports = PORTS[: PORTS.index(gathering.port)]
    if earlier_ports and _leader_at(_OWN_POD, gathering, key, earlier_ports):
        gathering.close()
        return _follow(options.gang, place, key, budget, progress, _OWN_POD)
    return _lead(options.gang, place, key, gathering, progress)


def _find_place(
    options: PreflightOptions, gang: GangOptions, context: JobContext, environ: Mapping[str, str]
) -> GangPlace:
    """Raises: CommandError."""
    from doctor.session.select_hosts import select_inventory

    if options.hosts.names_hosts:
        named = select_inventory(options.hosts)
        listed, source = named.hosts, named.source.partition(" from ")[2] or named.source
    else:
        if context.hosts_error:
            raise InputError(context.hosts_error)
        listed, source = context.hosts or (), context.hosts_source
    hosts_file = ""
    with contextlib.suppress(OSError, UnicodeError):
        hosts_file = read_bounded_text("/etc/hosts")
    pod = PodDescription(environ=environ, host_name=os.uname().nodename, hosts_file=hosts_file, size=gang.size)
    return find_place(pod, context, listed, source)


def _read_key(path: str, place: GangPlace, environ: Mapping[str, str]) -> tuple[bytes, bool]:
    """The gang's key, and whether it is secret. Raises: CommandError."""
    if path == NO_KEY:
        return gang_key(b"", place.identity), False
    if path:
        try:
            secret, source = read_bounded(path, _MAX_KEY_BYTES).strip(), filled("--gang-key {0}", printable(path))
        except OSError as error:
            raise InputError(
                filled("--gang-key {0} cannot be read: {1}", printable(path), error.strerror or error)
            ) from None
    else:
        secret, source = environ.get(KEY_VARIABLE, "").encode("utf-8", "surrogateescape").strip(), KEY_VARIABLE
    if not secret:
        raise UsageError(
            filled(
                "--gang: no key authenticates the pods to each other; expected {0} from a Secret, a file by "
                "--gang-key, such as the SSH key that Volcano or an MPIJob mounts, or --gang-key none",
                KEY_VARIABLE,
            )
        )
    if len(secret) < MIN_KEY_BYTES:
        raise InputError(
            filled("{0} has {1} bytes; expected {2} random ones or more", source, len(secret), MIN_KEY_BYTES)
        )
    return gang_key(secret, place.identity), True


def _leader_at(name: str, gathering: Gathering, key: bytes, ports: Sequence[int] = PORTS) -> str:
    """The address of another leader of this gang; empty where there is none, or where the name leads to this one."""
    gathering.met_itself.clear()
    address = Membership(name, key, 0, __version__, lambda _: None, gathering.start, ports).address_of_leader()
    return "" if address and gathering.met_itself.wait(_MEET_SECONDS) else address


def _require_one_leader(place: GangPlace, key: bytes, gathering: Gathering) -> None:
    """Raises: NotReady, where the name of index 0 leads to another pod, which leads the gang, too."""
    if other := _leader_at(place.leader, gathering, key):
        text = "two pods have index 0 of the gang: this one, {0}, and {1} at {2}; expected one, with that name"
        raise NotReady(filled(text, printable(os.uname().nodename), place.leader, other), "two-leaders")


def _follow(
    gang: GangOptions, place: GangPlace, key: bytes, budget: TimeBudget, progress: GatherProgress, leader: str = ""
) -> LeaderVerdict:
    """``leader``: its address, where that is not the one of its name. Raises: NotReady."""
    on_state = partial(setattr, progress.heartbeat, "activity")
    member = Membership(leader or place.leader, key, place.index, __version__, on_state)
    data = member.receive_verdict(gang.wait, budget.report_end - 1.0)
    if data is None:
        text = "no verdict from {0}, which leads the gang (this pod has index {1}): {2}"
        number = place.index if place.index >= 0 else "none"
        raise NotReady(filled(text, place.leader, number, member.why or "its time ended"), "no-leader")
    try:
        verdict = msgspec.json.decode(data, type=GangVerdict)
    except msgspec.MsgspecError:
        raise NotReady(filled("the verdict of {0} cannot be read", place.leader), "no-verdict") from None
    if verdict.reason or not 0 <= verdict.code <= 255:
        raise NotReady(strip_control_chars(verdict.reason, 400) or "the leader has no verdict", "no-verdict")
    return LeaderVerdict(verdict.code, strip_control_chars(verdict.line, _MAX_LINE_CHARS))


def _lead(gang: GangOptions, place: GangPlace, key: bytes, gathering: Gathering, progress: GatherProgress) -> Lead:
    """Raises: NotReady."""
    progress.leader = GangLeader(gathering)
    progress.on_lead()
    progress.heartbeat.activity = filled("waiting for {0} of the gang", count_pods(len(place.hosts) - 1))
    began = time.monotonic()
    _require_one_leader(place, key, gathering)
    gathering.wait(began + gang.wait)
    if gathering.absent:  # the other one may have come later
        _require_one_leader(place, key, gathering)
    if absent := gathering.absent:
        text = filled(
            "{0} did not come within {1} s: {2}", count_pods(len(absent)), f"{gang.wait:g}", _named(gathering, absent)
        )
        print_stderr(filled("doctor: {0}", localized_filled(text)))
        progress.add_notes(text)
    pods = PodAccess(
        kubectl=(),
        namespace="",
        names={host: name for host, name in zip(gathering.hosts, place.names, strict=True) if host != name},
        addresses=gathering.addresses(),
    )
    inventory = Inventory(gathering.hosts, place.source, pods=pods)
    return Lead(inventory, GangTransport(gathering))


def _named(gathering: Gathering, hosts: list[str], most: int = 8) -> str:
    """``train-2 (index 2), train-5 (index 5)``."""
    texts = [filled("{0} (index {1})", host, gathering.hosts.index(host)) for host in hosts[:most]]
    return ", ".join([*texts, *(["..."] if len(hosts) > most else [])])


def _addresses(name: str) -> set[str]:
    """What the name server has for a name."""
    try:
        places = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(place[4][0]) for place in places}


RETURN_SECONDS = 15.0
"""Seconds for a member whose link was cut, or whose container is started again, to come back."""


class GangTransport:
    """`doctor.transport.Transport`, in the leader."""

    def __init__(self, gathering: Gathering, limit: int = MAX_OUTPUT) -> None:
        self.warnings: list[str] = []
        self.reached = gathering.addresses()
        self._gathering, self._local, self._limit = gathering, Local(limit), limit
        self._closed = False

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """See `doctor.transport.Transport.run`. Where the link is cut in the middle, it is run once more."""
        if host == self._gathering.hosts[0]:
            return self._local.run(host, command, stdin, timeout)
        link = self._link(host, timeout)
        try:
            return run_to_end(link.open(command), stdin, timeout, self._limit)
        except TransportError as error:
            if error.kind != "lost" or self._closed:
                raise
        again = self._gathering.link(host, after=link, patience=min(RETURN_SECONDS, timeout))
        if self._closed:
            raise transport_error("budget", "the run's time limit was reached")
        return run_to_end(again.open(command), stdin, timeout, self._limit)

    def open_session(self, host: str, command: str) -> RemoteSession:
        if host == self._gathering.hosts[0]:
            return self._local.open_session(host, command)
        return LineSession(host, self._link(host, RETURN_SECONDS).open(command))

    def _link(self, host: str, timeout: float) -> MemberLink:
        """Raises: TransportError, at once for a host that never came."""
        patience = min(RETURN_SECONDS, timeout) if self._gathering.has_come(host) else 0.0
        return self._gathering.link(host, patience=patience)

    def close(self) -> None:
        """See `doctor.transport.Transport.close`. The members stay for the verdict."""
        self._closed = True
        self._local.close()
        self._gathering.end_commands()

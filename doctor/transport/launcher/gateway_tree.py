"""Hosts behind gateways: a relay on each gateway starts carriers on the hosts below it, by the gateway's own ssh.

A gateway runs what it is sent, and answers for the hosts below it. It cannot speak for others.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import count_noun, strip_control_chars
from doctor.engine.texts import filled
from doctor.remote.bootstrap import argument_command
from doctor.transport import TransportError, transport_error
from doctor.transport.conversation import SILENCE
from doctor.transport.launcher.gateway_routes import Router, TopologyFileError, topology_path
from doctor.transport.launcher.launcher import Launcher, LaunchReader, TaskOutput, carrier_command
from doctor.transport.openssh.log import SSH_FAILED, error_kind
from doctor.transport.options import CONNECT_TIMEOUT, SshOptions
from doctor.transport.program import HostProgram

FANOUT = 64
"""Children of one relay that are being connected at once, as with clush."""
_MAX_LINE = 1 << 18
_INNER_OPTIONS = (
    "LogLevel=ERROR",
    "BatchMode=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    f"ServerAliveInterval={round(SILENCE / 3)}",
    "ServerAliveCountMax=2",
)


class Branch(NamedTuple):
    """The hosts of one launch, in the order of their tasks, and the gateways to each."""

    hosts: tuple[str, ...]
    ways: tuple[tuple[str, ...], ...]


class GatewayTree(Launcher):
    """A launcher by relays of our own."""

    name = "ssh"

    def __init__(self, options: SshOptions, hosts: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(environ)
        self._options, self._hosts = options, tuple(hosts)
        self.default_timeout = 3 * (options.connect_timeout or CONNECT_TIMEOUT)
        self._path = options.gateways or topology_path(environ)
        self._lock = threading.Lock()
        self._router: Router | None = None

    @property
    def router(self) -> Router:
        assert self._router is not None
        return self._router

    def check(self) -> None:
        with self._lock:
            if self._router:
                return
            if not self._path:
                raise transport_error("error", "there is no topology.conf of ClusterShell", "--gateways FILE")
            try:
                self._router = Router(self._path, self._hosts)
            except TopologyFileError as error:
                raise transport_error("error", str(error), "--gateways FILE") from None

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]:
        return argument_command(RELAY.source)

    def open_reader(self, hosts: Sequence[str]) -> GatewayReader:
        load: dict[str, int] = {}
        chosen: dict[str, str] = {}
        with self._lock:
            ways = {host: self.router.way(host, load, chosen) for host in hosts}
            dead = {host: _unreached(self.router.dead_above(host)) for host, way in ways.items() if way is None}
        return GatewayReader(self, Branch(tuple(hosts), tuple(ways[host] or () for host in hosts)), dead)

    def first_line(self, reader: LaunchReader) -> bytes:
        """See `doctor.transport.launcher.launcher.KnowsWays.first_line`: the tree, as the relay takes it."""
        assert isinstance(reader, GatewayReader)
        carrier = shlex.join(carrier_command()).replace("%", "%%")
        tree = {
            "name": "",
            "fanout": FANOUT,
            "ssh": self._outer_ssh(),
            "inner_ssh": [*_ssh_words(self._hop_options())],
            "carrier": f"exec env PMI_RANK=%d {carrier}",
            "relay": f"exec {shlex.join(argument_command(RELAY.source))}",
            "below": self._below(reader.branch, reader.errors_by_host),
        }
        return json.dumps(tree).encode("ascii") + b"\n"

    def affects_all_hosts(self, error_text: str) -> bool:
        return True

    def test_command(self, host: str) -> str:
        with self._lock:
            return _ssh_test(self.router.way(host, {}, {}) or (), host)

    def failures(self, reader: LaunchReader, silent: Sequence[str], seconds: float) -> dict[str, TransportError | None]:
        """See `doctor.transport.launcher.launcher.KnowsWays.failures`: None where another gateway is left."""
        assert isinstance(reader, GatewayReader)
        answer: dict[str, TransportError | None] = {}
        with self._lock:
            for host in silent:
                dead = next((hop for hop in reader.way(host) if hop not in reader.started_gateways), "")
                if dead and host not in reader.errors_by_host:
                    waited = filled("no answer from it within {0}", seconds_text(seconds))
                    self.router.dead.setdefault(dead, waited)
            for host in silent:
                gateways = self.router.dead_above(host)
                stopped = any(hop in gateways for hop in reader.way(host))
                if stopped and self.router.way(host, {}, {}) is not None:
                    answer[host] = None
                elif stopped:
                    answer[host] = _unreached(gateways)
                else:
                    answer[host] = reader.errors_by_host.get(host) or transport_error(
                        "dropped",
                        filled("no answer from it within {0}{1}", seconds_text(seconds), _through(reader.way(host))),
                        _ssh_test(reader.way(host), host),
                    )
        return answer

    def mark_dead(self, gateway: str, why: str) -> None:
        with self._lock:
            self.router.dead.setdefault(gateway, why)

    def dead_notes(self) -> list[str]:
        with self._lock:
            return [
                filled("the gateway {0} was not used: {1}", name, why) for name, why in sorted(self.router.dead.items())
            ]

    # ---- the tree as the relay takes it

    def _below(self, branch: Branch, unreachable: Mapping[str, TransportError]) -> list[dict[str, Any]]:
        top: list[dict[str, Any]] = []
        relays: dict[str, list[dict[str, Any]]] = {}
        for way in branch.ways:
            level = top
            for hop in way:
                if hop not in relays:
                    relays[hop] = []
                    level.append({"host": hop, "login": self._login(hop), "below": relays[hop]})
                level = relays[hop]
        for task, (host, way) in enumerate(zip(branch.hosts, branch.ways, strict=True)):
            if host in unreachable:
                continue
            if host in relays:
                relays[host].append({"host": "", "login": [], "task": task})
            else:
                at_root = host in self.router.root_names and not way
                level = relays[way[-1]] if way else top
                level.append({"host": "" if at_root else host, "login": self._login(host), "task": task})
        return top

    def _login(self, host: str) -> list[str]:
        login = self._options.logins.get(host)
        user, port = (login.user if login else "") or self._options.user, (login.port if login else 0)
        port = port or self._options.port
        return [*(("-l", user) if user else ()), *(("-p", str(port)) if port else ())]

    def _hop_options(self) -> tuple[str, ...]:
        timeout = max(1, math.ceil(self._options.connect_timeout or CONNECT_TIMEOUT))
        strict = "accept-new" if self._options.accept_new else "yes"
        return (*_INNER_OPTIONS, f"StrictHostKeyChecking={strict}", f"ConnectTimeout={timeout}")

    def _outer_ssh(self) -> list[str]:
        """From this machine, by the user's own configuration."""
        config = ["-F", self._options.config] if self._options.config else []
        command = _ssh_words((*self._hop_options(), *self._options.settings))
        return [*command, *config, *(word for path in self._options.identity for word in ("-i", path))]


def _ssh_words(options: Sequence[str]) -> list[str]:
    return ["ssh", "-T", "-a", "-x", *(word for option in options for word in ("-o", option))]


RELAY = HostProgram("doctor.transport.launcher.relay.relay_loop")


def _ssh_test(way: Sequence[str], host: str) -> str:
    """The command that shows what the last gateway's ssh prints.

    >>> _ssh_test(("gw1",), "n1")
    'ssh gw1 ssh n1 true'
    """
    return shlex.join([*(word for hop in (*way, host) for word in ("ssh", hop)), "true"])


def _through(way: Sequence[str]) -> str:
    return filled(", through the gateway {0}", way[-1]) if way else ""


def _unreached(gateways: Mapping[str, str]) -> TransportError:
    name, why = next(iter(gateways.items()))
    text = filled("not reached: the gateway {0}: {1}", name, why)
    if len(gateways) > 1:
        text = filled("{0}, and {1} beside it", text, count_noun(len(gateways) - 1, "gateway"))
    return transport_error("jump", text, shlex.join(["ssh", name, "true"]))


class GatewayReader(LaunchReader):
    """Reads what the relay of this machine prints. What a host or gateway says reaches it only under its own number."""

    def __init__(self, tree: GatewayTree, branch: Branch, unreachable: Mapping[str, TransportError]) -> None:
        super().__init__(_MAX_LINE)
        self.branch = branch
        self.host_by_task, self.errors_by_host = dict(enumerate(branch.hosts)), dict(unreachable)
        self.started_gateways: set[str] = set()
        self._tree = tree
        self._ways = dict(zip(branch.hosts, branch.ways, strict=True))

    def way(self, host: str) -> tuple[str, ...]:
        return self._ways.get(host, ())

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stdout_lines.split(piece):
            kind, _, rest = line.partition(b" ")
            if kind in (b"o", b"e"):
                number, _, data = rest.partition(b" ")
                if number.isdigit() and int(number) in self.host_by_task:
                    yield TaskOutput(int(number), kind == b"e", data + b"\n")
            elif kind == b"u":
                self.started_gateways.add(str(json.loads(rest)))
            elif kind == b"x":
                self._read_end(json.loads(rest))

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stderr_lines.split(piece):
            self.last_error = strip_control_chars(line.decode("utf-8", "replace"), 200) or self.last_error
        yield from ()

    def _read_end(self, end: dict[str, Any]) -> None:
        """A child of a relay has ended: a gateway's ssh, or a host's."""
        hosts = [self.host_by_task[task] for task in end["tasks"] if task in self.host_by_task]
        text = str(end["text"])
        last_line = strip_control_chars(next((line for line in reversed(text.splitlines()) if line.strip()), ""), 300)
        code = int(end["code"])
        cut = "its connection was closed, or timed out"  # ssh says so at LogLevel=INFO only
        reason = last_line or (cut if code == SSH_FAILED else filled("ssh ended (exit status {0})", code))
        name, kind = str(end["host"]), error_kind(text)
        if any(name in self.way(host) for host in hosts):
            self._tree.mark_dead(name, reason)
        for host in hosts:
            way = self.way(host)
            error = (
                _unreached({name: reason})
                if name in way
                else transport_error(kind, filled("{0}{1}", reason, _through(way)), _ssh_test(way, host) if way else "")
            )
            self.errors_by_host.setdefault(host, error)

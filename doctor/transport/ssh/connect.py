"""The way to a host: straight, through a ProxyCommand, or from jump host to jump host."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import paramiko

from doctor.engine.sanitize import plain
from doctor.transport import Trouble, Unreached
from doctor.transport.messages import seconds, unreached
from doctor.transport.options import CONNECT_TIMEOUT, Options
from doctor.transport.ssh.auth import Login
from doctor.transport.ssh.config import Settings, timed
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.dial import Dialer
from doctor.transport.ssh.host_keys import Trust
from doctor.transport.ssh.identity import Identity, Keyring, Keys
from doctor.transport.ssh.paramiko_transport import Wire
from doctor.transport.ssh.proxy_command import Proxy
from doctor.transport.ssh.stream import Stream, port

_MOST_HOPS = 8
_PROHIBITED = 1
_PARTING = 1.0
"""Seconds that a broken connection's thread has to notice."""
_FAR_SIDE: tuple[tuple[str, Trouble], ...] = (
    ("refused", "refused"),
    ("timed out", "dropped"),
    ("route", "no-route"),
    ("unreachable", "no-route"),
    ("known", "name"),
    ("resol", "name"),
)
"""What a jump host says of the port behind it."""
Route = tuple[Settings, ...]
"""The jump hosts to a host, the one nearest to us first."""


class Connector:
    """Makes connections that are logged in, from many threads at once; jump hosts are shared."""

    def __init__(self, options: Options, resolver: Resolver, warnings: list[str]) -> None:
        self._options, self._resolver = options, resolver
        self._trust = Trust(options.accept_new, warnings)
        self._keyring = Keyring(options.agent)
        absent = [path for path in options.identity if not Path(path).expanduser().exists()]
        warnings += [f"the private key {plain(path)} does not exist" for path in absent]
        self._dialer = Dialer()
        self._hops: dict[str, Settings] = {}
        self._gates: dict[Route, Future[Wire]] = {}
        self._streams: set[Stream] = set()
        self._favourites: dict[Keys, Identity] = {}
        self._lock = threading.Lock()
        self._closed = False

    def connect(self, host: str) -> Wire:
        """A connection to ``host``, logged in. Raises: Unreached."""
        settings = self._timed(self._resolver.of(host))
        return self._reach(self._route(settings), settings, self._options.password)

    def close(self) -> None:
        """Breaks every connection, made or in the making."""
        self._dialer.give_up()
        with self._lock:
            self._closed = True
            streams = list(self._streams)
            gates = [made.result() for made in self._gates.values() if made.done() and not made.exception()]
        for stream in streams:
            stream.abort()
        for gate in gates:
            gate.close()
            gate.join(_PARTING)

    def _timed(self, settings: Settings) -> Settings:
        timeout = self._options.connect_timeout or settings.connect_timeout or CONNECT_TIMEOUT
        return timed(settings, timeout)

    def _route(self, settings: Settings) -> Route:
        """As with ssh, a list of jump hosts stands in for what is configured for all of them but the first."""
        route = [self._hop(words) for words in settings.jumps]
        while route and route[0].jumps:
            route = [*(self._hop(words) for words in route[0].jumps), *route]
            if len(route) > _MOST_HOPS:
                raise unreached("jump", f"its jump hosts form a loop, or are more than {_MOST_HOPS}")
        return tuple(route)

    def _hop(self, words: str) -> Settings:
        if words not in self._hops:
            self._hops[words] = self._timed(self._resolver.of_hop(words))
        return self._hops[words]

    def _reach(self, route: Route, settings: Settings, password: str) -> Wire:
        if settings.unsupported:
            raise unreached("unsupported", f"{settings.unsupported} is set for it", "--transport openssh")
        if settings.proxy and not route:
            return self._by_proxy(settings, password)
        gate = self._gate(route) if route else None
        deadline = time.monotonic() + settings.connect_timeout
        if gate:
            stream = Stream(_tunnel(gate, route[-1], settings))
        else:
            stream = Stream(self._dialer.dial(settings, deadline), quick=True)
        return self._start(stream, settings, password, deadline)

    def _gate(self, route: Route) -> Wire:
        """The connection to the last host of a route: made by the first who asks, and waited for by the others."""
        with self._lock:
            made = self._gates.get(route)
            mine = made is None or (made.done() and not made.exception() and not made.result().is_active())
            if made is None or mine:
                made = self._gates[route] = Future()
        if mine:
            try:
                made.set_result(self._reach(route[:-1], route[-1], ""))
            except BaseException as error:  # noqa: BLE001 -- raised again, for each who waits
                made.set_exception(error)
        try:
            return made.result()
        except Unreached as error:
            if error.kind in ("jump", "budget"):
                raise Unreached(error.kind, error.text, error.hint) from None
            raise unreached("jump", f"its jump host {route[-1].host}: {error.text}", error.hint) from None

    def _by_proxy(self, settings: Settings, password: str) -> Wire:
        deadline = time.monotonic() + settings.connect_timeout
        proxy = Proxy(settings.proxy)
        try:
            return self._start(Stream(proxy.socket, proxy.end), settings, password, deadline)
        except Unreached as error:
            if error.kind in ("silent", "lost", "not-ssh"):
                raise unreached("jump", f"its ProxyCommand did not reach it: {proxy.words or error.text}") from None
            raise

    def _start(self, stream: Stream, settings: Settings, password: str, deadline: float) -> Wire:
        """Turns bytes that flow into a connection that is logged in; closes them if it cannot."""
        with self._lock:
            self._streams.add(stream)
        stream.at_end(partial(self._forget, stream))
        wire: Wire | None = None
        try:
            if self._closed:
                raise unreached("budget", "the run's time was up")
            stream.greeting(settings, deadline)
            wire = Wire(stream, port(settings), settings.connect_timeout, deadline)
            self._handshake(wire, settings)
            self._login(wire, settings, password)
        except BaseException as error:
            if wire:
                wire.close()
            stream.close()
            if isinstance(error, Unreached) or not isinstance(error, Exception):
                raise
            raise unreached("error", f"{port(settings)}: {plain(str(error)) or type(error).__name__}") from None
        return wire

    def _handshake(self, wire: Wire, settings: Settings) -> None:
        wire.prefer_keys(self._trust.kinds(settings))
        agreed = threading.Event()
        wire.start_client(event=agreed)
        wire.wait(agreed, "the key exchange")
        key = wire.get_remote_server_key()
        self._trust.check(settings, key.get_name(), key.get_base64())

    def _login(self, wire: Wire, settings: Settings, password: str) -> None:
        keys = self._keyring.keys(settings)
        used = Login(wire, settings, keys, password).run(self._favourites.get(keys))
        if used:
            self._favourites[keys] = used

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            self._streams.discard(stream)


def _tunnel(gate: Wire, hop: Settings, settings: Settings) -> paramiko.Channel:
    """A channel from a jump host to a host's port. Raises: Unreached."""
    there = f"port {settings.port} of {settings.name}"
    try:
        return gate.open_channel(
            "direct-tcpip", (settings.name, settings.port), ("127.0.0.1", 0), timeout=settings.connect_timeout
        )
    except paramiko.ChannelException as error:
        if error.code == _PROHIBITED:
            text = f"its jump host {hop.host} does not let us through to {there}"
            hint = f"AllowTcpForwarding and PermitOpen in the sshd_config of {hop.host}"
            raise unreached("jump", text, hint) from None
        why = gate.refusals.get(gate.number()) or plain(str(error.text))
        kind: Trouble = next((kind for words, kind in _FAR_SIDE if words in why.lower()), "jump")
        raise unreached(kind, f"its jump host {hop.host} cannot reach {there}: {why}") from None
    except (paramiko.SSHException, EOFError, OSError):
        if not gate.is_active():
            raise unreached("jump", f"the connection to its jump host {hop.host} was cut") from None
        waited = seconds(settings.connect_timeout)
        text = f"its jump host {hop.host} got no answer from {there} within {waited}"
        raise unreached("dropped", text) from None

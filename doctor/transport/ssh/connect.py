"""Connects to a host: directly, through a ProxyCommand, or through jump hosts."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError, TransportErrorKind, format_seconds, transport_error
from doctor.transport.options import CONNECT_TIMEOUT, SshOptions
from doctor.transport.ssh.auth import Login
from doctor.transport.ssh.config import SshHostConfig, with_connect_timeout
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.dial import Dialer, ProxyProcess
from doctor.transport.ssh.host_keys import HostKeyVerifier
from doctor.transport.ssh.identity import Identity, Keyring, Keys
from doctor.transport.ssh.lean_paramiko import paramiko
from doctor.transport.ssh.paramiko_transport import SshConnection
from doctor.transport.ssh.stream import Stream, describe_port

_MAX_HOPS = 8
_PROHIBITED = 1
_CLOSE_WAIT = 1.0
"""Seconds that a broken connection's thread has to notice."""
_CHANNEL_ERRORS: tuple[tuple[str, TransportErrorKind], ...] = (
    ("refused", "refused"),
    ("timed out", "dropped"),
    ("route", "no-route"),
    ("unreachable", "no-route"),
    ("known", "name"),
    ("resol", "name"),
)
"""Errors of a jump host about the port behind it."""
Route = tuple[SshHostConfig, ...]
"""The jump hosts to a host, the one nearest to us first."""


class Connector:
    """Makes connections that are logged in, from many threads at once; jump hosts are shared."""

    def __init__(self, options: SshOptions, resolver: Resolver, warnings: list[str]) -> None:
        self._options, self._resolver = options, resolver
        self._verifier = HostKeyVerifier(options.accept_new, warnings)
        self._keyring = Keyring(options.agent)
        absent = [path for path in options.identity if not Path(path).expanduser().exists()]
        warnings += [filled("the private key {0} does not exist", strip_control_chars(path)) for path in absent]
        self._dialer = Dialer()
        self.reached = self._dialer.reached
        self._hops: dict[str, SshHostConfig] = {}
        self._jump_connections: dict[Route, Future[SshConnection]] = {}
        self._streams: set[Stream] = set()
        self._accepted_keys: dict[Keys, Identity] = {}
        self._lock = threading.Lock()
        self._closed = False

    def connect(self, host: str) -> SshConnection:
        """A connection to ``host``, logged in. Raises: Unreached."""
        settings = self._with_timeout(self._resolver.resolve(host))
        return self._connect_via(self._route(settings), settings, self._options.password)

    def close(self) -> None:
        """Breaks every connection, made or in the making."""
        self._dialer.cancel()
        with self._lock:
            self._closed = True
            streams = list(self._streams)
            jump_connections = [
                future.result()
                for future in self._jump_connections.values()
                if future.done() and not future.exception()
            ]
        for stream in streams:
            stream.abort()
        for jump_connection in jump_connections:
            jump_connection.close()
            jump_connection.join(_CLOSE_WAIT)

    def _with_timeout(self, settings: SshHostConfig) -> SshHostConfig:
        timeout = self._options.connect_timeout or settings.connect_timeout or CONNECT_TIMEOUT
        return with_connect_timeout(settings, timeout)

    def _route(self, settings: SshHostConfig) -> Route:
        """As with ssh, a list of jump hosts stands in for what is configured for all of them but the first."""
        route = [self._hop_config(jump) for jump in settings.jumps]
        while route and route[0].jumps:
            route = [*(self._hop_config(jump) for jump in route[0].jumps), *route]
            if len(route) > _MAX_HOPS:
                raise transport_error("jump", filled("its jump hosts form a loop, or are more than {0}", _MAX_HOPS))
        return tuple(route)

    def _hop_config(self, jump: str) -> SshHostConfig:
        if jump not in self._hops:
            self._hops[jump] = self._with_timeout(self._resolver.resolve_hop(jump))
        return self._hops[jump]

    def _connect_via(self, route: Route, settings: SshHostConfig, password: str) -> SshConnection:
        if settings.unsupported:
            raise transport_error(
                "unsupported", filled("{0} is set for it", settings.unsupported), "--transport openssh"
            )
        if settings.proxy and not route:
            return self._by_proxy(settings, password)
        jump_connection = self._jump_connection(route) if route else None
        deadline = time.monotonic() + settings.connect_timeout
        if jump_connection:
            stream = Stream(_tunnel(jump_connection, route[-1], settings))
        else:
            stream = Stream(self._dialer.dial(settings, deadline), quick=True)
        return self._establish(stream, settings, password, deadline)

    def _jump_connection(self, route: Route) -> SshConnection:
        """The connection to the last host of a route: made by the first caller; the others wait for it."""
        with self._lock:
            future = self._jump_connections.get(route)
            mine = future is None or (future.done() and not future.exception() and not future.result().is_active())
            if future is None or mine:
                future = self._jump_connections[route] = Future()
        if mine:
            try:
                future.set_result(self._connect_via(route[:-1], route[-1], ""))
            except BaseException as error:  # noqa: BLE001 -- raised again, for each who waits
                future.set_exception(error)
        try:
            return future.result()
        except TransportError as error:
            if error.kind in ("jump", "budget"):
                raise TransportError(error.kind, error.text, error.hint) from None
            raise transport_error(
                "jump", filled("its jump host {0}: {1}", route[-1].host, error.text), error.hint
            ) from None

    def _by_proxy(self, settings: SshHostConfig, password: str) -> SshConnection:
        deadline = time.monotonic() + settings.connect_timeout
        proxy = ProxyProcess(settings.proxy)
        try:
            return self._establish(Stream(proxy.socket, proxy.end), settings, password, deadline)
        except TransportError as error:
            if error.kind in ("silent", "lost", "not-ssh"):
                raise transport_error(
                    "jump", filled("its ProxyCommand could not connect to it: {0}", proxy.stderr_tail or error.text)
                ) from None
            raise

    def _establish(self, stream: Stream, settings: SshHostConfig, password: str, deadline: float) -> SshConnection:
        """Turns bytes that flow into a connection that is logged in; closes them if it cannot."""
        with self._lock:
            self._streams.add(stream)
        stream.on_close(partial(self._forget, stream))
        connection: SshConnection | None = None
        try:
            if self._closed:
                raise transport_error("budget", "the run's time limit was reached")
            stream.read_banner(settings, deadline)
            connection = SshConnection(stream, describe_port(settings), settings.connect_timeout, deadline)
            self._handshake(connection, settings)
            self._login(connection, settings, password)
        except BaseException as error:
            if connection:
                connection.close()
            stream.close()
            if isinstance(error, TransportError) or not isinstance(error, Exception):
                raise
            raise transport_error(
                "error", f"{describe_port(settings)}: {strip_control_chars(str(error)) or type(error).__name__}"
            ) from None
        return connection

    def _handshake(self, connection: SshConnection, settings: SshHostConfig) -> None:
        connection.prefer_keys(self._verifier.known_key_types(settings))
        agreed = threading.Event()
        connection.start_client(event=agreed)
        connection.wait(agreed, "the key exchange")
        key = connection.get_remote_server_key()
        self._verifier.verify(settings, key.get_name(), key.get_base64())

    def _login(self, connection: SshConnection, settings: SshHostConfig, password: str) -> None:
        keys = self._keyring.keys(settings)
        used = Login(connection, settings, keys, password).run(self._accepted_keys.get(keys))
        if used:
            self._accepted_keys[keys] = used

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            self._streams.discard(stream)


def _tunnel(jump_connection: SshConnection, hop: SshHostConfig, settings: SshHostConfig) -> paramiko.Channel:
    """A channel from a jump host to a host's port. Raises: Unreached."""
    destination = filled("port {0} of {1}", settings.port, settings.name)
    try:
        return jump_connection.open_channel(
            "direct-tcpip", (settings.name, settings.port), ("127.0.0.1", 0), timeout=settings.connect_timeout
        )
    except paramiko.ChannelException as error:
        if error.code == _PROHIBITED:
            text = filled("its jump host {0} does not allow forwarding to {1}", hop.host, destination)
            hint = filled("AllowTcpForwarding and PermitOpen in the sshd_config of {0}", hop.host)
            raise transport_error("jump", text, hint) from None
        why = jump_connection.refusals.get(jump_connection.last_channel_number()) or strip_control_chars(
            str(error.text)
        )
        kind: TransportErrorKind = next((kind for pattern, kind in _CHANNEL_ERRORS if pattern in why.lower()), "jump")
        raise transport_error(
            kind, filled("its jump host {0} cannot reach {1}: {2}", hop.host, destination, why)
        ) from None
    except (paramiko.SSHException, EOFError, OSError):
        if not jump_connection.is_active():
            raise transport_error("jump", filled("the connection to its jump host {0} was cut", hop.host)) from None
        waited = format_seconds(settings.connect_timeout)
        text = filled("its jump host {0} got no answer from {1} within {2}", hop.host, destination, waited)
        raise transport_error("dropped", text) from None

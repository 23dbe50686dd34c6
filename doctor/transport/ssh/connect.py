"""Connects to a host: directly, through a ProxyCommand, or through jump hosts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import TransportError, TransportErrorKind, transport_error
from doctor.transport.options import CONNECT_TIMEOUT, SshOptions
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
        waited = seconds_text(settings.connect_timeout)
        text = filled("its jump host {0} got no answer from {1} within {2}", hop.host, destination, waited)
        raise transport_error("dropped", text) from None


_MAX_KEYS_BEFORE_PASSWORD = 4
"""Keys to try when there is a password too: sshd hangs up after six failures."""
_PASSWORD_METHODS = ("password", "keyboard-interactive")
_STAGE = "the login"


class Login:
    """One login: what was tried, and the host's replies."""

    def __init__(self, connection: SshConnection, settings: SshHostConfig, keys: Keys, password: str) -> None:
        self._connection, self._settings, self._keys = connection, settings, keys
        self._password = password if settings.use_password else ""
        self._tried: list[Identity] = []
        self._allowed: list[str] = []
        """The authentication methods that the host accepts; empty until it has sent them."""

    def run(self, first: Identity | None = None) -> Identity | None:
        """Logs in, trying the key ``first`` before all others. Returns the key that did it, if a key did.

        Raises: Unreached, of kind auth, unsupported, silent, lost or error.
        """
        keys = sorted(self._keys.identities, key=lambda key: key is not first) if self._settings.use_keys else []
        if not keys:
            self._attempt(lambda: self._connection.auth_none(self._settings.user))
        for identity in keys[: _MAX_KEYS_BEFORE_PASSWORD if self._password else None]:
            if self._accepts("publickey") and self._try_key(identity):
                return identity
        if self._password and not self._authenticated and self._accepts(*_PASSWORD_METHODS):
            self._attempt(lambda: self._connection.auth_password(self._settings.user, self._password, fallback=True))
        if not self._authenticated:
            raise self._refused_error()
        return None

    @property
    def _authenticated(self) -> bool:
        return bool(self._connection.is_authenticated())

    def _accepts(self, *methods: str) -> bool:
        return not self._allowed or any(method in self._allowed for method in methods)

    def _try_key(self, identity: Identity) -> bool:
        answered = threading.Event()
        self._tried.append(identity)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # the connection has ended: told below
            self._connection.auth_publickey(self._settings.user, identity, answered)  # type: ignore[arg-type]
            answered.wait(max(self._connection.deadline - time.monotonic(), 0))
        self._update_methods(self._connection.get_exception(), answered.is_set())
        return self._authenticated

    def _attempt(self, ask: Callable[[], object]) -> None:
        """One of the rarer methods, for which paramiko waits itself."""
        self._connection.auth_timeout = max(self._connection.deadline - time.monotonic(), 0.1)
        try:
            ask()
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._update_methods(error, time.monotonic() < self._connection.deadline)

    def _update_methods(self, error: BaseException | None, in_time: bool) -> None:
        """Reads from a refusal which methods are left. Raises: Unreached, when none is left to try."""
        if not self._connection.is_active():
            raise (
                self._refused_error() if self._connection.disconnect_message else self._connection.broken_error(_STAGE)
            )
        if not in_time:
            raise self._connection.late_error(_STAGE)
        if isinstance(error, (paramiko.BadAuthenticationType, paramiko.ssh_exception.PartialAuthentication)):
            self._allowed = [strip_control_chars(name, 40) for name in error.allowed_types]

    def _refused_error(self) -> TransportError:
        keys, user = self._keys, strip_control_chars(self._settings.user, 40)
        takes = filled("; it accepts {0}", joined(" or ", self._allowed[:6])) if self._allowed else ""
        if not self._tried and keys.hardware:
            text = filled(
                "the only key for {0}, {1}, is on a security key (not supported here)", user, keys.hardware[0]
            )
            return transport_error("unsupported", text, "--transport openssh")
        if not self._tried and self._settings.gssapi and any("gssapi" in name for name in self._allowed):
            text = filled(
                "there is no key for {0}; the host also accepts GSSAPI, which this transport does not support", user
            )
            return transport_error("unsupported", text, "--transport openssh")
        reason = filled(": {0}", self._connection.disconnect_message) if self._connection.disconnect_message else ""
        return transport_error(
            "auth",
            filled("the login as {0} was refused{1}: {2}{3}", user, reason, self._offer_summary(), takes),
            self._hint(),
        )

    def _offer_summary(self) -> str:
        """What we had to offer, in words."""
        unsigned = [
            filled("{0} ({1})", identity.label, identity.sign_error) for identity in self._tried if identity.sign_error
        ]
        labels = [identity.label for identity in self._tried if not identity.sign_error]
        parts = [filled("tried {0}{1}", ", ".join(labels[:4]), " and others" if labels[4:] else "")] if labels else []
        wrong = self._password and self._accepts(*_PASSWORD_METHODS)
        parts += ["the password was wrong"] if wrong else []
        parts += [filled("could not sign with {0}", ", ".join(unsigned[:2]))] if unsigned else []
        parts += [filled("{0} needs its passphrase", ", ".join(self._keys.locked[:2]))] if self._keys.locked else []
        return joined("; ", [*parts, *self._keys.notes[:1]]) or "there is no key to offer"

    def _hint(self) -> str:
        if self._keys.locked:
            return f"ssh-add {self._keys.locked[0]}"
        if len(self._tried) > 4:
            return "set the right key: IdentityFile and IdentitiesOnly in the ssh configuration"
        if "publickey" not in (self._allowed or ["publickey"]) and not self._password:
            return "--ask-pass"
        return f"ssh-copy-id {self._settings.login}" if self._tried else "--identity FILE, or ssh-add"

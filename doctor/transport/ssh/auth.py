"""Logging in over a connection whose host key is trusted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import TransportError, transport_error
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.identity import Identity, Keys
from doctor.transport.ssh.lean_paramiko import paramiko
from doctor.transport.ssh.paramiko_transport import SshConnection

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
        return f"ssh-copy-id {self._settings.host}" if self._tried else "--identity FILE, or ssh-add"

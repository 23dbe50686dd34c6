"""Verifies a host's key against the user's known_hosts."""

from __future__ import annotations

import shlex
import threading

from doctor.engine.bounded_read import read_bounded
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError, transport_error
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.known_hosts import (
    KnownHostLine,
    KnownHostsFiles,
    host_entry_name,
    key_fingerprint,
    verify_key,
)

_NO_FILE = ("/dev/null", "")
_KEYSCAN_TYPES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}


class HostKeyVerifier:
    """Decides on host keys, by the user's and the system's known_hosts files."""

    def __init__(self, accept_new: bool, warnings: list[str]) -> None:
        self._warnings = warnings
        self._accept_new = accept_new
        self._known_files = KnownHostsFiles(warnings)
        self._lock = threading.RLock()

    def known_key_types(self, settings: SshHostConfig) -> list[str]:
        """The types of key that are known for the host, to request one of these."""
        lines = self._lines(settings, known_hosts_name(settings))
        return list(dict.fromkeys(line.kind for line in lines if not line.marker))

    def verify(self, settings: SshHostConfig, kind: str, key: str) -> None:
        """Returns when the key (base64) is the host's. Raises: Unreached, with the remedy."""
        if self._is_revoked(settings, key):
            raise _revoked_error(kind, key, settings.revoked_keys)
        with self._lock:
            lines = self._lines(settings, known_hosts_name(settings))
            verdict = verify_key(lines, key)
            if verdict in ("unknown", "authority") and self._known_without_port(settings, key):
                return
            if verdict == "unknown" and self._accept_new:
                self._remember(settings, KnownHostLine(kind, key))
                return
        if verdict == "changed":
            raise _changed_error(settings, lines, kind, key)
        if verdict == "revoked":
            line = next(line for line in lines if line.key == key and line.marker == "@revoked")
            raise _revoked_error(kind, key, filled("{0} line {1}", line.file, line.number))
        if verdict == "authority" or (verdict == "unknown" and settings.known_hosts_command):
            key_source = "KnownHostsCommand" if settings.known_hosts_command else "a host certificate (@cert-authority)"
            text = filled("its host key is known only by {0}, which this transport cannot check", key_source)
            raise transport_error("unsupported", text, "--transport openssh")
        if verdict == "unknown":
            text = filled(
                "its host key is unknown: compare {0} {1} with the host's own, then add it", kind, key_fingerprint(key)
            )
            raise transport_error("key-unknown", text, _add_command(settings, kind, key))

    def _lines(self, settings: SshHostConfig, sought: str) -> list[KnownHostLine]:
        with self._lock:
            return self._known_files.find((*settings.known_hosts, *settings.global_known_hosts), sought)

    def _known_without_port(self, settings: SshHostConfig, key: str) -> bool:
        """As with ssh, a host known at port 22 is known at all its ports, by the same key."""
        if settings.alias or settings.port == 22:
            return False
        return verify_key(self._lines(settings, settings.name), key) == "known"

    def _remember(self, settings: SshHostConfig, line: KnownHostLine) -> None:
        file = next(iter(settings.known_hosts), "")
        try:
            self._known_files.remember(file, known_hosts_name(settings), line, settings.hash_known_hosts)
        except OSError as error:
            self._warnings.append(
                filled("a new host key could not be added to {0}: {1}", strip_control_chars(file), error.strerror)
            )

    def _is_revoked(self, settings: SshHostConfig, key: str) -> bool:
        """Raises: Unreached, when the list of revoked keys cannot be read: not known is not fine."""
        path = settings.revoked_keys
        if not path:
            return False
        try:
            content = read_bounded(path)
        except OSError as error:
            raise transport_error(
                "error", filled("RevokedHostKeys {0} could not be read: {1}", path, error.strerror)
            ) from None
        if content.startswith(b"SSHKRL\n"):
            text = filled("RevokedHostKeys {0} is a binary list, which this transport cannot read", path)
            raise transport_error("unsupported", text, "--transport openssh")
        return key.encode() in content.split()


def known_hosts_name(settings: SshHostConfig) -> str:
    """The name under which known_hosts has the host."""
    return settings.alias or host_entry_name(settings.name, settings.port)


def _revoked_error(kind: str, key: str, where: str) -> TransportError:
    return transport_error(
        "key-revoked", filled("its host key, {0} {1}, is revoked by {2}", kind, key_fingerprint(key), where)
    )


def _changed_error(settings: SshHostConfig, lines: list[KnownHostLine], kind: str, key: str) -> TransportError:
    host_lines = [line for line in lines if not line.marker]
    line = next((line for line in host_lines if line.kind == kind), host_lines[0])
    text = filled(
        "its host key has changed: it shows {0} {1}, and {2} line {3} has {4} {5}: another machine "
        "answers, or it was reinstalled",
        kind,
        key_fingerprint(key),
        line.file,
        line.number,
        line.kind,
        key_fingerprint(line.key),
    )
    return transport_error(
        "key-changed", text, f"ssh-keygen -R {shlex.quote(known_hosts_name(settings))} -f {shlex.quote(line.file)}"
    )


def _add_command(settings: SshHostConfig, kind: str, key: str) -> str:
    """The command that adds the key. Where ssh-keyscan fails, or gets another name, the command has the key itself."""
    file = next((path for path in settings.known_hosts if path not in _NO_FILE), "")
    if not file:
        return "--accept-new"
    if settings.alias or settings.jumps or settings.proxy:
        return filled("echo {0} >> {1}", shlex.quote(f"{known_hosts_name(settings)} {kind} {key}"), shlex.quote(file))
    scanned = _KEYSCAN_TYPES.get(kind, "ecdsa")
    hashing = "-H " if settings.hash_known_hosts else ""
    host = shlex.quote(settings.name)
    return f"ssh-keyscan {hashing}-p {settings.port} -t {scanned} {host} >> {shlex.quote(file)}"

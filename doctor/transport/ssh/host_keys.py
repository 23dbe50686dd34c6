"""Whether a host's key is the one that the user knows."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path

from doctor.engine.sanitize import plain
from doctor.transport import Unreached
from doctor.transport.messages import unreached
from doctor.transport.ssh.config import Settings
from doctor.transport.ssh.known_hosts import KnownFiles, Line, fingerprint, judge, spelled

_NOWHERE = ("/dev/null", "")
_KEYSCAN = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}


class Trust:
    """Decides on host keys, by the user's and the system's known_hosts files."""

    def __init__(self, accept_new: bool, warnings: list[str]) -> None:
        self._warnings = warnings
        self._accept_new = accept_new
        self._known = KnownFiles(warnings)
        self._lock = threading.RLock()

    def kinds(self, settings: Settings) -> list[str]:
        """The types of key that are known for the host, to ask it for one of these."""
        lines = self._lines(settings, name(settings))
        return list(dict.fromkeys(line.kind for line in lines if not line.marker))

    def check(self, settings: Settings, kind: str, key: str) -> None:
        """Returns when the key (base64) is the host's. Raises: Unreached, saying what to do about it."""
        if self._revoked(settings, key):
            raise _revoked(kind, key, settings.revoked_keys)
        with self._lock:
            lines = self._lines(settings, name(settings))
            verdict = judge(lines, key)
            if verdict in ("unknown", "authority") and self._known_without_port(settings, key):
                return
            if verdict == "unknown" and self._accept_new:
                self._remember(settings, Line(kind, key))
                return
        if verdict == "changed":
            raise _changed(settings, lines, kind, key)
        if verdict == "revoked":
            line = next(line for line in lines if line.key == key and line.marker == "@revoked")
            raise _revoked(kind, key, f"{line.file} line {line.number}")
        if verdict == "authority" or (verdict == "unknown" and settings.known_hosts_command):
            what = "KnownHostsCommand" if settings.known_hosts_command else "a host certificate (@cert-authority)"
            text = f"its host key is known only by {what}, which this transport cannot check"
            raise unreached("unsupported", text, "--transport openssh")
        if verdict == "unknown":
            text = f"its host key is not known: compare {kind} {fingerprint(key)} with the host's own, then add it"
            raise unreached("key-unknown", text, _adding(settings, kind, key))

    def _lines(self, settings: Settings, sought: str) -> list[Line]:
        with self._lock:
            return self._known.find((*settings.known_hosts, *settings.global_known_hosts), sought)

    def _known_without_port(self, settings: Settings, key: str) -> bool:
        """As with ssh, a host known at port 22 is known at all its ports, by the same key."""
        if settings.alias or settings.port == 22:
            return False
        return judge(self._lines(settings, settings.name), key) == "known"

    def _remember(self, settings: Settings, line: Line) -> None:
        file = next(iter(settings.known_hosts), "")
        try:
            self._known.remember(file, name(settings), line, settings.hash_known_hosts)
        except OSError as error:
            self._warnings.append(f"a new host key could not be added to {plain(file)}: {error.strerror}")

    def _revoked(self, settings: Settings, key: str) -> bool:
        """Raises: Unreached, when the list of revoked keys cannot be read: not known is not fine."""
        path = settings.revoked_keys
        if not path:
            return False
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise unreached("error", f"RevokedHostKeys {path} could not be read: {error.strerror}") from None
        if content.startswith(b"SSHKRL\n"):
            text = f"RevokedHostKeys {path} is a binary list, which this transport cannot read"
            raise unreached("unsupported", text, "--transport openssh")
        return key.encode() in content.split()


def name(settings: Settings) -> str:
    """The name under which known_hosts has the host."""
    return settings.alias or spelled(settings.name, settings.port)


def _revoked(kind: str, key: str, where: str) -> Unreached:
    return unreached("key-revoked", f"its host key, {kind} {fingerprint(key)}, is revoked by {where}")


def _changed(settings: Settings, lines: list[Line], kind: str, key: str) -> Unreached:
    own = [line for line in lines if not line.marker]
    line = next((line for line in own if line.kind == kind), own[0])
    text = (
        f"its host key has changed: it shows {kind} {fingerprint(key)}, and {line.file} line {line.number} has "
        f"{line.kind} {fingerprint(line.key)}: another machine answers, or it was installed anew"
    )
    return unreached("key-changed", text, f"ssh-keygen -R {shlex.quote(name(settings))} -f {shlex.quote(line.file)}")


def _adding(settings: Settings, kind: str, key: str) -> str:
    """The command that adds the key. Where ssh-keyscan does not get, or gets another name, the key itself is told."""
    file = next((path for path in settings.known_hosts if path not in _NOWHERE), "")
    if not file:
        return "--accept-new"
    if settings.alias or settings.jumps or settings.proxy:
        return f"echo {shlex.quote(f'{name(settings)} {kind} {key}')} >> {shlex.quote(file)}"
    scanned = _KEYSCAN.get(kind, "ecdsa")
    hashing = "-H " if settings.hash_known_hosts else ""
    host = shlex.quote(settings.name)
    return f"ssh-keyscan {hashing}-p {settings.port} -t {scanned} {host} >> {shlex.quote(file)}"

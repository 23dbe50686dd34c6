"""What became of an ssh(1) that ended: read from its own log, which it keeps apart from what the host printed."""

from __future__ import annotations

import re
import shlex

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.transport import TransportError, TransportErrorKind, transport_error
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.host_keys import known_hosts_name
from doctor.transport.ssh.stream import START_SSHD, describe_port

SSH_FAILED = 255
_COMMAND_SENT = "debug1: Sending command"

_ERROR_PATTERNS: tuple[tuple[str, TransportErrorKind, str], ...] = (
    (r"REVOKED HOST KEY|key is marked as revoked|is revoked by", "key-revoked", "its host key is revoked"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "key-changed", "its host key has changed"),
    (r"Host key verification failed|No \S+ host key is known", "key-unknown", "its host key is unknown"),
    (r"Permission denied \(|Too many authentication failures", "auth", "the login as {user} was refused"),
    (r"Could not resolve hostname", "name", "the name {name} does not resolve"),
    (r"Connection refused", "refused", "{port} refuses connections: nothing listens there"),
    (r"No route to host|Network is unreachable|Host is down", "no-route", "no route to {port}"),
    (r"timed out during banner exchange", "silent", "{port} accepts connections, and sent no SSH banner in time"),
    (
        r"invalid format|Bad packet length|protocol version|no matching \S+.* found",
        "not-ssh",
        "{port} has an incompatible SSH server",
    ),
    (r"timed out", "dropped", "no answer from {port} in time: packets are dropped, or the host is down"),
    (
        r"[Cc]onnection closed|closed by|[Cc]onnection reset|Broken pipe|send disconnect",
        "lost",
        "the connection was cut",
    ),
)


def command_sent(log: str) -> bool:
    """Whether the command was sent to the host."""
    return _COMMAND_SENT in log


def speaks_ssh(log: str) -> bool:
    """Whether the host's SSH server has answered."""
    return "Remote protocol version" in log


def has_exit_status(log: str) -> bool:
    """Whether the host reported the exit status of the command: then 255 is the command's own."""
    statuses = re.findall(r"^debug1: Exit status (-?\d+)", log, re.MULTILINE)
    return bool(statuses) and int(statuses[-1]) >= 0


def error_from_log(log: str, err: bytes, settings: SshHostConfig) -> TransportError:
    """Why ssh failed; ``err`` is what came on stderr, where a ProxyCommand or a jump host's ssh complains."""
    visible_text = _visible_text(log)
    if re.search(r"rtype exit-signal", log):
        return transport_error("error", "the command was killed by a signal")
    if _COMMAND_SENT in log:
        return transport_error("lost", "the connection was cut before the command ended")
    proxied = bool(settings.jumps or settings.proxy)
    if proxied and not speaks_ssh(log):
        complaint = err.decode("utf-8", "replace") or visible_text
        way = filled("its jump host {0}", settings.jumps[-1]) if settings.jumps else "its ProxyCommand"
        return transport_error(
            "jump",
            filled("{0} did not connect to it: {1}", way, last_line(complaint)),
            _hint("jump", complaint, settings),
        )
    for sign, kind, text in _ERROR_PATTERNS:
        if re.search(sign, visible_text):
            sentence = filled(text, user=settings.user, name=settings.name, port=describe_port(settings))
            return transport_error(
                kind, filled("{0}{1}", sentence, _error_detail(kind, visible_text)), _hint(kind, visible_text, settings)
            )
    return transport_error("error", filled("ssh failed: {0}", last_line(visible_text) or "no reason given"))


def error_kind(text: str) -> TransportErrorKind:
    """The kind of error in what ssh showed.

    >>> error_kind("ssh: connect to host n1 port 22: Connection refused")
    'refused'
    """
    return next((kind for sign, kind, _ in _ERROR_PATTERNS if re.search(sign, text)), "error")


def late_error(log: str, settings: SshHostConfig, timeout: float) -> TransportError:
    """How far ssh had come when its time was up."""
    waited = seconds_text(settings.connect_timeout)
    if _COMMAND_SENT in log:
        return transport_error("timeout", filled("the command did not end within {0}", seconds_text(timeout)))
    if speaks_ssh(log):
        return transport_error(
            "silent", filled("{0} speaks SSH, and the login did not finish within {1}", describe_port(settings), waited)
        )
    if "Connection established" in log:
        return transport_error(
            "silent",
            filled("{0} accepts connections, and sent no SSH banner within {1}", describe_port(settings), waited),
        )
    return transport_error("dropped", filled("no answer from {0} within {1}", describe_port(settings), waited))


def _visible_text(log: str) -> str:
    """What ssh would have shown to a person."""
    lines = (line.strip() for line in log.splitlines() if not re.match(r"debug\d: ", line))
    return "\n".join(line for line in lines if line and not line.startswith("Authenticated to"))


def _error_detail(kind: TransportErrorKind, text: str) -> str:
    match = re.search(r"SHA256:[A-Za-z0-9+/]{43}", text)
    if kind in ("key-changed", "key-revoked") and match:
        return filled(": it shows {0}", match[0])
    if kind in ("auth", "lost", "not-ssh"):
        return filled(": {0}", last_line(text))
    return ""


def _hint(kind: TransportErrorKind, text: str, settings: SshHostConfig) -> str:
    offending = re.search(r"Offending \S+ key in (\S.{0,1000}):\d+", text)
    if kind == "key-changed" and offending:
        return f"ssh-keygen -R {shlex.quote(known_hosts_name(settings))} -f {shlex.quote(offending[1])}"
    if kind == "key-unknown":
        unknown = re.search(r"No (\S+) host key is known", text)
        key_option = f"-t {unknown[1].lower()} " if unknown else ""
        file = next(iter(settings.known_hosts), "~/.ssh/known_hosts")
        return f"ssh-keyscan -p {settings.port} {key_option}{shlex.quote(settings.name)} >> {shlex.quote(file)}"
    return {"auth": f"ssh-copy-id {settings.login}", "refused": START_SSHD}.get(kind, "")

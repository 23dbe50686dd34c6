"""What became of an ssh(1) that ended: read from its own log, which it keeps apart from what the host printed."""

from __future__ import annotations

import re
import shlex

from doctor.engine.sanitize import plain
from doctor.transport import Trouble, Unreached
from doctor.transport.messages import seconds, unreached
from doctor.transport.ssh.config import Settings
from doctor.transport.ssh.host_keys import name
from doctor.transport.ssh.stream import port

SSH_FAILED = 255
_SENT = "debug1: Sending command"

_SIGNS: tuple[tuple[str, Trouble, str], ...] = (
    (r"REVOKED HOST KEY|key is marked as revoked|is revoked by", "key-revoked", "its host key is revoked"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "key-changed", "its host key has changed"),
    (r"Host key verification failed|No \S+ host key is known", "key-unknown", "its host key is not known"),
    (r"Permission denied \(|Too many authentication failures", "auth", "the login as {user} was refused"),
    (r"Could not resolve hostname", "name", "the name {name} does not resolve"),
    (r"Connection refused", "refused", "{port} refuses connections: nothing listens there"),
    (r"No route to host|Network is unreachable|Host is down", "no-route", "there is no way to {port}"),
    (r"timed out during banner exchange", "silent", "{port} accepts connections, and sent no SSH banner in time"),
    (r"invalid format|Bad packet length|protocol version|no matching \S+.* found", "not-ssh", "{port} does not suit"),
    (r"timed out", "dropped", "no answer from {port} in time: packets are dropped on the way, or it is down"),
    (
        r"[Cc]onnection closed|closed by|[Cc]onnection reset|Broken pipe|send disconnect",
        "lost",
        "the connection was cut",
    ),
)


def started(log: str) -> bool:
    """Whether the host was asked to run the command."""
    return _SENT in log


def ended(log: str) -> bool:
    """Whether the host told the exit status of the command: then 255 is the command's own."""
    found = re.findall(r"^debug1: Exit status (-?\d+)", log, re.MULTILINE)
    return bool(found) and int(found[-1]) >= 0


def trouble(log: str, err: bytes, settings: Settings) -> Unreached:
    """Why ssh failed; ``err`` is what came on stderr, where a ProxyCommand or a jump host's ssh complains."""
    words = _own_words(log)
    if re.search(r"rtype exit-signal", log):
        return unreached("error", "the command was ended by a signal")
    if _SENT in log:
        return unreached("lost", "the connection was cut before the command ended")
    proxied = bool(settings.jumps or settings.proxy)
    if proxied and "Remote protocol version" not in log:
        said = err.decode("utf-8", "replace") or words
        way = f"its jump host {settings.jumps[-1]}" if settings.jumps else "its ProxyCommand"
        return unreached("jump", f"{way} did not lead to it: {plain(_last(said))}", _hint("jump", said, settings))
    for sign, kind, text in _SIGNS:
        if re.search(sign, words):
            shown = text.format(user=settings.user, name=settings.name, port=port(settings))
            return unreached(kind, f"{shown}{_more(kind, words)}", _hint(kind, words, settings))
    return unreached("error", f"ssh failed: {plain(_last(words)) or 'it does not say why'}")


def late(log: str, settings: Settings, timeout: float) -> Unreached:
    """How far ssh had come when its time was up."""
    waited = seconds(settings.connect_timeout)
    if _SENT in log:
        return unreached("timeout", f"the command did not end within {seconds(timeout)}")
    if "Remote protocol version" in log:
        return unreached("silent", f"{port(settings)} speaks SSH, and the login was not done within {waited}")
    if "Connection established" in log:
        return unreached("silent", f"{port(settings)} accepts connections, and sent no SSH banner within {waited}")
    return unreached("dropped", f"no answer from {port(settings)} within {waited}")


def _own_words(log: str) -> str:
    """What ssh would have shown to a person."""
    lines = (line.strip() for line in log.splitlines() if not re.match(r"debug\d: ", line))
    return "\n".join(line for line in lines if line and not line.startswith("Authenticated to"))


def _last(words: str) -> str:
    return next((line for line in reversed(words.splitlines()) if line.strip()), "")


def _more(kind: Trouble, words: str) -> str:
    found = re.search(r"SHA256:[A-Za-z0-9+/]{43}", words)
    if kind in ("key-changed", "key-revoked") and found:
        return f": it shows {found[0]}"
    if kind in ("auth", "lost", "not-ssh"):
        return f": {plain(_last(words))}"
    return ""


def _hint(kind: Trouble, words: str, settings: Settings) -> str:
    offending = re.search(r"Offending \S+ key in (\S.*):\d+", words)
    if kind == "key-changed" and offending:
        return f"ssh-keygen -R {shlex.quote(name(settings))} -f {shlex.quote(offending[1])}"
    if kind == "key-unknown":
        unknown = re.search(r"No (\S+) host key is known", words)
        asked = f"-t {unknown[1].lower()} " if unknown else ""
        file = next(iter(settings.known_hosts), "~/.ssh/known_hosts")
        return f"ssh-keyscan -p {settings.port} {asked}{shlex.quote(settings.name)} >> {shlex.quote(file)}"
    return {"auth": f"ssh-copy-id {settings.host}", "refused": "is its sshd running?"}.get(kind, "")

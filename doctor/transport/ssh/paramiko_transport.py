"""paramiko's Transport, faster, without logging, and with the reasons that it would only log.

What is overridden here beyond the public interface only adds: should a later paramiko not call it, a detail of a
message is lost and nothing else.
"""

from __future__ import annotations

import io
import logging
import signal
import threading
import time
from typing import Any

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import TransportError, transport_error
from doctor.transport.ssh.lean_paramiko import Packetizer, paramiko
from doctor.transport.ssh.stream import Stream

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else its errors go to stderr
_LARGEST_PACKET = 1 << 20
_CHANNEL_DATA, _CHANNEL_REQUEST = 94, 98
_QUICK_KEX = ("curve25519-sha256@libssh.org",)
_QUICK_CIPHERS = ("aes128-gcm@openssh.com", "aes128-ctr")
_QUICK_MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-256")
"""The cheapest of what is safe: some ten milliseconds of CPU a host less than the costliest."""


def _preferred_first(preferred: tuple[str, ...], supported: tuple[str, ...]) -> tuple[str, ...]:
    """What we like best, then all the rest for older servers."""
    return tuple(name for name in preferred if name in supported) + tuple(
        name for name in supported if name not in preferred
    )


class _Packets(Packetizer):
    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)  # type: ignore[arg-type]
        self.stream = stream

    def start_handshake(self, timeout: float) -> None:
        """No Timer thread for each connection: `SshConnection.wait` has the deadline."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Raises: SSHException, when the host announces a packet that no sshd would send."""
        if n > _LARGEST_PACKET:
            raise paramiko.SSHException("a packet larger than any that SSH allows")
        # Most packets come several at once: what is there already needs none of paramiko's waiting.
        if not getattr(self, "_Packetizer__remainder", b"?") and (ready := self.stream.take(n)):
            return ready
        return super().read_all(n, check_rekey)


class DataEvent(threading.Event):
    """Rings for data, and stays so until we have looked: paramiko would silence it after each buffer."""

    def clear(self) -> None:
        """Not listened to; see `reset`."""

    def reset(self) -> None:
        super().clear()


class SshConnection(paramiko.Transport):
    """One SSH connection."""

    def __init__(self, stream: Stream, where: str, timeout: float, deadline: float) -> None:
        super().__init__(stream, packetizer_class=_Packets)  # type: ignore[arg-type]
        self.stream, self.where, self.timeout = stream, where, timeout
        self.deadline = stream.deadline = deadline
        self.disconnect_message = ""
        """The host's message when it disconnected."""
        self.refusals: dict[int, str] = {}
        """Why channels were not opened, by number."""
        self.signals: dict[int, str] = {}
        """The signals that ended commands, by the channel's number."""
        self._thread_local = threading.local()

    def prefer_keys(self, kinds: list[str]) -> None:
        """Asks for a host key of a type that is known, if the host has one."""
        key_types = [
            name for kind in kinds for name in (("rsa-sha2-512", "rsa-sha2-256") if "rsa" in kind else (kind,))
        ]
        options = self.get_security_options()
        options.key_types = _preferred_first(tuple(dict.fromkeys(key_types)), tuple(options.key_types))

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """We disable none, and are asked for all of them again and again."""
        preferred: tuple[str, ...] = getattr(self, f"_preferred_{type_}")
        return preferred

    def wait(self, event: threading.Event, stage: str) -> None:
        """Waits for an event of the connecting stages. Raises: Unreached."""
        ended = event.wait(max(self.deadline - time.monotonic(), 0))
        if not self.is_active():
            raise self.broken_error(stage)
        if not ended:
            raise self.late_error(stage)

    def late_error(self, stage: str) -> TransportError:
        """A stage that was not done in time."""
        text = filled(
            "{0} speaks SSH, and {1} did not finish within {2}", self.where, stage, seconds_text(self.timeout)
        )
        lost, hint = self.stream.lost_segments()
        text = joined(": ", (text, lost)) if lost else text
        return transport_error("silent", text, hint or "its sshd hangs or is overloaded: see its log")

    def broken_error(self, stage: str) -> TransportError:
        """Why the connection ended."""
        error = self.get_exception()
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            text = filled("no common algorithm with {0}: {1}", self.where, strip_control_chars(str(error)))
            return transport_error("not-ssh", text, "--transport openssh")
        if isinstance(error, paramiko.SSHException):
            return transport_error(
                "error", filled("{0} with {1} failed: {2}", stage, self.where, strip_control_chars(str(error)))
            )
        reason = filled(": {0}", self.disconnect_message) if self.disconnect_message else ""
        return transport_error("lost", filled("the connection was cut during {0}{1}", stage, reason))

    def close(self) -> None:
        super().close()
        self.stream.close()

    def last_channel_number(self) -> int:
        """The channel that this thread opened, or tried to open, last."""
        return int(getattr(self._thread_local, "number", -1))

    def _next_channel(self) -> int:
        number: int = super()._next_channel()  # type: ignore[misc]
        self._thread_local.number = number
        return number

    def _log(self, level: int, msg: Any, *args: Any) -> None:
        """Says nothing."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Leaves unread what the host says for a log; sshd says it to all whose key has options."""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.disconnect_message = strip_control_chars(m.get_string())

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        number, _, message = m.get_int(), m.get_int(), m.get_string()
        self.refusals[number] = strip_control_chars(message)
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]


def _recording_signals(table: dict[int, Any]) -> dict[int, Any]:
    """A table of handlers that notes the signal that ended a command, which paramiko passes over."""
    handle = table.get(_CHANNEL_REQUEST)

    def request(channel: paramiko.Channel, message: paramiko.Message) -> None:
        content = message.asbytes()
        if message.get_string() == b"exit-signal" and isinstance(channel.transport, SshConnection):
            message.get_boolean()
            channel.transport.signals[channel.chanid] = message.get_string().decode("ascii", "replace")
        again = paramiko.Message(content)
        again.get_int()  # the channel's number, already read
        if handle:
            handle(channel, again)

    return {**table, _CHANNEL_REQUEST: request} if handle else table


def _forgetting_data(table: dict[int, Any]) -> dict[int, Any]:
    """A table of handlers that leaves nothing of the last data in the message, which paramiko keeps until the next."""
    handle = table.get(_CHANNEL_DATA)

    def feed(channel: paramiko.Channel, message: paramiko.Message) -> None:
        if handle:
            handle(channel, message)
        message.packet = io.BytesIO()

    return {**table, _CHANNEL_DATA: feed} if handle else table


def _prefer_quick() -> None:
    """Once for all connections: paramiko tests each list of algorithms that a connection is set to."""
    for name, quick in (("kex", _QUICK_KEX), ("ciphers", _QUICK_CIPHERS), ("macs", _QUICK_MACS)):
        supported: tuple[str, ...] = getattr(paramiko.Transport, f"_preferred_{name}")
        setattr(SshConnection, f"_preferred_{name}", _preferred_first(quick, supported))


_prefer_quick()
SshConnection._channel_handler_table = _forgetting_data(  # type: ignore[attr-defined]
    _recording_signals(getattr(paramiko.Transport, "_channel_handler_table", {}))
)


def signal_number(name: str) -> int:
    """The number of a signal that SSH names without its SIG; 0 when there is no such."""
    return int(getattr(signal, "SIG" + name, 0)) if name.isalnum() else 0

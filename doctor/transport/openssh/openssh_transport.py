"""SSH by the ssh program itself: for security keys, host certificates, GSSAPI and all else that it alone can do."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from doctor.engine.addresses import is_plain_address
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import SILENCE, LineSession
from doctor.transport.local import Children, PipeChannel, run_command
from doctor.transport.openssh import log as openssh_log
from doctor.transport.options import CONNECT_TIMEOUT, SshOptions
from doctor.transport.ssh import config
from doctor.transport.ssh.config import SshHostConfig, Target
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.lost_segments import with_lost_echo

_LOG_TAIL_BYTES = 1 << 16
_FIXED_OPTIONS = (
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "NumberOfPasswordPrompts=1",
    "LogLevel=DEBUG1",
)
_KEEPALIVE = (f"ServerAliveInterval={round(SILENCE / 3)}", "ServerAliveCountMax=2")
_SHORT_LISTS = (
    "KexAlgorithms=curve25519-sha256,ecdh-sha2-nistp256",
    "Ciphers=aes128-ctr,aes128-gcm@openssh.com",
    "MACs=hmac-sha2-256",
)
_ANEW_SECONDS = 10.0
"""To connect once more to a host whose SSH server has answered."""
_POLL_SECONDS = 0.02
"""Seconds between two readings of ssh's log."""
_ASKPASS_SCRIPT = """\
#!/bin/sh
case $1 in *passphrase*) exit 1 ;; *"$DOCTOR_ASKED_FOR"*) printf '%s\\n' "$DOCTOR_PASSWORD" ;; *) exit 1 ;; esac
"""


class OpenSsh:
    """`doctor.transport.Transport` by one ssh process a command."""

    def __init__(self, options: SshOptions | None = None) -> None:
        self.warnings: list[str] = []
        self.reached: dict[str, str] = {}
        """The address of each host that ssh reaches by itself, where the configuration names an address."""
        self._options = options or SshOptions()
        self._children = Children()
        self._resolver = Resolver(self._options, self._children, self.warnings)
        self.resolve = self._resolver.resolve
        self._temporary = tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)  # for its owner alone
        self._number = itertools.count()
        self._ssh = shutil.which("ssh")

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """See `doctor.transport.Transport.run`.

        ``sent`` is when ssh was started: here nothing tells when the command itself was. A command that hangs is
        ended when the time to connect and its own time are over.
        """
        settings, log, argv = self._prepare(host, command)
        try:
            result = self._run_ssh(argv, stdin, timeout, log, settings)
            if result.code == openssh_log.SSH_FAILED and not openssh_log.has_exit_status(_read_tail(log)):
                error = openssh_log.error_from_log(_read_tail(log), result.err, settings)
                raise TransportError(error.kind, error.text, error.hint, result)
        finally:
            log.unlink(missing_ok=True)
        return result

    def open_session(self, host: str, command: str) -> RemoteSession:
        settings, log, argv = self._prepare(host, command, *_KEEPALIVE)
        patience = settings.connect_timeout * (1 + len(settings.jumps))
        child = self._children.start(argv, self._environment(settings))

        def interpret_status(code: int) -> int | None:
            log_text = _read_tail(log)
            log.unlink(missing_ok=True)
            if code == openssh_log.SSH_FAILED and not openssh_log.has_exit_status(log_text):
                raise openssh_log.error_from_log(log_text, lines.err, settings)
            return code if code >= 0 else None  # ssh itself was killed

        channel = PipeChannel(self._children, child, interpret_status)
        lines = LineSession(host, channel)
        try:
            self._await_start(channel, log, settings, patience)
        except BaseException:
            lines.close(0.0)
            raise
        if channel.ended() and not openssh_log.command_sent(_read_tail(log)):
            list(lines)  # raises why
        return lines

    def _await_start(self, channel: PipeChannel, log: Path, settings: SshHostConfig, patience: float) -> None:
        """Waits until the command was sent, or ssh has ended. Raises: Unreached."""
        deadline = time.monotonic() + patience
        while not openssh_log.command_sent(_read_tail(log)) and not channel.ended():
            if time.monotonic() > deadline:
                raise openssh_log.late_error(_read_tail(log), settings, patience)
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        self._children.close()
        self._temporary.cleanup()

    def _prepare(self, host: str, command: str, *extra: str) -> tuple[SshHostConfig, Path, list[str]]:
        """The settings for a host, ssh's log, and its command line."""
        if not self._ssh:
            raise transport_error("error", "ssh is not installed on this machine", "--transport ssh")
        target, settings = config.target_of(host, self._options), self._resolver.resolve(host)
        patience = self._options.connect_timeout or settings.connect_timeout or CONNECT_TIMEOUT
        settings = config.with_connect_timeout(settings, patience)
        if not settings.jumps and not settings.proxy and is_plain_address(settings.name):
            self.reached[host] = settings.name
        log = self._folder / f"{next(self._number)}.log"
        if settings.name == self._options.addresses.get(target.name):
            extra += (f"HostName={settings.name}",)
        argv = [self._ssh, "-E", str(log), *self._argv(settings, *extra), *_target_argv(target, self._options)]
        return settings, log, [*argv, "--", target.name, command]

    def _run_ssh(
        self, argv: list[str], stdin: bytes, timeout: float, log: Path, settings: SshHostConfig
    ) -> CommandResult:
        limit, total_timeout = self._options.max_output, settings.connect_timeout * (1 + len(settings.jumps)) + timeout
        try:
            return run_command(self._children, argv, stdin, total_timeout, limit, self._environment(settings))
        except TransportError as error:
            if error.kind != "timeout":
                raise
            reason = openssh_log.late_error(_read_tail(log), settings, timeout)
            late = TransportError(reason.kind, reason.text, reason.hint, error.partial_result)
            if openssh_log.speaks_ssh(_read_tail(log)):
                late = with_lost_echo(late, partial(self._run_anew, settings.host), settings)
            raise late from None

    def _run_anew(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """`run` with few algorithms, so that the login needs no large packet."""
        settings, log, argv = self._prepare(host, command, *_SHORT_LISTS)
        seconds = min(settings.connect_timeout, _ANEW_SECONDS) * (1 + len(settings.jumps)) + timeout
        try:
            return run_command(self._children, argv, stdin, seconds, _LOG_TAIL_BYTES, self._environment(settings))
        finally:
            log.unlink(missing_ok=True)

    def _argv(self, settings: SshHostConfig, *extra: str) -> list[str]:
        options = self._options
        ssh_options = [
            *_FIXED_OPTIONS,
            f"BatchMode={'no' if options.password else 'yes'}",
            f"StrictHostKeyChecking={'accept-new' if options.accept_new else 'yes'}",
            f"ConnectTimeout={max(1, math.ceil(settings.connect_timeout))}",
            *([] if options.agent else ["IdentityAgent=none"]),
            *options.settings,
            *extra,
        ]
        argv = ["-T", "-a", "-x", *(["-F", options.config] if options.config else [])]
        return argv + [word for setting in ssh_options for word in ("-o", setting)]

    def _environment(self, settings: SshHostConfig) -> dict[str, str]:
        """With a password: a program that gives it to ssh, for this host only."""
        environment = dict(os.environ, LC_ALL="C")
        if not self._options.password:
            return environment
        answer = self._folder / "answer"
        if not answer.exists():
            with contextlib.suppress(FileExistsError):
                fresh = self._folder / f"answer.{next(self._number)}"
                fresh.write_text(_ASKPASS_SCRIPT)
                fresh.chmod(0o700)
                fresh.replace(answer)
        return environment | {
            "SSH_ASKPASS": str(answer),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
            "DOCTOR_ASKED_FOR": f"{settings.user}@{settings.alias or settings.name}",
            "DOCTOR_PASSWORD": self._options.password,
        }


def _target_argv(target: Target, options: SshOptions) -> list[str]:
    user, number = target.user or options.user, target.port or options.port
    argv = [word for path in options.identity for word in ("-i", path)]
    argv += ["-l", user] if user else []
    return argv + (["-p", str(number)] if number else [])


def _read_tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""

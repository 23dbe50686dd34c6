"""SSH by the ssh program itself: for security keys, host certificates, GSSAPI and whatever else it alone can do."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import tempfile
import time
from pathlib import Path

from doctor.transport import Conversation, Said, Unreached
from doctor.transport.conversation import SILENCE, Lines
from doctor.transport.messages import unreached
from doctor.transport.openssh import log as openssh_log
from doctor.transport.options import CONNECT_TIMEOUT, Options
from doctor.transport.pipes import Pipes
from doctor.transport.process import Children, converse
from doctor.transport.ssh import config
from doctor.transport.ssh.config import Settings, Target
from doctor.transport.ssh.config_resolver import Resolver

_LOG = 1 << 16
_FIXED = (
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "NumberOfPasswordPrompts=1",
    "LogLevel=DEBUG1",
)
_ALIVE = (f"ServerAliveInterval={round(SILENCE / 3)}", "ServerAliveCountMax=2")
_LOOK = 0.02
"""Seconds between two looks at how far ssh has come."""
_ANSWER = """\
#!/bin/sh
case $1 in *passphrase*) exit 1 ;; *"$DOCTOR_ASKED_FOR"*) printf '%s\\n' "$DOCTOR_PASSWORD" ;; *) exit 1 ;; esac
"""


class OpenSsh:
    """`doctor.transport.Transport` by one ssh process a command."""

    def __init__(self, options: Options | None = None) -> None:
        self.warnings: list[str] = []
        self._options = options or Options()
        self._children = Children()
        self._resolver = Resolver(self._options, self._children, self.warnings)
        self._temporary = tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)  # for its owner alone
        self._number = itertools.count()
        self._ssh = shutil.which("ssh")

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> Said:
        """See `doctor.transport.Transport.run`.

        ``sent`` is when ssh was started: here nothing tells when the command itself was. A command that hangs is
        ended when the time to connect and its own time are over.
        """
        settings, log, argv = self._prepare(host, command)
        try:
            said = self._converse(argv, stdin, timeout, log, settings)
            if said.code == openssh_log.SSH_FAILED and not openssh_log.ended(_tail(log)):
                error = openssh_log.trouble(_tail(log), said.err, settings)
                raise Unreached(error.kind, error.text, error.hint, said)
        finally:
            log.unlink(missing_ok=True)
        return said

    def talk(self, host: str, command: str) -> Conversation:
        """See `doctor.transport.Transport.talk`."""
        settings, log, argv = self._prepare(host, command, *_ALIVE)
        patience = settings.connect_timeout * (1 + len(settings.jumps))
        child = self._children.start(argv, self._environment(settings))

        def judge(code: int) -> int | None:
            words = _tail(log)
            log.unlink(missing_ok=True)
            if code == openssh_log.SSH_FAILED and not openssh_log.ended(words):
                raise openssh_log.trouble(words, lines.err, settings)
            return code if code >= 0 else None  # ssh itself was killed

        far = Pipes(self._children, child, judge)
        lines = Lines(host, far)
        try:
            self._await(far, log, settings, patience)
        except BaseException:
            lines.close(0.0)
            raise
        if far.ended() and not openssh_log.started(_tail(log)):
            list(lines)  # raises why
        return lines

    def _await(self, far: Pipes, log: Path, settings: Settings, patience: float) -> None:
        """Until the command was asked for, or ssh has ended. Raises: Unreached."""
        deadline = time.monotonic() + patience
        while not openssh_log.started(_tail(log)) and not far.ended():
            if time.monotonic() > deadline:
                raise openssh_log.late(_tail(log), settings, patience)
            time.sleep(_LOOK)

    def close(self) -> None:
        self._children.close()
        self._temporary.cleanup()

    def _prepare(self, host: str, command: str, *extra: str) -> tuple[Settings, Path, list[str]]:
        """The settings for a host, ssh's log, and its command line."""
        if not self._ssh:
            raise unreached("error", "there is no ssh program here", "--transport ssh")
        target, settings = config.target(host), self._resolver.of(host)
        patience = self._options.connect_timeout or settings.connect_timeout or CONNECT_TIMEOUT
        settings = config.timed(settings, patience)
        log = self._folder / f"{next(self._number)}.log"
        argv = [self._ssh, "-E", str(log), *self._argv(settings, *extra), *_aim(target, self._options)]
        return settings, log, [*argv, "--", target.name, command]

    def _converse(self, argv: list[str], stdin: bytes, timeout: float, log: Path, settings: Settings) -> Said:
        limit, whole = self._options.max_output, settings.connect_timeout * (1 + len(settings.jumps)) + timeout
        try:
            return converse(self._children, argv, stdin, whole, limit, self._environment(settings))
        except Unreached as error:
            if error.kind != "timeout":
                raise
            reason = openssh_log.late(_tail(log), settings, timeout)
            raise Unreached(reason.kind, reason.text, reason.hint, error.said) from None

    def _argv(self, settings: Settings, *extra: str) -> list[str]:
        options = self._options
        given = [
            *_FIXED,
            f"BatchMode={'no' if options.password else 'yes'}",
            f"StrictHostKeyChecking={'accept-new' if options.accept_new else 'yes'}",
            f"ConnectTimeout={max(1, math.ceil(settings.connect_timeout))}",
            *([] if options.agent else ["IdentityAgent=none"]),
            *options.settings,
            *extra,
        ]
        argv = ["-T", "-a", "-x", *(["-F", options.config] if options.config else [])]
        return argv + [word for setting in given for word in ("-o", setting)]

    def _environment(self, settings: Settings) -> dict[str, str]:
        """With a password, a program that tells it to ssh when it asks for this host, and to nobody else."""
        environment = dict(os.environ, LC_ALL="C")
        if not self._options.password:
            return environment
        answer = self._folder / "answer"
        if not answer.exists():
            with contextlib.suppress(FileExistsError):
                fresh = self._folder / f"answer.{next(self._number)}"
                fresh.write_text(_ANSWER)
                fresh.chmod(0o700)
                fresh.replace(answer)
        return environment | {
            "SSH_ASKPASS": str(answer),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
            "DOCTOR_ASKED_FOR": f"{settings.user}@{settings.alias or settings.name}",
            "DOCTOR_PASSWORD": self._options.password,
        }


def _aim(target: Target, options: Options) -> list[str]:
    user, number = target.user or options.user, target.port or options.port
    argv = [word for path in options.identity for word in ("-i", path)]
    argv += ["-l", user] if user else []
    return argv + (["-p", str(number)] if number else [])


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""

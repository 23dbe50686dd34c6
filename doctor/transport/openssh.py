"""SSH by the ssh program itself: for security keys, host certificates, GSSAPI and whatever else it alone can do."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import tempfile
from pathlib import Path

from doctor.transport import Said, Unreached, openssh_log, ssh_config
from doctor.transport.options import CONNECT_TIMEOUT, Options
from doctor.transport.process import Children, converse
from doctor.transport.resolver import Resolver
from doctor.transport.ssh_config import Settings, Target
from doctor.transport.wording import unreached

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
        if not self._ssh:
            raise unreached("error", "there is no ssh program here", "--transport ssh")
        target, settings = ssh_config.target(host), self._resolver.of(host)
        patience = self._options.connect_timeout or settings.connect_timeout or CONNECT_TIMEOUT
        settings = ssh_config.timed(settings, patience)
        log = self._folder / f"{next(self._number)}.log"
        argv = [self._ssh, "-E", str(log), *self._argv(settings), *_aim(target, self._options), "--", target.name]
        try:
            said = self._converse([*argv, command], stdin, timeout, log, settings)
            if said.code == openssh_log.SSH_FAILED and not openssh_log.ended(_tail(log)):
                error = openssh_log.trouble(_tail(log), said.err, settings)
                raise Unreached(error.kind, error.text, error.hint, said)
        finally:
            log.unlink(missing_ok=True)
        return said

    def close(self) -> None:
        self._children.close()
        self._temporary.cleanup()

    def _converse(self, argv: list[str], stdin: bytes, timeout: float, log: Path, settings: Settings) -> Said:
        limit, whole = self._options.max_output, settings.connect_timeout * (1 + len(settings.jumps)) + timeout
        try:
            return converse(self._children, argv, stdin, whole, limit, self._environment(settings))
        except Unreached as error:
            if error.kind != "timeout":
                raise
            reason = openssh_log.late(_tail(log), settings, timeout)
            raise Unreached(reason.kind, reason.text, reason.hint, error.said) from None

    def _argv(self, settings: Settings) -> list[str]:
        options = self._options
        given = [
            *_FIXED,
            f"BatchMode={'no' if options.password else 'yes'}",
            f"StrictHostKeyChecking={'accept-new' if options.accept_new else 'yes'}",
            f"ConnectTimeout={max(1, math.ceil(settings.connect_timeout))}",
            *([] if options.agent else ["IdentityAgent=none"]),
            *options.settings,
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

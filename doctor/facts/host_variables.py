"""The variables that a host itself sets for ranks: its shell's start-up files, and those of NCCL."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.variables import communication

_GPU_FILES = ("nvidia", "kfd", "dxg")


def read_startup_variables(arguments: ProbeArguments) -> dict[str, str] | None:
    """Runs on the host: the variables of communication, each bounded; None where no shell starts the ranks."""
    if not arguments.get("by_login"):
        return None
    libraries = ("NCCL_", "GLOO_", "HCCL_", "TP_", "TORCH_")
    names = sorted(name for name in os.environ if name.startswith(libraries) and len(name) < 70)
    return {name: os.environ[name][:256] for name in names[:64]}


class StartupVariables(Fact, frozen=True):
    """What the start-up files of a host's shell set for programs that are started over SSH.

    Raw output, as JSON::

        {"GLOO_SOCKET_IFNAME": "eth1"}
    """

    probe = ask(read_startup_variables, job=True)

    variables: dict[str, str]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> StartupVariables:
        if (variables := msgspec.convert(answer.json(), dict[str, str] | None)) is None:
            raise Absent("no shell on the hosts starts the ranks")
        return cls(variables=communication(variables))


def read_nccl_files(arguments: ProbeArguments) -> dict[str, str] | None:
    """Runs on the host: the files of variables that NCCL reads, in its order; None without a device file of a GPU."""
    if not any(name.startswith(_GPU_FILES) for name in os.listdir("/dev")):
        return None
    environ = dict(os.environ, **arguments.get("environ", {}))
    paths = (environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf"), "/etc/nccl.conf")
    texts = {}
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:  # NCCL passes over it, too
            continue
        with os.fdopen(fd, "rb") as file:
            texts[path] = file.read(1 << 16).decode("utf-8", "replace") if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    return texts


class NcclFiles(Fact, frozen=True):
    r"""The variables that NCCL's own files set on a host with GPUs, where its environment has no such variable.

    Raw output, as JSON::

        {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=eth0\n"}

    Source: NCCL documentation, "Environment Variables", and src/misc/param.cc (``initEnvFunc``): NCCL_CONF_FILE, else
    ~/.nccl.conf, then /etc/nccl.conf; a line sets what no line before it sets.
    """

    probe = ask(read_nccl_files, job=True)

    variables: dict[str, str]
    paths: dict[str, str]
    """By variable, the file that sets it."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NcclFiles:
        if (texts := msgspec.convert(answer.json(), dict[str, str] | None)) is None:
            raise Absent("no GPU: NCCL has no settings to read")
        variables: dict[str, str] = {}
        paths: dict[str, str] = {}
        for path, text in texts.items():
            for line in text.splitlines():
                name, equals, value = line.partition("=")
                if equals and re.fullmatch(r"NCCL_[A-Z0-9_]{1,60}", name, re.ASCII) and name not in paths:
                    variables[name], paths[name] = printable(value, 256), printable(path, 200)
        return cls(variables=variables, paths=paths)


_FILES = "~/.bashrc ~/.bash_profile ~/.profile /etc/environment /etc/bash.bashrc /etc/profile.d/*.sh"


def comment_out(variable: str, hosts: Sequence[str]) -> str:
    """How the line of a start-up file that sets a variable is made a comment on these hosts.

    >>> comment_out("GLOO_SOCKET_IFNAME", ["n2"])[:48]
    'On n2, a start-up file of the shell sets GLOO_SO'
    """
    return filled(
        "On {0}, a start-up file of the shell sets {1}. Make the line a comment: "
        "`sed -i.bak -E '/^ *(export )?{1}=/s/^/#/' $(grep -lsE '^ *(export )?{1}=' {2})`.",
        ", ".join(hosts[:4]),
        variable,
        _FILES,
    )

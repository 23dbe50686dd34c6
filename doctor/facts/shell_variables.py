"""The variables by which a host's own shell sets how the ranks that it starts communicate."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled
from doctor.job.variables import communication


def read_shell_variables(arguments: ProbeArguments) -> dict[str, str]:
    """Runs on the host: the variables of communication libraries, each bounded."""
    names = sorted(name for name in os.environ if re.match(r"(NCCL|GLOO|HCCL|TP|TORCH)_[A-Z0-9_]{1,60}$", name))
    return {name: os.environ[name][:256] for name in names[:64]}


class ShellVariables(Fact, frozen=True):
    """What the start-up files of a host's shell set for programs that are started over SSH.

    Raw output, as JSON::

        {"GLOO_SOCKET_IFNAME": "eth1"}
    """

    probe = ask(read_shell_variables)

    variables: dict[str, str]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ShellVariables:
        return cls(variables=communication(msgspec.convert(answer.json(), dict[str, str])))


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

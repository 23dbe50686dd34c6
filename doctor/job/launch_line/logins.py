"""How the launchers of a line log in to the other hosts: over SSH, or by the daemons of a scheduler. Pure.

Sources: Open MPI 4.1.4, ``orte/mca/plm`` (``slurm``, ``tm`` and ``lsf`` query their variables and have priority 75,
``rsh`` has 10; Grid Engine's ``qrsh`` and LoadLeveler's ``llspawn`` in ``plm_rsh_component.c``; ``plm_rsh_agent``,
``plm_rsh_args``, ``plm_rsh_no_tree_spawn``) and ``orte/mca/routed/radix``; DeepSpeed,
``deepspeed/launcher/multinode_runner.py`` (PDSHRunner) and ``runner.py``; Horovod, ``horovod/runner/util/remote.py``;
MPICH's Hydra, ``mpiexec -help`` (``-launcher``, ``-rmk``); pdsh(1), "-R" and "PDSH_RCMD_TYPE"; clush(1), "-R", "-o".
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import msgspec

from doctor.job.launch_line.model import OF_LOOP, LaunchCall, LaunchLine

_OF_SSH = ("p", "i", "F", "J", "o", "c", "m", "b", "B", "S")
"""Options of ssh by which it gets to another host."""
_SCHEDULERS = (
    ("SLURM_JOBID",),
    ("PBS_ENVIRONMENT", "PBS_JOBID"),
    ("LSB_JOBID",),
    ("SGE_ROOT", "ARC", "PE_HOSTFILE", "JOB_ID"),
    ("LOADL_STEP_ID",),
)
"""Variables by which launchers see that a scheduler's daemons start their processes."""


class LauncherLogin(msgspec.Struct, frozen=True, kw_only=True):
    """How a launcher logs in to the other hosts over SSH."""

    program: str
    """As the launch line names it: ``mpirun``."""
    arguments: tuple[str, ...] = ()
    """That it gives to ssh."""
    by_tree: bool = False
    """Of many hosts, those that it has reached log in to the next."""
    to_itself: bool = False
    """It also logs in to its own host."""


def launcher_login(line: LaunchLine, environ: Mapping[str, str]) -> LauncherLogin | None:
    """How the first launcher that logs in to hosts over SSH does it; None where none does, or where it cannot be known.

    ``environ``: of the shell that runs the line.
    """
    logins = (_READERS[call.launcher](call, environ) for call in line.launchers if call.launcher in _READERS)
    return next((login for login in logins if login), None)


def _openmpi(call: LaunchCall, environ: Mapping[str, str]) -> LauncherLogin | None:
    def parameter(name: str) -> str:
        pairs = call.options.get("mca", ())  # name and value by turns
        return dict(zip(pairs[::2], pairs[1::2], strict=False)).get(name, environ.get(f"OMPI_MCA_{name}", ""))

    chosen, agent = parameter("plm"), parameter("plm_rsh_agent") or parameter("orte_rsh_agent")
    if "mca" in call.unresolved or (chosen and chosen not in ("rsh", "ssh")):
        return None
    if agent and shlex_words(agent)[:1] not in (["ssh"], ["/usr/bin/ssh"]):
        return None
    if not chosen and _has_scheduler(environ, is_agent_chosen=bool(agent)):
        return None
    arguments = (*shlex_words(agent)[1:], *shlex_words(parameter("plm_rsh_args")))
    by_tree = parameter("plm_rsh_no_tree_spawn").lower() not in ("1", "true", "yes", "t", "enabled")
    return LauncherLogin(program=call.command, arguments=tuple(arguments), by_tree=by_tree)


def _hydra(call: LaunchCall, environ: Mapping[str, str]) -> LauncherLogin | None:
    chosen = call.option("launcher") or environ.get("HYDRA_LAUNCHER", "") or environ.get("I_MPI_HYDRA_BOOTSTRAP", "")
    if chosen not in ("", "ssh") or {"launcher", "launcher-exec", "bootstrap-exec"} & call.unresolved.keys():
        return None
    if call.option("launcher-exec") or call.option("bootstrap-exec") or environ.get("HYDRA_LAUNCHER_EXEC"):
        return None
    return None if not chosen and _has_scheduler(environ) else LauncherLogin(program=call.command)


def _deepspeed(call: LaunchCall, environ: Mapping[str, str]) -> LauncherLogin | None:
    launcher = (call.option("launcher") or "pdsh").lower()
    if "no-ssh" in call.options or {"launcher", "ssh-port"} & call.unresolved.keys():
        return None
    if launcher == "openmpi":
        return _openmpi(call, environ)
    arguments = ("-p", call.option("ssh-port")) if call.option("ssh-port") else ()
    return LauncherLogin(program=call.command, arguments=arguments, to_itself=True) if launcher == "pdsh" else None


def _horovod(call: LaunchCall, environ: Mapping[str, str]) -> LauncherLogin | None:
    if {"ssh-port", "ssh-identity-file"} & call.unresolved.keys() or "LSB_JOBID" in environ or "jsrun" in call.options:
        return None
    options = (("-p", call.option("ssh-port")), ("-i", call.option("ssh-identity-file")))
    arguments = [word for option, value in options if value for word in (option, value)]
    return LauncherLogin(program=call.command, arguments=("-o", "StrictHostKeyChecking=no", *arguments))


def _ssh(call: LaunchCall, environ: Mapping[str, str]) -> LauncherLogin | None:
    """Of pdsh, clush, and of ssh that a loop starts for host after host."""
    program, user = call.command.partition(" ")[0], call.option("l")
    options = ["-l", user] if user else []
    if program == "ssh":
        options += [word for name in _OF_SSH for value in call.options.get(name, ()) for word in (f"-{name}", value)]
        is_known = OF_LOOP.search(call.unresolved.get("host", "")) and "$" not in "".join(options)
        return LauncherLogin(program=program, arguments=tuple(options)) if is_known else None
    names = ("PDSH_SSH_ARGS_APPEND", "PDSH_RCMD_TYPE") if program == "pdsh" else ("", "")
    appended, worker = call.option("options") or environ.get(names[0], ""), call.option("R") or call.option("worker")
    if program not in ("pdsh", "clush") or (worker or environ.get(names[1], "ssh")) != "ssh":
        return None
    return LauncherLogin(program=program, arguments=(*options, *shlex_words(appended)), to_itself=True)


def _has_scheduler(environ: Mapping[str, str], *, is_agent_chosen: bool = False) -> bool:
    names = _SCHEDULERS[:3] if is_agent_chosen else _SCHEDULERS
    return any(all(environ.get(name) for name in group) for group in names)


def shlex_words(text: str) -> list[str]:
    """The words of an option's value; none where it cannot be read."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


_READERS: dict[str, Callable[[LaunchCall, Mapping[str, str]], LauncherLogin | None]] = {
    "openmpi": _openmpi,
    "hydra": _hydra,
    "deepspeed": _deepspeed,
    "horovodrun": _horovod,
    "ssh": _ssh,
}

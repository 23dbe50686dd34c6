"""Commands that run another command: ``env``, ``timeout``, ``numactl``, ``docker run``. Pure.

Sources: coreutils and util-linux manuals; numactl(8); docker-run(1) and podman-run(1); apptainer-exec(1);
kubectl-exec(1); ssh(1); pdsh(1).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from doctor.job.launch_line.launcher import host_list
from doctor.job.launch_line.options import Options, OptionTable, option_table, split_options
from doctor.job.shell.word import Word


class Wrapper(NamedTuple):
    """How a command that runs another is written."""

    table: OptionTable
    positionals: int = 0
    """Words between the options and the command: a duration, an image."""
    subcommands: tuple[str, ...] = ()
    """The word that must follow its name: ``run`` of docker."""
    is_container: bool = False
    inherits_environment: bool = True
    variables: tuple[str, ...] = ()
    """Options with ``NAME=value`` or ``NAME``."""
    is_remote: bool = False
    """The command is shell text for another host."""


_DOCKER = option_table(
    """
    a/attach add-host annotation blkio-weight cap-add cap-drop cgroup-parent cgroupns cidfile cpu-period cpu-quota
    cpu-rt-period cpu-rt-runtime c/cpu-shares cpus cpuset-cpus cpuset-mems detach-keys device device-cgroup-rule
    device-read-bps device-read-iops device-write-bps device-write-iops dns dns-option dns-search domainname entrypoint
    e/env env-file expose gpus group-add health-cmd health-interval health-retries health-timeout h/hostname ip ip6 ipc
    isolation kernel-memory l/label label-file link link-local-ip log-driver log-opt mac-address m/memory
    memory-reservation memory-swap memory-swappiness mount name net/network network net-alias/network-alias
    network-alias oom-score-adj pid pids-limit platform p/publish pull restart runtime security-opt shm-size
    stop-signal stop-timeout storage-opt sysctl tmpfs ulimit u/user userns uts v/volume volume-driver volumes-from
    w/workdir hooks-dir pod arch os variant
    """,
    """
    d/detach disable-content-trust i/interactive t/tty init no-healthcheck oom-kill-disable privileged P/publish-all
    q/quiet read-only rm sig-proxy help replace tls-verify
    """,
)
_DOCKER_EXEC = option_table(
    "detach-keys e/env env-file u/user w/workdir", "d/detach i/interactive t/tty privileged l/latest"
)
_APPTAINER = option_table(
    """
    add-caps app apply-cgroups B/bind bind blkio-weight cpu-shares cpus cpuset-cpus cpuset-mems dns drop-caps env
    env-file fusemount H/home home hostname memory memory-reservation memory-swap mount net network network-args
    overlay o/overlay pem-path pid-file pids-limit pwd cwd S/scratch scratch security W/workdir workdir
    """,
    """
    allow-setuid e/cleanenv cleanenv compat c/contain contain C/containall containall disable-cache docker-login
    f/fakeroot fakeroot i/ipc ipc keep-privs no-eval no-home no-init no-mount no-privs no-umask nv nvccli oci
    passphrase p/pid pid rocm unsquash u/userns userns uts w/writable writable writable-tmpfs q/quiet quiet s/silent
    silent v/verbose verbose d/debug
    """,
)
_KUBECTL = option_table(
    "c/container container n/namespace namespace f/filename context kubeconfig pod-running-timeout",
    "i/stdin stdin t/tty tty q/quiet quiet",
)
_SSH = option_table(
    "B b c D E e F I i J L l m O o p Q R S W w", "4 6 A a C f G g K k M N n q s T t V v X x Y y", abbreviates=False
)

_COMMANDS = {
    "nohup": Wrapper(option_table("")),
    "setsid": Wrapper(option_table("", "c/ctty f/fork w/wait")),
    "exec": Wrapper(option_table("a", "c l")),
    "command": Wrapper(option_table("", "p")),
    "builtin": Wrapper(option_table("")),
    "time": Wrapper(option_table("f/format o/output", "a/append p/portability v/verbose q/quiet")),
    "timeout": Wrapper(option_table("k/kill-after s/signal", "foreground preserve-status v/verbose"), 1),
    "nice": Wrapper(option_table("n/adjustment")),
    "ionice": Wrapper(option_table("c/class n/classdata p/pid", "t/ignore")),
    "chrt": Wrapper(option_table("T P D", "b f i o r d R a m"), 1),
    "stdbuf": Wrapper(option_table("i/input o/output e/error")),
    "unbuffer": Wrapper(option_table("", "p")),
    "sudo": Wrapper(
        option_table(
            "C D/chdir g/group h/host p/prompt R r T U u/user",
            "A b E/preserve-env preserve-env H/set-home i/login k K l n/non-interactive P S s/shell v V",
            assignments_first=True,
        )
    ),
    "taskset": Wrapper(option_table("", "a/all-tasks c/cpu-list p/pid"), 1),
    "numactl": Wrapper(
        option_table(
            "i/interleave w/weighted-interleave P/preferred-many p/preferred N/cpunodebind C/physcpubind m/membind",
            "a/all l/localalloc b/balancing H/hardware s/show",
        )
    ),
    "prlimit": Wrapper(option_table("p/pid o/output", "c d e f i l m n q r s t u v x y nofile nproc memlock core as")),
    "conda": Wrapper(option_table("n/name p/prefix cwd", "no-capture-output live-stream v"), subcommands=("run",)),
    "mamba": Wrapper(option_table("n/name p/prefix cwd", "no-capture-output live-stream"), subcommands=("run",)),
    "micromamba": Wrapper(option_table("n/name p/prefix a/attach e/env", "clean-env"), subcommands=("run",)),
    "uv": Wrapper(
        option_table(
            "with p/python python extra group env-file project directory package", "no-sync frozen locked active"
        ),
        subcommands=("run",),
    ),
    "poetry": Wrapper(option_table("C/directory"), subcommands=("run",)),
    "pipenv": Wrapper(option_table(""), subcommands=("run",)),
    "nsys": Wrapper(
        option_table(
            """
            t/trace trace o/output output s/sample sample c/capture-range capture-range capture-range-end
            f/force-overwrite force-overwrite x/stop-on-exit stop-on-exit y/delay delay d/duration duration
            w/show-output show-output stats export gpu-metrics-device gpu-metrics-devices cuda-graph-trace
            cudabacktrace nic-metrics cpuctxsw backtrace python-sampling pytorch p/nvtx-capture cuda-memory-usage
            trace-fork-before-exec kill session-new e/env-var
            """,
        ),
        subcommands=("profile",),
    ),
    "msprof": Wrapper(
        option_table("output application ascendcl ai-core aic-metrics sys-hardware-mem task-time runtime-api")
    ),
    "docker": Wrapper(_DOCKER, 1, ("run",), True, False, ("env",)),
    "podman": Wrapper(_DOCKER, 1, ("run",), True, False, ("env",)),
    "nerdctl": Wrapper(_DOCKER, 1, ("run",), True, False, ("env",)),
    "apptainer": Wrapper(_APPTAINER, 1, ("exec", "run"), True, True, ("env",)),
    "singularity": Wrapper(_APPTAINER, 1, ("exec", "run"), True, True, ("env",)),
    "enroot": Wrapper(
        option_table("c/conf conf e/env env m/mount mount", "r/root root w/rw rw"), 1, ("start",), True, False, ("env",)
    ),
    "kubectl": Wrapper(_KUBECTL, 1, ("exec",), True, False),
    "ssh": Wrapper(_SSH, 1, is_container=False, inherits_environment=False, is_remote=True),
    "pdsh": Wrapper(option_table("w x g l R t u f", "a b N S"), inherits_environment=False, is_remote=True),
    "clush": Wrapper(option_table("w x g l f t u o", "a b B N S q v L"), inherits_environment=False, is_remote=True),
}
_EXEC = {
    "docker": Wrapper(_DOCKER_EXEC, 1, ("exec",), True, False, ("env",)),
    "podman": Wrapper(_DOCKER_EXEC, 1, ("exec",), True, False, ("env",)),
    "nerdctl": Wrapper(_DOCKER_EXEC, 1, ("exec",), True, False, ("env",)),
}
_ENV = option_table(
    "u/unset C/chdir a/argv0", "i/ignore-environment 0/null v/debug block-signal", assignments_first=True
)


class Unwrapped(NamedTuple):
    """What a wrapper runs, and what it does to the environment."""

    label: str
    argv: tuple[Word, ...]
    environ: dict[str, str]
    unresolved: dict[str, str]
    removed: frozenset[str] = frozenset()
    inherits_environment: bool = True
    passed: tuple[str, ...] = ()
    container: str = ""
    is_shell_text: bool = False
    """The words are the text of a shell, joined with spaces."""
    hosts: tuple[str, ...] = ()
    """Other hosts on which it runs."""


def unwrap(name: str, argv: tuple[Word, ...]) -> Unwrapped | None:
    """What a command runs; None where it is no wrapper. ``words``: those after its name."""
    if name == "env":
        return _unwrap_env(argv)
    wrapper = _COMMANDS.get(name)
    if wrapper and wrapper.subcommands:
        subcommand = argv[0].text if argv else ""
        if name in _EXEC and subcommand == "exec":
            wrapper = _EXEC[name]
        elif subcommand not in wrapper.subcommands:
            return None
        argv = argv[1:]
        name = f"{name} {subcommand}"
    if wrapper is None:
        return None
    table = wrapper.table
    nice = re.fullmatch(r"-[0-9]{1,2}", argv[0].text) if name == "nice" and argv else None
    options = split_options(name, argv[1:] if nice else argv, table)
    rest = options.rest
    environ, unresolved, passed = _variables(options, wrapper.variables)
    positional = rest[0].text if wrapper.positionals and rest else ""
    rest = rest[wrapper.positionals :]
    if name == "kubectl exec":  # its options may follow the pod, and -- comes before the command
        dashes = next((position for position, word in enumerate(rest) if word.text == "--"), -1)
        rest = rest[dashes + 1 :]
    hosts = (positional.rpartition("@")[2],) if name == "ssh" and positional else host_list(options.text("w"))
    return Unwrapped(
        label=f"{name} {positional}".strip(),
        argv=rest,
        environ=environ,
        unresolved={
            **unresolved,
            **{key: text for key, text in options.unresolved.items() if key.startswith("options")},
        },
        inherits_environment=wrapper.inherits_environment and "cleanenv" not in options and "containall" not in options,
        passed=passed,
        container=positional if wrapper.is_container else "",
        is_shell_text=wrapper.is_remote,
        hosts=hosts if wrapper.is_remote else (),
    )


def _variables(options: Options, names: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    environ: dict[str, str] = {}
    unresolved: dict[str, str] = {}
    passed: list[str] = []
    for word in [*options.texts(*names), *options.assignments]:
        name, equals, value = word.text.partition("=")
        if word.unresolved and equals:
            unresolved[f"{name}="] = word.unresolved
        elif equals:
            environ[name] = value
        else:
            passed.append(name)
    return environ, unresolved, tuple(passed)


def _unwrap_env(argv: tuple[Word, ...]) -> Unwrapped:
    options = split_options("env", argv, _ENV)
    environ, unresolved, _ = _variables(options, ())
    rest = list(options.rest)
    while rest and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", rest[0].text, re.ASCII):
        word = rest.pop(0)
        name, _, value = word.text.partition("=")
        if word.unresolved:
            unresolved[f"{name}="] = word.unresolved
        else:
            environ[name] = value
    return Unwrapped(
        label="env",
        argv=tuple(rest),
        environ=environ,
        unresolved={**unresolved, **options.unresolved},
        removed=frozenset(word.text for word in options.texts("unset")),
        inherits_environment="ignore-environment" not in options,
    )

"""The job's intended settings, from the environment and the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from doctor.engine.record import LaunchOptions, LaunchSettings, OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import STARTS_TASKS, SizeKind, StatedSize, python_number, stated_sizes
from doctor.job.variables import (
    AGENT_STORE,
    BY_HOST,
    MINDSPORE_PORT,
    TABLE_VARIABLES,
    TORCH_PORT,
    WORLD_SIZE_VARIABLES,
    of_one_host,
    relevant,
)

if TYPE_CHECKING:
    from doctor.job.variable_values import EnvSetting

HCCL_BASE_PORT = 60000
HCCL_PORTS = 32
"""HCCL takes as many host ports, from the base."""

_BY_HOST = frozenset(BY_HOST)

_STARTS_ON_ITS_OWN_HOST = ("torchrun", "deepspeed", "msrun")
"""Launchers whose ranks meet at the address in the line also where there is one host: accelerate ignores it there.

msrun starts the scheduler where the address is the host's own, and nowhere else (MindSpore,
parallel/cluster/process_entity/_api.py, ``is_master``).
"""

_MEETING_OPTIONS = {
    "torchrun": (
        "`--master-addr {0}`, or `--rdzv-backend c10d --rdzv-endpoint {0}:29400`",
        "`torchrun --master-port {0}`",
    ),
    "msrun": ("`--master_addr {0}`", "`msrun --master_port {0}`"),
    "accelerate": ("`--main_process_ip {0}`", "`accelerate launch --main_process_port {0}`"),
    "deepspeed": ("`--master_addr {0}`", "`deepspeed --master_port {0}`"),
    "colossalai": ("`--master_addr {0}`", "`colossalai run --master_port {0}`"),
}
"""By launcher: the options that give the address and the port where ranks meet.

These launchers set MASTER_PORT for their ranks, and ignore one that is set (tried: torchrun of PyTorch 2.13).
"""

FIRST_OF_SLURM = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
"""In a script of Slurm: the name of the allocation's first host."""

_COMMANDS = {launcher: command.partition(" ")[0] for launcher, (command, *_) in STARTS_TASKS.items()}
"""By launcher, the command that people know it by where that is another word."""

Product = Literal["A1", "A2", "A3"]


class PortRange(msgspec.Struct, frozen=True, order=True):
    """Ports from ``first`` to ``last``, both included."""

    first: int
    last: int


UNREAD_TASKS = "srun-options"
"""In `LaunchSettings.unresolved`."""


class LaunchConfig(LaunchSettings, frozen=True):
    """The job's settings, as the environment and the options give them.

    A value that cannot be used stands in ``problems`` and leaves its field at the default.
    """

    framework: Literal["torch", "mindspore", ""] = ""
    """Empty: unknown."""
    master_addr: str = ""
    master_port: int = TORCH_PORT
    has_default_port: bool = False
    """torchrun for one host is given no port."""
    world_size: int | None = None
    ranks_per_host: dict[str, int] | int | None = None
    hccl_base_port: int = HCCL_BASE_PORT
    hccl_ports: tuple[PortRange, ...] = ()
    """Host ports that HCCL will take; empty: the kernel chooses (``auto``)."""
    rank_table_path: str = ""
    """As given: a relative path is still relative here."""
    rank_table_variable: str = ""
    """The variable that gave the path; empty for the command line."""
    python: str = ""
    product: Product | None = None
    """Given by the user; overrides the hosts' own reports."""
    env: dict[str, str] = {}
    """The variables that matter to the job and are set; never one that looks like a secret."""
    problems: tuple[EnvSetting, ...] = ()
    env_by_host: dict[str, dict[str, str]] = {}
    """`BY_HOST` of `doctor.job.variables` in each host's own environment, where `doctor merge` joins hosts' files."""
    files: dict[str, dict[str, str]] = {}
    """By host, what NCCL's own files set there: it counts where the environment does not set it."""
    shells: dict[str, dict[str, str]] = {}
    """By host, what the shell that starts the ranks there sets, where the caller's environment does not."""

    def environ_of(self, host: str) -> dict[str, str]:
        """The variables that the job has on a host: the host's own where they are known, else the caller's."""
        return {**self.files.get(host, {}), **self._environment(host)}

    def set_by_files(self, host: str) -> dict[str, str]:
        """What NCCL's own files set on a host, and its environment does not."""
        environment = self._environment(host) if host in self.files else {}
        return {name: value for name, value in self.files.get(host, {}).items() if name not in environment}

    def set_by_shell(self, host: str) -> dict[str, str]:
        """What the shell that starts the ranks on a host sets, and the caller's environment does not."""
        shell = self.shells.get(host, {}) if host not in self.env_by_host else {}
        return {name: value for name, value in shell.items() if name not in self.env}

    def _environment(self, host: str) -> dict[str, str]:
        host_environ = self.env_by_host.get(host)
        if host_environ is None:
            return {**self.env, **self.set_by_shell(host)}
        return {**{name: value for name, value in self.env.items() if name not in _BY_HOST}, **host_environ}

    def master_of(self, host: str) -> str:
        """MASTER_ADDR on a host; of a host whose own environment is known, its own."""
        host_environ = self.env_by_host.get(host, {})
        return host_environ.get("MASTER_ADDR") or host_environ.get("MS_SCHED_HOST") or self.master_addr

    @property
    def stated_sizes(self) -> list[StatedSize]:
        """What the variables in force state of the number of ranks and hosts."""
        sizes = stated_sizes(self.env, self.launchers)
        if self.launchers and self.launchers[-1] in STARTS_TASKS and self.world_size and self.launch_line:
            words = filled("the number of tasks of {0}", self.launchers[-1])
            is_rank = re.search(rf"\bRANK=\$\{{?{STARTS_TASKS[self.launchers[-1]][1]}\b", self.launch_line) is not None
            kind: SizeKind = "ranks" if is_rank else "tasks"
            sizes.append(StatedSize(words, kind, self.world_size, not self.outer_by_directive))
        return sizes

    @property
    def stated_ranks(self) -> dict[str, int]:
        """The number of the job's ranks as each variable in force states it, by variable."""
        return {size.source: size.number for size in self.stated_sizes if size.kind == "ranks"}

    @property
    def outer_launcher(self) -> str:
        """The command around the launcher that numbers the ranks; empty without one."""
        several = [name for name in self.launchers[:-1] if name in STARTS_TASKS]
        return " ".join(_COMMANDS.get(name, name) for name in (several if len(several) > 1 else self.launchers[-2:-1]))

    @property
    def inner_launcher(self) -> str:
        """The command of the launcher that numbers the ranks; empty without one."""
        return "".join(_COMMANDS.get(name, name) for name in self.launchers[-1:])

    @property
    def unread_tasks(self) -> str:
        """Words of srun that are not read, and may say how many tasks it starts; empty: all are read."""
        return self.unresolved.get(UNREAD_TASKS, "")

    def problems_of(self, *kinds: str) -> list[OptionProblem]:
        """Those of some kinds, in the order of the launch line."""
        return [problem for problem in self.option_problems if problem.kind in kinds]

    @property
    def unread_options(self) -> str:
        """Options of the launchers whose values are not known, with the source text; empty: all are known."""
        unread = [(name, text) for name, text in self.unresolved.items() if name.startswith("--")]
        return ", ".join(text if name.startswith("--options") else f"{name} {text}" for name, text in unread[:4])

    @property
    def is_of_job_script(self) -> bool:
        """The settings are those of a job script, which may be submitted from another host than it runs on."""
        return self.read_from.startswith("the job script")

    @property
    def is_on_one_host(self) -> bool:
        """All ranks of torch are on one host, so that MASTER_ADDR is its own; False also where that is not known."""
        if self.launchers:
            single = (None, 1)
            alone = self.nodes == 1 and self.max_nodes in single and self.outer_nodes in single
            return alone and self.launchers[-1] in _STARTS_ON_ITS_OWN_HOST
        if self.framework == "mindspore" or "WORLD_SIZE" not in self.env or self.world_size is None:
            return False  # MindSpore's scheduler may be on another host than the workers
        locals_ = [environ.get("LOCAL_WORLD_SIZE", "") for environ in self.env_by_host.values()]
        return str(self.world_size) in ("1", str(self.ranks_per_host), *locals_)

    def is_gloo_alone(self, has_accelerator: bool) -> bool:
        """Whether gloo surely carries all that ranks of several hosts send each other: the launch line names it, or
        torch's ranks have no accelerator.

        >>> line = "torchrun t.py --dist-backend=gloo"
        >>> LaunchConfig(launch_line=line).is_gloo_alone(True), LaunchConfig().is_gloo_alone(False)
        (True, False)
        """
        is_torch = self.framework == "torch" or self.launchers[-1:] in (("torchrun",), ("accelerate",))
        is_named = re.search(r"\s--(?:[a-z]{1,20}[-_])?backend[ =]gloo(?!\S)", self.launch_line) is not None
        return is_named or (is_torch and not has_accelerator and "openmpi" not in self.launchers)

    def is_on_this_host(self, hosts: int) -> bool:
        """The same; or only one of ``hosts`` is looked at, and rank 0 is on it: no launcher of the line knows of
        another host, or the line or the environment is that of rank 0.
        """
        if hosts > 1 or self.is_on_one_host or self.framework == "mindspore":
            return self.is_on_one_host
        if self.launchers:
            return self.starts_here or (self.node_rank == 0 and (self.outer_tasks or 1) < 2)
        numbers = [environ.get("RANK") or environ.get("NODE_RANK") for environ in self.env_by_host.values()]
        return numbers == ["0"] and AGENT_STORE not in self.env

    def unresolved_master(self) -> str:
        """Why it is not known where the ranks meet: only a shell computes it. Empty: it is known, or not given."""
        for name in ("MASTER_ADDR", "MS_SCHED_HOST") if not self.master_addr else ():
            if name in self.unresolved:
                return filled("{0} is {1}, which only a shell computes", name, self.unresolved[name])
        return ""

    def master_option(self, address: str) -> str:
        """What gives the job ``address`` as the one where its ranks meet: of its launcher, or the variable.

        Under srun rank 0 runs on the first host of the allocation: sbatch(1), SLURM_JOB_NODELIST.

        >>> LaunchConfig(launchers=("msrun",)).master_option("10.0.0.1"), LaunchConfig().master_option("")
        ('`--master_addr 10.0.0.1`', '`export MASTER_ADDR=<address>`')
        """
        launcher = self.launchers[-1] if self.launchers else ""
        if not address and "srun" in self.launchers:
            address = FIRST_OF_SLURM
        variables = ("`export MASTER_ADDR={0}`", "")
        return filled(_MEETING_OPTIONS.get(launcher, variables)[0], address or "<address>")

    def port_option(self, port: int | str | None) -> str:
        """What gives the job another ``port`` to meet at: the option of its launcher, else the variable.

        >>> LaunchConfig(launchers=("torchrun",)).port_option(29501), LaunchConfig().port_option(29501)
        ('`torchrun --master-port 29501`', '`export MASTER_PORT=29501`')
        """
        launcher = self.launchers[-1] if self.launchers else ""
        variable = "`export MS_SCHED_PORT={0}`" if self.framework == "mindspore" else "`export MASTER_PORT={0}`"
        return filled(_MEETING_OPTIONS.get(launcher, ("", variable))[1], "<port>" if port is None else port)

    @property
    def port_setting(self) -> str:
        """What gives the port where ranks meet: the variable, where it is set to that port, or the launcher's option.

        >>> LaunchConfig(launchers=("accelerate",), master_port=22).port_setting, LaunchConfig().port_setting
        ('--main_process_port', 'MASTER_PORT')
        """
        option = self.port_option(self.master_port).split()[-2]
        is_option = option.startswith("--") and self.env.get("MASTER_PORT") != str(self.master_port)
        return option if is_option else "MASTER_PORT"

    @classmethod
    def from_options(
        cls, options: LaunchOptions, files: Mapping[str, dict[str, str]] = {}, shells: Mapping[str, dict[str, str]] = {}
    ) -> LaunchConfig:
        """The settings that a run keeps, and what NCCL's ``files`` and ``shells`` on the hosts set. Options win.

        Never raises: what cannot be used is kept in ``problems``.

        >>> LaunchConfig.from_options(LaunchOptions(environ={"MASTER_ADDR": "a"}, master_port=29501)).master_port
        29501
        """
        environ, line = options.environ, {name: getattr(options, name) for name in LaunchSettings.__struct_fields__}
        starts_tasks = {*options.launchers[-1:]} & {*STARTS_TASKS}
        env = of_one_host(environ) if starts_tasks else relevant(environ)
        family, problems = _parse_product(options.product)
        kind = _detect_framework(options.framework, env)
        if env:
            from doctor.job.variable_values import invalid_settings

            problems += invalid_settings(env, family or "", 1 if options.starts_here else options.nodes or 1)
        base = _parse_number(env.get("HCCL_IF_BASE_PORT", ""), 1024, 65520) or HCCL_BASE_PORT
        variable = next((n for n in TABLE_VARIABLES if not options.rank_table and env.get(n)), "")
        return cls(
            framework=kind,
            master_addr=options.master_addr or env.get("MASTER_ADDR") or env.get("MS_SCHED_HOST") or _comm_id(env)[0],
            master_port=options.master_port or _master_port(kind, env),
            has_default_port=_has_default_port(options),
            world_size=options.world_size or _world_size(env),
            ranks_per_host=options.ranks_per_host,
            hccl_base_port=base,
            hccl_ports=_hccl_ports(base, env.get("HCCL_HOST_SOCKET_PORT_RANGE")),
            rank_table_path=options.rank_table or env.get(variable, ""),
            rank_table_variable=variable,
            python=options.python,
            product=family,
            env=env,
            problems=tuple(sorted(problems)),
            env_by_host=options.by_host,
            files=dict(files),
            shells=dict(shells),
            **line,
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], **options: Any) -> LaunchConfig:
        """The same of an environment; ``options``: the other fields of `LaunchOptions`."""
        return cls.from_options(LaunchOptions(environ=dict(environ), **options))


def _parse_product(word: str) -> tuple[Product | None, tuple[EnvSetting, ...]]:
    products: dict[str, Product] = {"A1": "A1", "A2": "A2", "A3": "A3"}
    family = products.get(word.upper())
    if not word or family is not None:
        return family, ()
    from doctor.job.variable_values import EnvSetting

    return None, (EnvSetting("--product", printable(word, 40), "one of A1, A2, A3"),)


def _detect_framework(word: str, env: Mapping[str, str]) -> Literal["torch", "mindspore", ""]:
    if word in ("torch", "mindspore"):
        return "torch" if word == "torch" else "mindspore"
    mindspore = any(name in env for name in ("MS_ROLE", "MS_SCHED_HOST", "MS_WORKER_NUM", "MINDSPORE_HCCL_CONFIG_PATH"))
    torch = any(name in env for name in ("MASTER_ADDR", "MASTER_PORT"))
    return "mindspore" if mindspore and not torch else "torch" if torch and not mindspore else ""


def _has_default_port(options: LaunchOptions) -> bool:
    is_given = options.master_port or "--rdzv-endpoint" in options.unresolved
    alone = (options.launchers[-1:], options.max_nodes, options.master_addr) == (("torchrun",), 1, "127.0.0.1")
    return alone and not is_given


def _master_port(kind: str, env: Mapping[str, str]) -> int:
    if kind == "mindspore":
        return _parse_number(env.get("MS_SCHED_PORT", ""), 1024, 65535) or MINDSPORE_PORT
    return _in_range(python_number(env.get("MASTER_PORT", "")), 1, 65535) or _comm_id(env)[1] or TORCH_PORT


def _comm_id(env: Mapping[str, str]) -> tuple[str, int]:
    """NCCL_COMM_ID, by which ranks of NCCL meet where no MASTER_ADDR is set; empty and 0 where it does not count."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", env.get("NCCL_COMM_ID", ""), re.ASCII)
    if not match or "MASTER_ADDR" in env or "MS_SCHED_HOST" in env:
        return "", 0
    return match[1] or match[2], _parse_number(match[3], 1, 65535)


def _world_size(env: Mapping[str, str]) -> int | None:
    sizes = (_in_range(python_number(env.get(name, "")), 1, 9_999_999) for name in WORLD_SIZE_VARIABLES)
    return next((number for number in sizes if number), None)


def _hccl_ports(base: int, range_: str | None) -> tuple[PortRange, ...]:
    if range_ is not None:
        from doctor.job.variable_values import port_ranges

        try:
            return tuple(PortRange(first, last) for first, last in port_ranges(range_))
        except ValueError:
            pass
    return (PortRange(base, min(base + HCCL_PORTS - 1, 65535)),)


def _parse_number(text: str, least: int, most: int) -> int:
    """0 stands for what is not such a number."""
    return _in_range(int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else None, least, most)


def _in_range(number: int | None, least: int, most: int) -> int:
    return number if number is not None and least <= number <= most else 0

"""Where a command reads the job's environment: options, and the launch line after ``--``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace

from doctor.engine.errors import UsageError
from doctor.engine.language import before_launch_line
from doctor.engine.texts import filled, joined

if TYPE_CHECKING:
    from doctor.cli.host_options import ConnectionOptions, HostOptions, JobOptions
    from doctor.engine.record import LaunchOptions
    from doctor.environment.inventory import Inventory
    from doctor.environment.job_environment import JobEnvironment
    from doctor.hosts.selection import HostSelection

COMMANDS = ("check", "net", "smoke", "preflight", "node", "watch", "changes", "rehearse")
"""The commands that take a launch line."""

_argv: list[str] = []
"""The words after ``--`` of this process."""


class SourceOptions(NamedTuple):
    """The job's environment, where it is not that of the calling shell."""

    like: Annotated[
        int, typer.Option("--like", metavar="PID", min=0, help="Environment of a running process.", show_default=False)
    ] = 0
    env_file: Annotated[str, typer.Option("--env-file", metavar="FILE", help="Environment as `env` printed it.")] = ""
    job_script: Annotated[
        str, typer.Option("--job-script", metavar="FILE", help="Environment of a job script; it is not run.")
    ] = ""

    def read(self, *, is_next: bool = False) -> JobEnvironment:
        """The environment that the options, else the words after ``--``, name. Raises: CommandError.

        ``is_next``: the shell that called doctor runs the words after ``--`` next.
        """
        from doctor.environment import job_environment

        sources = {
            "--like": self.like,
            "--env-file": self.env_file,
            "--job-script": self.job_script,
            "a launch line after --": _argv,
        }
        named = [name for name, value in sources.items() if value]
        if len(named) > 1:
            raise UsageError(filled("{0} are both given: expected one of them", joined(" and ", named)))
        if self.like:
            return job_environment.of_process(self.like, os.environ)
        if self.env_file:
            return job_environment.of_file(self.env_file, os.environ)
        if self.job_script:
            from doctor.session.training_files import followed

            follow_up = followed(self.job_script, os.environ)
            return job_environment.launches_of_job_script(self.job_script, os.environ, *follow_up, is_next=is_next)[0]
        if _argv:
            return job_environment.of_launch_line(_argv, os.environ, tries=True, is_next=is_next)
        return job_environment.of_this_shell(os.environ)


def take_launch_line(argv: Sequence[str]) -> list[str]:
    """The command line before ``--``; keeps the words after it for `SourceOptions.read`.

    Raises: UsageError for ``--`` with nothing after it.
    """
    _argv.clear()
    before, after = before_launch_line(list(argv))
    command = next((word for word in before if not word.startswith("-")), "")
    if command not in COMMANDS or not after:
        return before + after
    if len(after) == 1:
        raise UsageError("-- with nothing after it: expected a launch line, such as torchrun --nnodes 2 train.py")
    _argv.extend(after[1:])
    return before


def launch_line() -> list[str]:
    """The words after ``--`` of this process; none where there are none."""
    return list(_argv)


def with_hosts_of_line(selection: HostSelection, source: JobEnvironment) -> HostSelection:
    """The hosts that the launch line names, where no option names any."""
    if selection.names_hosts or not (source.hosts or source.hostfile):
        return selection
    return replace(selection, hosts=source.hosts) if source.hosts else replace(selection, hostfile=source.hostfile)


def job_targets(
    source: JobEnvironment,
    hosts: HostOptions,
    scope: str,
    job: JobOptions,
    connection: ConnectionOptions,
    product: str = "",
    fleet: Inventory | None = None,
) -> tuple[Inventory, LaunchOptions, str]:
    """The hosts, the job's settings, and the command that enters its container or namespaces. Raises: CommandError.

    ``fleet``: the hosts, where options and environment do not say them.
    """
    from doctor.session.select_hosts import select_inventory

    if fleet is None:
        selection = with_hosts_of_line(hosts.selection_by(connection), source)
        fleet = select_inventory(selection, scope, source.environ, job.ranks_per_host)
    return source.annotate(fleet), source.complete(job.launch(product)), source.within(connection.within, fleet.local)

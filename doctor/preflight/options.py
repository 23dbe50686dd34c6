"""The parsed options of a preflight. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.exit_code import FailOn, OnUnknown
from doctor.engine.record import LaunchOptions
from doctor.preflight.exit_styles import ExitCodePolicy
from doctor.preflight.tiers import Tier
from doctor.transport.options import SshOptions as SshOptions

if TYPE_CHECKING:
    from doctor.environment.host_selection import HostSelection
    from doctor.environment.job_environment import JobEnvironment
    from doctor.environment.scope import RequestedScope


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The job as the command line describes it; an empty value was not given."""

    product: str = ""
    python: str = ""
    ranks_per_host: int = 0
    master_addr: str = ""
    master_port: int = 0
    time_left_s: float | None = None
    """Seconds until the scheduler ends the job that this process runs in; None: not known, or without end."""

    @property
    def launch(self) -> LaunchOptions:
        """The same as a run keeps it, for `doctor.job.LaunchConfig.from_options`."""
        return LaunchOptions(
            product=self.product,
            python=self.python,
            ranks_per_host=self.ranks_per_host or None,
            master_addr=self.master_addr,
            master_port=self.master_port or None,
            time_left_s=self.time_left_s,
        )


class PreflightOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of one preflight."""

    hosts: HostSelection
    ssh: SshOptions = SshOptions()
    transport: str = "ssh"
    within: str = ""
    sudo: bool = False
    tier: Tier = "standard"
    budget: float = 60.0
    """Seconds from the start of the process."""
    scope: RequestedScope = "auto"
    job: JobSettings = JobSettings()
    source: JobEnvironment | None = None
    """Where the job's environment was read; None: this process's is the job's."""
    net: str = ""
    """Network test: quick, full or off; empty: that of the tier."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    checks: tuple[Path, ...] = ()
    need: int = 0
    write_nodes: str = ""
    write_bad: str = ""
    node_format: str = "plain"
    report: str = ""
    save: str = ""
    formats: tuple[str, ...] = ()
    redact: bool = False
    quiet: bool = False
    config: Path | None = None
    keeps_history: bool = True
    strict: bool = False
    fail_on: FailOn = "error"
    on_unknown: OnUnknown = "fail"
    exit_code_policy: ExitCodePolicy = ExitCodePolicy()

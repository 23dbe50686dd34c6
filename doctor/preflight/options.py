"""The parsed options of a preflight. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.exit_code import FailOn, OnUnknown
from doctor.preflight.exit_styles import ExitCodePolicy
from doctor.preflight.tiers import Tier
from doctor.transport.options import SshOptions as SshOptions

if TYPE_CHECKING:
    from doctor.environment.host_selection import HostSelection
    from doctor.environment.scope import RequestedScope


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of the job; an empty value was not given."""

    product: str = ""
    python: str = ""
    ranks_per_host: int = 0
    master_addr: str = ""
    master_port: int = 0

    @property
    def launch(self) -> dict[str, str | int]:
        """What was given: keywords of `doctor.job.LaunchConfig.from_environment`."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


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
    strict: bool = False
    fail_on: FailOn = "error"
    on_unknown: OnUnknown = "fail"
    exit_code_policy: ExitCodePolicy = ExitCodePolicy()

"""What a preflight was asked for, once its words are understood. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from doctor.engine.exit_code import FailOn, OnUnknown
from doctor.engine.job_input import LaunchOptions
from doctor.preflight.exit_styles import ExitCodePolicy
from doctor.preflight.tiers import Tier
from doctor.transport.options import SshOptions as SshOptions

Scope = Literal["auto", "local", "cluster"]


class PreflightOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command line says of one preflight."""

    hosts: Any
    """`doctor.cli.host_options.HostOptions`."""
    ssh: SshOptions = SshOptions()
    transport: str = "ssh"
    within: str = ""
    sudo: bool = False
    tier: Tier = "standard"
    budget: float = 60.0
    """Seconds from the start of the process."""
    scope: Scope = "auto"
    launch: LaunchOptions = LaunchOptions()
    """The job's settings on the command line."""
    job: Mapping[str, Any] = {}
    """The same for the smoke run, as `doctor.smoke.plan.SmokeOptions` takes it."""
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
    config: str = ""
    strict: bool = False
    fail_on: FailOn = "error"
    on_unknown: OnUnknown = "fail"
    exit_code_policy: ExitCodePolicy = ExitCodePolicy()

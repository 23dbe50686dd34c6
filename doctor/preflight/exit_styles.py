"""Exit code of a preflight: that of the verdict, or the one that a scheduler expects. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.engine.exit_code import Exit

Style = Literal["doctor", "nagios"]
Profile = Literal["job", "prolog"]

VERDICTS = (Exit.FAILED, Exit.WARNINGS, Exit.UNKNOWN)
"""Codes that `ExitCodePolicy.fail_exit` replaces: the job should not start. Bad input and our own bugs keep theirs."""
NAGIOS = {Exit.HEALTHY: 0, Exit.WARNINGS: 1, Exit.FAILED: 2}
"""The plugin interface: 0 OK, 1 WARNING, 2 CRITICAL, and 3 UNKNOWN for all that is not a verdict."""


class ExitCodePolicy(msgspec.Struct, frozen=True):
    """Mapping of exit codes."""

    fail_exit: int = 0
    """Instead of a verdict against the job; 0 leaves it."""
    style: Style = "doctor"
    profile: Profile = "job"

    def code(self, verdict_code: int) -> int:
        """The code to end with. ``verdict_code`` is one of `doctor.engine.exit_code.Exit`, or 128 + a signal's number.

        A node's prolog that ends with anything but 0 takes the node out of service, and a broken installation of this
        program would take out all of them: there, only what is certainly wrong with the host counts.
        """
        if self.profile == "prolog" and verdict_code != Exit.FAILED:
            return 0
        if self.style == "nagios":
            return NAGIOS.get(Exit(verdict_code), 3) if verdict_code in tuple(Exit) else 3
        return self.fail_exit if self.fail_exit and verdict_code in VERDICTS else verdict_code

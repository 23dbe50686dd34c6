"""Files that a command line names: one that cannot be read or written is the caller's mistake, and found at the start.

Everything is an `InputError` (exit code 78) of one form: the option, the path, what is wrong, what was expected.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from doctor.engine.bounded_read import require_bounded
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable

if TYPE_CHECKING:
    from doctor.transport.options import SshOptions


def require_readable(option: str, path: str, expected: str) -> None:
    """Raises: InputError, unless ``path`` is a regular file that can be opened. What needs its content reads it."""
    try:
        require_bounded(path)
    except (OSError, ValueError) as error:
        text = f"{option} {printable(path)}: {_reason(error)}; expected {expected} that can be read"
        raise InputError(text) from None


def require_writable(option: str, path: str) -> None:
    """Raises: InputError, unless a file can be put at ``path``: its folder exists and takes files."""
    folder = os.path.dirname(os.path.realpath(path)) or "/"
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
        reason = "" if os.access(folder, os.W_OK) or os.access(path, os.W_OK) else f"{folder} is not writable"
        reason = "is a folder" if os.path.isdir(path) else reason if is_folder else f"{folder} is not a folder"
    except (OSError, ValueError) as error:
        reason = f"{printable(folder)}: {_reason(error)}"
    if reason:
        raise InputError(f"{option} {printable(path)}: {reason}; expected a file that can be written")


def require_connection_files(ssh: SshOptions) -> None:
    """The files that options of the connection name, and what ssh makes of its configuration. Raises: InputError."""
    if ssh.config and ssh.config != "none":
        require_readable("-F", ssh.config, "an ssh configuration file")
        from doctor.transport.ssh.config_files import syntax_error

        if reason := syntax_error(ssh.config):
            raise InputError(f"-F {printable(ssh.config)}: {reason}; expected a configuration file that ssh accepts")
    for path in ssh.identity:
        require_readable("-i", os.path.expanduser(path), "a private key")


def require_rank_table(path: str | None) -> None:
    """The file of ``--rank-table``, whatever the hosts are taken from. Raises: InputError."""
    if path:
        require_readable("--rank-table", path, "a rank table")


def _reason(error: OSError | ValueError) -> str:
    return printable(getattr(error, "strerror", None) or str(error))

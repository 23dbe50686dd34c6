"""Files that a command line names: one that cannot be read or written is the caller's mistake, and found at the start.

Everything is an `InputError` (exit code 78) of one form: the option, the path, what is wrong, what was expected.
"""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING

from doctor.engine.bounded_read import open_bounded, refusing_unreadable, unreadable_reason
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

if TYPE_CHECKING:
    from doctor.transport.options import SshOptions


def require_readable(option: str, path: str, expected: str) -> None:
    """Raises: InputError, unless ``path`` is a regular file that can be opened. What needs its content reads it."""
    with refusing_unreadable(f"{option} {path}", expected), open_bounded(path):
        pass


def require_writable(option: str, path: str) -> None:
    """Raises: InputError, unless a file can be put at ``path``: its folder exists and takes files."""
    folder = os.path.dirname(os.path.realpath(path)) or "/"
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
        reason = "" if os.access(folder, os.W_OK) or os.access(path, os.W_OK) else filled("{0} is not writable", folder)
        if os.path.isdir(path):
            reason = "is a folder"
        elif not is_folder:
            reason = filled("{0} is not a folder", folder)
        elif not reason and not os.path.exists(path):
            reason = _refusal(folder)
    except (OSError, ValueError) as error:
        reason = filled("{0}: {1}", printable(folder), unreadable_reason(error))
    if reason:
        raise InputError(filled("{0} {1}: {2}; expected a file that can be written", option, printable(path), reason))


def _refusal(folder: str) -> str:
    """Why no file can be made in a folder that says that it may: root may write to /proc, which holds no files of
    others, and to a full or read-only file system.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return filled("no file can be made in {0}: {1}", printable(folder), unreadable_reason(error))


def require_connection_files(ssh: SshOptions, tree: bool = False) -> None:
    """The files that options of the connection name, and what ssh makes of its configuration. Raises: InputError.

    ``tree``: hosts are reached through gateways.
    """
    if ssh.config and ssh.config != "none":
        require_readable("-F", ssh.config, "an ssh configuration file")
        from doctor.transport.ssh.config_files import syntax_error

        if reason := syntax_error(ssh.config):
            raise InputError(
                filled("-F {0}: {1}; expected a configuration file that ssh accepts", printable(ssh.config), reason)
            )
    if tree:
        _require_topology(ssh.gateways)
    for path in ssh.identity:
        require_readable("-i", os.path.expanduser(path), "a private key")


def _require_topology(gateways: str) -> None:
    """The file that names the gateways: that of ``--gateways``, or the one that clush reads. Raises: InputError."""
    from doctor.transport.launcher.gateway_routes import Router, TopologyFileError, topology_path

    if gateways:
        require_readable("--gateways", gateways, "a topology.conf of ClusterShell")
    path = gateways or topology_path(os.environ)
    if not path:
        raise InputError("--transport tree: there is no topology.conf of ClusterShell; expected --gateways FILE")
    try:
        Router(path, ())
    except TopologyFileError as error:
        option = "--gateways" if gateways else "--transport tree:"
        raise InputError(
            filled("{0} {1}; expected a topology.conf that clush accepts", option, printable(str(error)))
        ) from None


def require_rank_table(path: str | None) -> None:
    """Checks the file of ``--rank-table``, for every source of the hosts. Raises: InputError."""
    if path:
        require_readable("--rank-table", path, "a rank table")

"""Whether ssh accepts a configuration file, found before any host is visited."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from doctor.engine.sanitize import strip_control_chars
from doctor.transport import TransportError
from doctor.transport.process import Children, run_command
from doctor.transport.ssh import config_files

QUERY_TIMEOUT = 30.0
"""Seconds for ``ssh -G``."""
ANY_NAME = "localhost"
"""ssh reads every line of the file for any host, also below a ``Host`` line that does not match."""
MAX_OUTPUT = 1 << 20
"""Bytes of ``ssh -G``."""


def syntax_error(path: str) -> str:
    """What ssh rejects in the file, in its words; empty where it rejects nothing, or only a visit can show it.

    A file with ``Match`` lines is not tested: they may run commands, which only the visit of a host may do.
    """
    ssh, home = shutil.which("ssh"), Path(pwd.getpwuid(os.getuid()).pw_dir)
    texts = config_files.config_texts([Path(path)], home, home / ".ssh") if ssh else None
    if not ssh or texts is None or config_files.patterns(texts) is None:
        return ""
    argv = [ssh, "-G", "-T", "-F", path, "--", ANY_NAME]
    try:
        result = run_command(Children(), argv, b"", QUERY_TIMEOUT, MAX_OUTPUT)
    except TransportError:
        return ""
    if not result.code:
        return ""
    first_line = result.err.decode("utf-8", "replace").replace("\r", "").partition("\n")[0]
    reason = strip_control_chars(first_line.removeprefix(path).lstrip(": "), 300)
    return reason or f"ssh -G ends with exit status {result.code}"

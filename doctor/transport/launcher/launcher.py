"""What a launcher is to a step: how it is started, and how its words are read."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from doctor.transport import TransportError

_PYTHONS = "python3 /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python"
_PROGRAM = (
    "import sys;sys.version_info<(3,6)and sys.exit(repr(sys.version_info));"
    "import base64,zlib;exec(zlib.decompress(base64.b64decode(sys.argv[1])));main()"
)
# Not on stdin: srun passes nothing on before every host has answered, and one that hangs never does.
# Nothing but 0 may be its end: a launcher would end the others too.
_BOOT = (
    f"for p in {_PYTHONS}; do command -v $p >/dev/null 2>&1 && "
    f"{{ $p -I -S -c '{_PROGRAM}' \"$1\"; exit 0; }}; done; echo doctor-no-python >&2; exit 0"
)


def carrier_command() -> list[str]:
    """The command line of a carrier, the same on every host."""
    source = Path(__file__).with_name("remote_carrier.py").read_bytes()
    return ["/bin/sh", "-c", _BOOT, "sh", base64.b64encode(zlib.compress(source, 9)).decode("ascii")]


class TaskOutput(NamedTuple):
    """What a task said."""

    task: int
    is_stderr: bool
    data: bytes


class LaunchReader(Protocol):
    """Reads what one launch says."""

    host_by_task: dict[int, str]
    """Which task is on which host, in the launcher's own words; empty until it has said so."""
    started_hosts: set[str]
    """Hosts where the launcher has started its task, as far as it tells."""
    errors_by_host: dict[str, TransportError]
    """Hosts that the launcher cannot reach, in its own words."""
    launch_id: str
    """What the launcher calls this launch, if it says so."""
    last_error: str
    """The last error that it told of."""

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]: ...

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]: ...


class Launcher(Protocol):
    """A kind of launcher; quick but for `check` and `states`, which ask the launcher."""

    name: str
    """Of the program."""
    default_timeout: float
    """Seconds for a host's carrier to say hello where the user does not set it."""

    def check(self) -> None:
        """Raises: Unreached, when it is not here or cannot be used."""
        ...

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]: ...

    def environ(self) -> Mapping[str, str]: ...

    def open_reader(self, hosts: Sequence[str]) -> LaunchReader: ...

    def affects_all_hosts(self, error_text: str) -> bool:
        """Whether an error holds for every host, so that it is no use to try in parts."""
        ...

    def cancel(self, reader: LaunchReader) -> None:
        """Ends what a launch has started on the hosts, when the launcher itself can no longer do it."""
        ...

    def states(self, hosts: Sequence[str]) -> dict[str, TransportError]:
        """Which of these cannot be used, by what the site's scheduler says of them now."""
        ...


class LauncherLines:
    """Cuts a stream into lines; what is too long for one comes in pieces."""

    def __init__(self, longest: int = 1 << 16) -> None:
        self._rest, self._max_line = b"", longest

    def split(self, piece: bytes) -> list[bytes]:
        *lines, rest = (self._rest + piece).split(b"\n")
        if len(rest) > self._max_line:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        return lines

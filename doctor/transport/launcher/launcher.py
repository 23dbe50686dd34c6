"""What a launcher is to a step: how it is started, and how its words are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol, runtime_checkable

from doctor.remote.bootstrap import argument_command
from doctor.transport import TransportError
from doctor.transport.program import HostProgram


@cache
def carrier_command() -> tuple[str, ...]:
    """The command line of a carrier, the same on every host.

    Not on stdin: srun passes nothing on before every host has answered, and one that hangs never does. It always ends
    with exit status 0: with another one, a launcher would end the others too.
    """
    return tuple(argument_command(HostProgram("doctor.transport.launcher.carrier.carrier").source))


class TaskOutput(NamedTuple):
    """A line of a task's output."""

    task: int
    is_stderr: bool
    data: bytes


class LaunchReader:
    """Parses the output of one launch; a subclass says how."""

    def __init__(self, longest: int = 1 << 16) -> None:
        """``longest``: bytes of a line that come in one piece."""
        self.host_by_task: dict[int, str] = {}
        """Host of each task, as the launcher reports it; empty until then."""
        self.started_hosts: set[str] = set()
        """Hosts where the launcher reports a started task."""
        self.errors_by_host: dict[str, TransportError] = {}
        """Hosts that the launcher cannot reach, with its error."""
        self.launch_id = self.last_error = ""
        """The launcher's id of this launch, and the last error, as far as it reports them."""
        self._stdout_lines, self._stderr_lines = LauncherLines(longest), LauncherLines(longest)

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]:
        """The tasks' lines in what the launcher printed."""
        raise NotImplementedError

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]:
        """As `read_stdout`, of its other stream."""
        raise NotImplementedError


class Launcher:
    """A kind of launcher; only `check` and `states` run the launcher, and take its time."""

    name: str
    """Of the program."""
    default_timeout = 20.0
    """Seconds for a host's carrier to say hello where the user does not set it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """``environ``: that the launcher is started with."""
        self._environ = {**environ, "LC_ALL": "C"}

    def check(self) -> None:
        """Raises: Unreached, when it is not here or cannot be used."""
        raise NotImplementedError

    def groups(self, hosts: Sequence[str]) -> list[tuple[str, ...]]:
        """The hosts divided into those that can share a launch; each host is in one group."""
        return [tuple(hosts)]

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]:
        """The command line of a launch on these hosts."""
        raise NotImplementedError

    def environ(self) -> Mapping[str, str]:
        """The variables of a launch."""
        return self._environ

    def open_reader(self, hosts: Sequence[str]) -> LaunchReader:
        """What reads the output of a launch on these hosts."""
        raise NotImplementedError

    def affects_all_hosts(self, error_text: str) -> bool:
        """Whether an error holds for every host, so that it is no use to try in parts; no, where it does not say."""
        return False

    def test_command(self, host: str) -> str:
        """The command by which a user finds out why it starts no task on a host."""
        raise NotImplementedError

    def cancel(self, reader: LaunchReader) -> None:
        """Ends what a launch has started on the hosts, when the launcher itself can no longer do it.

        Nothing here: what runs on the hosts notices the end.
        """

    def states(self, hosts: Sequence[str]) -> dict[str, TransportError]:
        """Which of these hosts cannot be used, by their present state in the site's scheduler, if it has one."""
        return {}


@runtime_checkable
class KnowsWays(Protocol):
    """A launcher whose hosts do not depend on each other, and may have several ways to them."""

    def first_line(self, reader: LaunchReader) -> bytes:
        """What the launch reads before anything for the carriers."""
        ...

    def failures(self, reader: LaunchReader, silent: Sequence[str], seconds: float) -> dict[str, TransportError | None]:
        """Why each of these hosts sent no hello for so long; None for those that another launch may reach."""
        ...

    def dead_notes(self) -> list[str]:
        """Sentences for the user about what was given up on the way."""
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

"""The end of a preflight that has no report yet: its one line, by a signal or at the end of the budget.

Loaded before anything that takes time, so that it imports next to nothing: on a starved machine the modules of the
command may take longer to load than the whole budget.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Mapping

from doctor.engine import interrupts
from doctor.engine.language import before_launch_line
from doctor.engine.quantities import parse_time_limit
from doctor.engine.texts import filled
from doctor.remote.runtime.rank_variables import RANK_VARIABLES

BUDGET = {"quick": 20.0, "standard": 60.0, "smoke": 180.0, "deep": 300.0}
"""Seconds, by tier."""
FALLBACK_SECONDS = 0.5
"""Seconds after the end of the budget in which the run, once begun, may still print a line that says more."""
READING_SECONDS = 2.0
"""Seconds from a signal until the line is printed without the number of hosts: a hostfile may not be answering."""
GANG_WAIT = 300.0
"""Seconds of ``--gang-wait`` where it is not given."""
SWITCHES = frozenset(
    {
        *("--accept-new", "--ask-pass", "--debug", "--help", "-h", "--no-history", "--quiet", "-q", "--redact"),
        *("--strict", "--sudo"),
    }
)
"""Options of the command that take no value."""
OTHER_RANKS = ("LOCAL_RANK", *(rank for rank, _, _ in RANK_VARIABLES))
"""Variables that are not 0 in a process whose report another process may write."""


class EarlyEnd:
    """Prints the line of a preflight that did not come to print it itself, and ends the process."""

    def __init__(self, argv: list[str]) -> None:
        self.argv, _ = before_launch_line(argv)
        self.deadline = time.monotonic() - interrupts.process_age() + _budget(self.argv)
        """By the monotonic clock."""
        self.hosts: tuple[str, ...] = ()
        """The hosts of the list; empty: this host alone, or not read yet."""
        self._printed = _thread.allocate_lock()
        self._reading = _thread.allocate_lock()
        """Held until the list of hosts was read, or could not be."""
        self._is_ending = self._has_read = False

    def start(self) -> None:
        """Ends the process at the deadline, from a thread of its own, unless the line was printed by then.

        Another thread reads the list of hosts: it loads modules, and may read a file, and must not delay the caller.
        """
        self._reading.acquire()
        _thread.start_new_thread(self._read_list, ())
        _thread.start_new_thread(self._wait, ())

    def run_begins(self, budget_end: float) -> None:
        """From now on the run reports by itself, until ``budget_end``, by the monotonic clock."""
        self.wait_for_end()
        self.deadline = budget_end + FALLBACK_SECONDS

    def claim_line(self) -> bool:
        """Whether the caller is the only one to print the line."""
        if self._printed.acquire(False):
            return True
        self.wait_for_end()
        return False

    def wait_for_end(self) -> None:
        """Does not return where a signal ends the process at any moment: a run begins nothing more."""
        while self._is_ending:
            time.sleep(1.0)

    def _read_list(self) -> None:
        try:
            self.hosts = _hosts_of(self.argv, os.environ)
            self._has_read = True
        finally:
            self._reading.release()

    def _wait(self) -> None:
        while (remaining := self.deadline - time.monotonic()) > 0:
            time.sleep(min(remaining, 1.0))
        if self.claim_line():
            self._reading.acquire(True, FALLBACK_SECONDS)
            self._end("budget-ended", 12)

    def end_by_signal(self, number: int) -> None:
        """Ends a preflight that has done nothing yet: its line, no report of an earlier run, its exit code.

        By another thread: this one may hold the lock of a module whose import the signal interrupted, and which the
        reader of the list needs. It goes on until it comes to print or to run something.
        """
        interrupts.ignore()
        if self.claim_line():
            self._is_ending = True
            _thread.start_new_thread(self._end_once_read, (number,))

    def _end_once_read(self, number: int) -> None:
        self._reading.acquire(True, READING_SECONDS)
        self._end("interrupted", 128 + number)

    def _end(self, why: str, code: int) -> None:
        code = self._exit_code(code)
        try:
            report = _option(self.argv, "--report")
            if report not in ("", "-") and all(os.environ.get(name, "0") == "0" for name in OTHER_RANKS):
                interrupts.remove_old(report)
            ends = f"exit={code} t={interrupts.process_age():.1f}s"
            hosts = len(self.hosts) or (1 if self._has_read else "?")
            line = filled("doctor preflight: UNKNOWN nodes=0/{0} why={1} {2}\n", hosts, why, ends)
            os.write(1, line.encode("ascii"))
        except OSError:
            pass
        finally:
            os._exit(code)

    def _exit_code(self, code: int) -> int:
        if _option(self.argv, "--profile") == "prolog":
            return 0
        style = _option(self.argv, "--exit-style")
        if style in ("nagios", "npd"):
            return 3 if style == "nagios" else 2
        other = _option(self.argv, "--fail-exit")
        return int(other) if code == 12 and other.isdecimal() and 0 < int(other) < 256 else code


early_end: EarlyEnd | None = None
"""Of this process, where it is a preflight."""


def install(argv: list[str]) -> None:
    """Guards a preflight from its first moment. ``argv``: its words, without the program's name."""
    global early_end
    early_end = EarlyEnd(argv)
    early_end.start()
    interrupts.handle(early_end.end_by_signal)


def claim_line() -> bool:
    """Whether the caller is to print the one line of this process."""
    return early_end is None or early_end.claim_line()


def wait_for_end() -> None:
    """Where a signal has come and its line is being printed: does not return."""
    if early_end is not None:
        early_end.wait_for_end()


def listed_hosts(hosts: str | None, hostfile: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the list, as far as no program has to be asked for them; empty where none can be read."""
    from doctor.hosts.nodeset import InventoryError, expand_nodeset

    path = "" if hosts else hostfile or ("" if environ.get("DOCTOR_HOSTS") else environ.get("DOCTOR_HOSTFILE", ""))
    text = hosts or environ.get("DOCTOR_HOSTS") or environ.get("SLURM_JOB_NODELIST") or ""
    try:
        if path:
            from doctor.hosts.hostfile import parse_hostfile

            with open(path, encoding="utf-8") as file:
                return tuple(line.host for line in parse_hostfile(file.read(1 << 20), path))
        return tuple(dict.fromkeys(expand_nodeset(text, ""))) if text else ()
    except (InventoryError, OSError, ValueError):
        return ()


def _hosts_of(argv: list[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the list; empty for this host alone."""
    if _option(argv, "--scope") == "local" or _option(argv, "--profile") == "prolog":
        return ()
    return listed_hosts(_argument(argv) or _option(argv, "--hosts"), _option(argv, "--hostfile"), environ)


def _budget(argv: list[str]) -> float:
    """Seconds; what cannot be read is refused later, by the parser of the command line."""
    prolog = _option(argv, "--profile") == "prolog"
    tier = _option(argv, "--tier") or _option(argv, "-t") or ("quick" if prolog else "standard")
    wait = 2 * _seconds(argv, "--gang-wait", GANG_WAIT) if _option(argv, "--gang") else 0.0
    return wait + _seconds(argv, "--budget", BUDGET.get(tier, max(BUDGET.values())))


def _seconds(argv: list[str], name: str, usual: float) -> float:
    return parse_time_limit(_option(argv, name)) or usual


def _argument(argv: list[str]) -> str:
    """HOSTS, the word that is neither an option nor an option's value; empty where it is not given."""
    arguments = iter(argv[1:])
    for word in arguments:
        if not word.startswith("-"):
            return word
        is_joined = "=" in word or (word[1:2] != "-" and len(word) > len("-t"))
        if not is_joined and word not in SWITCHES:
            next(arguments, "")
    return ""


def _option(argv: list[str], name: str) -> str:
    """The value of an option, given as ``--name VALUE``, ``--name=VALUE`` or ``-nVALUE``; of several, the last."""
    value = ""
    for position, word in enumerate(argv):
        if word == name and position + 1 < len(argv):
            value = argv[position + 1]
        elif word.startswith(f"{name}=") or (name[1] != "-" and word.startswith(name)):
            value = word[len(name) :].removeprefix("=")
    return value

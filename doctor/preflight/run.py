"""One preflight, from its first moment to its one line."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import Outcome, Reason, Report
from doctor.preflight import report as telling
from doctor.preflight.deadline import Deadline, Heartbeat
from doctor.preflight.gather import NotReady, look, skips_all
from doctor.preflight.options import Wanted
from doctor.session.output_files import Followers, asked_for

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import HostRecord
    from doctor.environment.context import Place
    from doctor.environment.inventory import Inventory
    from doctor.preflight.host_leader import Leader
    from doctor.preflight.spares import Choice
    from doctor.session.examine import Examination, Options

RESERVE = 1.0
"""Seconds of the budget that are kept to judge and to report, and a part for each host beside them."""
FOR_A_HOST = 0.008
WAIT_FOR_TABLE = 0.5
"""Part of the budget that an unfinished rank table is waited for."""


class Preflight:
    """What is known so far. At every moment it can be brought to an end, and says what is known then."""

    def __init__(self, wanted: Wanted, environ: Mapping[str, str], began: float) -> None:
        self.wanted, self.environ, self.began = wanted, environ, began
        self.end = began + wanted.budget
        self.tier = wanted.tier
        self.known: list[Check] = []
        self.picked: list[Check] = []
        self.left_out: list[str] = []
        self.inventory: Inventory | None = None
        self.place: Place | None = None
        self.party: Leader | None = None
        """Those for whom this process looks, too."""
        self.records: dict[str, HostRecord] = {}
        self.notes: list[str] = []
        self.skipped: tuple[str, ...] = ()
        """What DOCTOR_SKIP leaves out."""
        self.written: set[str] = set()
        self.cause = ""
        """Why nothing was judged, in a word."""
        self.asked = asked_for(wanted.formats)
        self.events = Followers()
        self.code: int | None = None
        self.judged: tuple[Report, int, Choice | None] | None = None
        """What the line is to say, once that is settled."""
        self.line = ""
        self._telling = threading.Lock()
        self.beat = Heartbeat(None if wanted.quiet else sys.stderr, began)

    def run(self) -> int:
        """Looks, judges, tells. Returns the exit code; whatever happens, there is one line and a whole report."""
        deadline = Deadline(self.end, self.last_words)
        try:
            return self._look_and_tell()
        except CommandError as refusal:
            return self._give_up(str(refusal), refusal.exit_code, "bad-input")
        except NotReady as why:
            return self._give_up(str(why), Exit.UNKNOWN, why.word)
        except (KeyboardInterrupt, SystemExit) as stop:
            return self._stopped(stop)
        except Exception as error:  # noqa: BLE001 - the rim: the line and the report are told of our own bugs, too
            return self._broken(error)
        finally:
            self.beat.close()
            deadline.call_off()

    def left(self) -> float:
        """Seconds of the budget."""
        return self.end - time.monotonic()

    # -- looking

    def _look_and_tell(self) -> int:
        if skips_all(self.environ):
            self.skipped = ("all",)
            self.notes.append("DOCTOR_SKIP=all: nothing was looked at")
            return self._put_out(self.nothing_known("DOCTOR_SKIP=all"), None, Exit.HEALTHY)
        found = look(self)
        if isinstance(found, int):  # another process of this host has looked
            return found
        return self._tell(found)

    def _stopped(self, stop: BaseException) -> int:
        """A signal: what had been read by then is judged."""
        if self.code is not None:
            return self._settled_line()
        from doctor.session.examine import cut_short

        fleet = self.inventory
        if fleet is None or not self.picked:
            self.cause = "interrupted"
            report = self.nothing_known("interrupted before any host was looked at")
            return self._put_out(report, None, _signal_code(stop))
        words = self.wanted.hosts.rank_table or ""
        why = "the run was interrupted before it answered"
        done = cut_short(fleet, self.records, self.picked, self.options(), self.environ, why, stop, rank_table=words)
        return self._tell(done)

    def options(self) -> Options:
        """How hosts are looked at, in the time that is left."""
        from doctor.session.examine import Options
        from doctor.smoke.plan import Wish

        wanted, count = self.wanted, len(self.inventory.hosts) if self.inventory else 0
        reserve = min(self.left() / 4, RESERVE + FOR_A_HOST * count)
        budget = max(0.1, self.left() - reserve)
        return Options(
            transport=wanted.transport,
            ssh=wanted.ssh,
            sudo=wanted.sudo,
            within=wanted.within,
            timeout=min(60.0, budget),
            budget=budget,
            launch=dict(wanted.launch),
            smoke=Wish(**wanted.job) if self.tier == "smoke" else None,
        )

    # -- telling

    def _tell(self, done: Examination) -> int:
        """Judgement, spares, files, the line."""
        wanted = self.wanted
        report = self.settled(done.report)
        own = exit_code(report, strict=wanted.strict, on_unknown=wanted.on_unknown, fail_on=wanted.fail_on)
        if done.stopped is not None:
            own = _signal_code(done.stopped)
        choice = self._choose(done, report) if wanted.need or wanted.write_nodes or wanted.write_bad else None
        if choice is not None and wanted.need and done.stopped is None:
            own = choice.code
            report = msgspec.structs.replace(report, notes=(*report.notes, *_said(choice)))
        if choice is not None:
            unwritten = telling.node_files(choice, wanted)
            if unwritten and own in (
                Exit.HEALTHY,
                Exit.WARNINGS,
            ):  # whoever starts by the lists would start by old ones
                own = Exit.UNKNOWN
                report = msgspec.structs.replace(report, notes=(*report.notes, *unwritten))
        return self._put_out(report, done, int(own), choice)

    def settled(self, report: Report) -> Report:
        """With waivers and skips applied, and the notes that are ours. Raises: CommandError."""
        from doctor.session.policy import settled

        report = msgspec.structs.replace(report, notes=(*self.notes, *report.notes))
        return settled(report, Path(self.wanted.config) if self.wanted.config else None, self.known)

    def _choose(self, done: Examination, report: Report) -> Choice:
        from doctor.preflight.spares import choose
        from doctor.session.examine import replay

        wanted = self.wanted
        judge: Callable[..., Report] = lambda run: self.settled(replay(run, self.picked))  # noqa: E731
        return choose(
            done.run,
            report,
            judge,
            wanted.need,
            fail_on=wanted.fail_on,
            on_unknown=wanted.on_unknown,
            strict=wanted.strict,
            writes_table=wanted.node_format == "ranktable" and bool(wanted.write_nodes),
        )

    def _put_out(self, report: Report, done: Examination | None, own: int, choice: Choice | None = None) -> int:
        self.code = self.wanted.ending.code(own)
        self.beat.close()
        if self.wanted.redact:
            from doctor.session.redact import veiled

            report = veiled(report, [record.visit.name for record in self.records.values()])
        self.judged = report, own, choice
        telling.files(self, report, done, own)
        self._settled_line()
        if not self.wanted.quiet:
            telling.advise(self, report, own)
        if self.party is not None:
            with self.party as party:
                party.say(self.code, self.line, self.end if own < 128 else time.monotonic())
        return self.code

    def _settled_line(self) -> int:
        """The line of what is settled, if it was not said yet. Returns the exit code."""
        assert self.code is not None
        if self.judged and not self.line:
            report, own, choice = self.judged
            self._say(telling.line(self, report, own, self.code, choice))
        return self.code

    def _say(self, line: str) -> None:
        """Once, from whatever thread comes first."""
        from doctor.session.console import write

        with self._telling:
            if self.line:
                return
            self.line = line
            write(line)
            telling.termination_log(line, self.environ)

    def _give_up(self, why: str, code: int, cause: str) -> int:
        """Nothing can be judged: bad input, or a platform that is not ready."""
        self.cause = cause
        print(f"doctor: {why}", file=sys.stderr)
        self.notes.append(why)
        self.picked = []
        return self._put_out(self.nothing_known(why), None, code)

    def _broken(self, error: Exception) -> int:
        """A bug of ours."""
        from doctor.session.console import own_bug

        code = own_bug(error)
        self.cause, self.picked = "doctor-bug", []
        self.notes.append(f"a bug of doctor itself ended the run: {type(error).__name__}")
        return self._put_out(self.nothing_known("a bug of doctor itself ended the run"), None, code)

    def nothing_known(self, why: str) -> Report:
        """A report in which every check is unknown on every host that we have heard of."""
        hosts: Sequence[str] = self.inventory.hosts if self.inventory else ()
        gaps = {host: Reason(why) for host in hosts or ("",)}
        outcomes = tuple(
            Outcome(one.name, one.severity, one.area, one.claim, unknown=dict(gaps)) for one in self.picked
        )
        source = self.inventory.source if self.inventory else "no hosts"
        seconds = round(time.monotonic() - self.began, 3)
        return Report(source, tuple(hosts), outcomes, "", seconds, tuple(self.notes) or (why,))

    def last_words(self) -> int:
        """The budget has ended and something hangs. In a thread of its own; the process ends after it."""
        if self.code is None:
            self.cause, self.picked = "budget-ended", []
            report = self.nothing_known(f"the budget of {self.wanted.budget:g} s ended")
            return self._put_out(report, None, Exit.UNKNOWN)
        return self._settled_line()


def _said(choice: Choice) -> list[str]:
    """What became of the search for enough hosts."""
    if choice.code != Exit.HEALTHY and choice.lines:
        return [f"--need {choice.need}: {line}" for line in choice.lines]
    out = "; ".join(f"{host} ({', '.join(checks)})" for host, checks in choice.left_out.items())
    spare = f", {len(choice.spare)} healthy spares" if choice.spare else ""
    met = "met" if choice.code == Exit.HEALTHY else "not met"
    return [f"--need {choice.need}: {met}{spare}{'; left out: ' if out else ''}{out}"]


def _signal_code(stop: BaseException) -> int:
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else Exit.INTERRUPTED


def started() -> float:
    """The monotonic clock when this process was started."""
    from doctor.preflight.deadline import age

    return time.monotonic() - age()


def go(wanted: Wanted) -> int:
    """Runs one preflight of this process and its environment."""
    return Preflight(wanted, os.environ, started()).run()

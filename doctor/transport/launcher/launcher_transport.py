"""The job's own launcher as the way to its hosts: one launch for all of them, however many commands they run.

Hosts that keep the others waiting get a launch of their own, so that the rest can begin; a launch that is refused as a
whole is tried again in parts, until those that cannot take part stand alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.remote.bootstrap import python_problem
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import LineSession, run_to_end
from doctor.transport.launcher.launcher import KnowsWays, Launcher
from doctor.transport.launcher.step import JobStep
from doctor.transport.local import Children
from doctor.transport.options import MAX_OUTPUT
from doctor.transport.patience import TURN, Patience

_MAX_PARTS = 8
_MAX_CONCURRENT = 16
"""Launches in the making."""
_MIN_STRAGGLER_WAIT = 2.0
"""Seconds that those who come later than half of all may at least take."""
_CLOSE_GRACE = 2.5
"""Seconds for the carriers to end what they started, then for the launcher to be killed."""
_MAX_LAUNCHES = 3
"""Launches in vain after which hosts are given up that were reached before."""
_DIRECT_HOSTS = 16
"""Hosts that a launcher contacts itself, and not through other hosts (TreeWidth of srun: 16 or more)."""


class LauncherTransport:
    """`doctor.transport.Transport` by the carriers of a launcher."""

    def __init__(
        self, launcher: Launcher, hosts: Sequence[str], patience: float | None = None, limit: int = MAX_OUTPUT
    ) -> None:
        self.warnings: list[str] = []
        self._launcher, self._hosts, self._limit = launcher, tuple(hosts), limit
        self._hello_timeout = patience or launcher.default_timeout
        self._children = Children()
        self._changed = threading.Condition()  # for all below
        self._steps: dict[str, JobStep] = {}
        self._failed: dict[str, TransportError] = {}
        self._launching: set[str] = set()
        self._launch_counts: dict[str, int] = {}
        self._all_steps: list[JobStep] = []
        self._checked = False
        self._launch_slots = threading.BoundedSemaphore(_MAX_CONCURRENT)

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        for again in (False, True):
            step = self._ready_step(host)
            try:
                return run_to_end(step.open(host, command), stdin, timeout, self._limit)
            except TransportError as stop:
                if again or stop.kind != "lost" or not step.ended or self._children.closed:
                    raise
        raise AssertionError

    def open_session(self, host: str, command: str) -> RemoteSession:
        return LineSession(host, self._ready_step(host).open(host, command))

    def close(self) -> None:
        """See `doctor.transport.Transport.close`. The carriers are stopped first: they end what they started."""
        with self._changed:
            self._children.closed = True
            steps = list(self._all_steps)
            self._changed.notify_all()
        for step in steps:
            step.close()
            with step.changed:
                step.changed.notify_all()
        deadline = time.monotonic() + _CLOSE_GRACE
        for step in steps:
            step.join(max(deadline - time.monotonic(), 0))
        self._children.close()

    # ---- launches

    def _ready_step(self, host: str) -> JobStep:
        """The launch that has a host, once it takes commands. Raises: Unreached."""
        with self._changed:
            while True:
                if self._children.closed:
                    raise transport_error("budget", "the run's time limit was reached")
                step = self._steps.get(host)
                if step and not step.ended and host not in step.failed:
                    return step
                if step and host in step.failed:
                    raise step.failed[host]
                if host in self._failed:
                    raise self._failed[host]
                if host not in self._launching:
                    self._launch_again(host, step)
                self._changed.wait(1.0)

    def _launch_again(self, host: str, step: JobStep | None) -> None:
        """Launches for all, at first; for all that were on a launch that has ended, after that."""
        if step is None:
            hosts = [other for other in self._hosts if other not in self._steps and other not in self._failed] or [host]
            hosts = hosts if host in hosts else [host]
        else:
            hosts = [other for other, has in self._steps.items() if has is step]
        for member in hosts:
            self._launch_counts[member] = self._launch_counts.get(member, 0) + 1
            if self._launch_counts[member] > _MAX_LAUNCHES:
                self._failed[member] = transport_error(
                    "lost", filled("{0} was started {1} times and ended each time", self._launcher.name, _MAX_LAUNCHES)
                )
        retried = [other for other in hosts if other not in self._failed]
        self._start_launch(retried)

    def _start_launch(self, hosts: Sequence[str]) -> None:
        """Forms launches for hosts, in another thread. The lock is held."""
        if hosts:
            for host in hosts:
                self._steps.pop(host, None)
            self._launching.update(hosts)
            threading.Thread(target=self._launch_or_fail, args=(tuple(hosts),), daemon=True).start()

    def _launch_or_fail(self, hosts: tuple[str, ...]) -> None:
        try:
            self._launch(hosts)
        except TransportError as stop:
            self._mark_failed(dict.fromkeys(hosts, stop))
        except Exception as error:  # noqa: BLE001 - the rim: no thread must wait for this one after its death
            self._mark_failed(dict.fromkeys(hosts, transport_error("error", f"{type(error).__name__}: {error}")))

    def _launch(self, hosts: tuple[str, ...]) -> None:
        if not self._checked:
            self._launcher.check()
            self._checked = True
        groups = self._launcher.groups(hosts)
        if len(groups) > 1:
            with self._changed:
                for group in groups:
                    self._start_launch(group)
            return
        with self._launch_slots:
            step = JobStep(self._launcher, hosts, self._hello_timeout, self._children)
            with self._changed:
                self._all_steps.append(step)
                if self._children.closed:
                    step.close()
            if isinstance(self._launcher, KnowsWays):
                self._register_each(step, self._launcher)
                return
            self._await(step)
        if len(step.hello_seconds) == len(hosts):
            self._register(step, step.hosts)
        elif step.hello_seconds:
            self._relaunch_apart(step)
        else:
            self._relaunch_in_parts(step)

    def _await(self, step: JobStep) -> None:
        """Until each host has said hello or is known to be unreachable, or it is no use to wait for the rest."""
        patience = Patience()
        with step.changed:
            while not step.complete and not step.ended and not self._children.closed:
                remaining = self._hello_limit(step) - patience.elapsed()
                if remaining <= 0:
                    return
                step.changed.wait(min(remaining, TURN))

    def _hello_limit(self, step: JobStep) -> float:
        """Seconds for the last hello."""
        times = sorted(step.hello_seconds.values())
        half = (len(step.hosts) + 1) // 2
        if len(times) < half or len(step.hosts) == 1:
            return self._hello_timeout
        return min(self._hello_timeout, max(3 * times[half - 1], times[half - 1] + _MIN_STRAGGLER_WAIT))

    def _register(self, step: JobStep, hosts: Iterable[str]) -> None:
        with self._changed:
            for host in hosts:
                if host in self._launching:
                    self._steps[host] = step
                    self._launching.discard(host)
            self._changed.notify_all()

    def _register_each(self, step: JobStep, launcher: KnowsWays) -> None:
        """Every host as it comes, as long as some come; then those that did not are failed, or launched again."""
        count, patience = -1, Patience(self._hello_timeout)
        while not self._children.closed:
            with step.changed:
                ready, errors = set(step.hello_seconds), set(step.reader.errors_by_host)
                if len(ready) + len(errors) > count:
                    count, patience = len(ready) + len(errors), Patience(self._hello_timeout)
                remaining = patience.remaining()
                over = step.complete or step.ended or remaining <= 0
            self._register(step, ready)
            if over:
                break
            with step.changed:
                if len(step.hello_seconds) + len(step.reader.errors_by_host) == count and not step.ended:
                    step.changed.wait(min(remaining, TURN))
        silent = [host for host in step.hosts if host not in step.hello_seconds]
        failed = launcher.failures(step.reader, silent, self._hello_timeout) if silent else {}
        if step.ended and not step.hello_seconds and not step.reader.errors_by_host:
            failed = {host: self._no_hello_error(step, host) for host in silent}
        for note in launcher.dead_notes():
            self._warn(note)
        self._mark_failed({host: error for host, error in failed.items() if error})
        with self._changed:
            if not self._children.closed:
                self._start_launch([host for host, error in failed.items() if error is None])

    def _relaunch_apart(self, step: JobStep) -> None:
        """Launches anew for those who came, and apart from them for those who did not.

        srun passes nothing on before all tasks are there, and ends them all when one cannot be started.
        """
        step.close()
        silent = [host for host in step.hosts if host not in step.hello_seconds]
        named = self._named_hosts(step)
        dead = {host: named[host] for host in silent if host in named}
        late = [host for host in silent if host not in dead]
        late_text = (
            filled("{0} delayed the rest", count_noun(len(silent), "host"))
            if late
            else filled("{0} failed to start", count_noun(len(dead), "host"))
        )
        self._warn(filled("{0} was started again: {1}", self._launcher.name, late_text))
        self._mark_failed(dead)
        with self._changed:
            if not self._children.closed:
                self._start_launch([host for host in step.hosts if host in step.hello_seconds])
                self._start_launch(late)

    def _relaunch_in_parts(self, step: JobStep) -> None:
        """No host came: launches them in parts, without those known to be down, until an unreachable one is alone.

        Each host of the launch is in one of both afterwards: those that failed, or those that are launched again.
        """
        step.close()
        if self._children.closed:
            return
        states = self._launcher.states(step.hosts) if step.ended else {}
        dead = {host: why for host, why in {**states, **self._named_hosts(step)}.items() if host in step.hosts}
        remaining = [host for host in step.hosts if host not in dead]
        unnamed_error = step.ended and not step.reader.errors_by_host
        hopeless = unnamed_error and not dead and self._launcher.affects_all_hosts(step.reader.last_error)
        if dead and remaining:
            self._warn(
                filled(
                    "{0} was started again without {1} that failed to start",
                    self._launcher.name,
                    count_noun(len(dead), "host"),
                )
            )
        elif len(remaining) == 1 or hopeless:
            dead, remaining = {host: self._no_hello_error(step, host) for host in remaining}, []
        self._mark_failed(dead)
        count = 1 if dead else min(len(remaining), _MAX_PARTS)
        with self._changed:
            for part in range(count):
                self._start_launch(remaining[part::count])

    def _named_hosts(self, step: JobStep) -> dict[str, TransportError]:
        """The hosts that the launcher named as unreachable.

        In a large launch, messages go from host to host, and whoever stands behind a dead one is named with it: there
        a name counts only in a launch of few, which the others get.
        """
        named = dict(step.reader.errors_by_host)
        return named if len(step.hosts) <= _DIRECT_HOSTS or len(named) == 1 else {}

    def _no_hello_error(self, step: JobStep, host: str) -> TransportError:
        """Why the only host of a launch did not say hello."""
        name, stderr = self._launcher.name, step.stderr_tail(host)
        if host in step.reader.errors_by_host:
            return step.reader.errors_by_host[host]
        problem = python_problem(stderr.decode("utf-8", "replace"))
        if problem:
            return transport_error("no-python", problem)
        hint = self._launcher.test_command(host)
        if step.ended and step.reader.last_error:
            return transport_error(
                "refused", filled("{0} does not start a task on it: {1}", name, step.reader.last_error), hint
            )
        waited = seconds_text(self._hello_timeout)
        if host in step.reader.started_hosts:
            return transport_error(
                "silent", filled("{0} started its task, which sent nothing within {1}", name, waited), hint
            )
        return transport_error("dropped", filled("{0} had no answer from it within {1}", name, waited), hint)

    def _warn(self, text: str) -> None:
        with self._changed:
            if text not in self.warnings and not self._children.closed:
                self.warnings.append(text)

    def _mark_failed(self, why: dict[str, TransportError]) -> None:
        with self._changed:
            self._failed.update(why)
            self._launching.difference_update(why)
            self._changed.notify_all()

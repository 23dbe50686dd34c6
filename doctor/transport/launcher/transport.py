"""The job's own launcher as the way to its hosts: one launch for all of them, however many commands they run.

Hosts that keep the others waiting get a launch of their own, so that the rest can begin; a launch that is refused as a
whole is tried again in parts, until those that cannot take part stand alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from doctor.transport import Conversation, Said, Unreached
from doctor.transport.conversation import Lines
from doctor.transport.launcher.launcher import Launcher
from doctor.transport.launcher.step import Channel, Step
from doctor.transport.messages import seconds, size, unreached
from doctor.transport.options import MAX_OUTPUT
from doctor.transport.process import NO_STATUS, Children

_PARTS = 8
_AT_ONCE = 16
"""Launches in the making."""
_STRAGGLE = 2.0
"""Seconds that those who come later than half of all may at least take."""
_FAREWELL = 2.5
"""Seconds for the carriers to end what they started, then for the launcher to be killed."""
_TRIES = 3
"""Launches in vain after which hosts are given up that were reached before."""
_FOREVER = 3600.0


class Carrier:
    """`doctor.transport.Transport` by the carriers of a launcher."""

    def __init__(
        self, launcher: Launcher, hosts: Sequence[str], patience: float | None = None, limit: int = MAX_OUTPUT
    ) -> None:
        self.warnings: list[str] = []
        self._launcher, self._hosts, self._limit = launcher, tuple(hosts), limit
        self._patience = patience or launcher.patience
        self._children = Children()
        self._changed = threading.Condition()  # for all below
        self._steps: dict[str, Step] = {}
        self._failed: dict[str, Unreached] = {}
        self._forming: set[str] = set()
        self._tries: dict[str, int] = {}
        self._all: list[Step] = []
        self._checked = False
        self._few = threading.BoundedSemaphore(_AT_ONCE)

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> Said:
        """See `doctor.transport.Transport.run`."""
        for again in (False, True):
            step = self._step(host)
            try:
                return self._run(step.open(host, command), stdin, timeout)
            except Unreached as stop:
                if again or stop.kind != "lost" or not step.ended or self._children.closed:
                    raise
        raise AssertionError

    def talk(self, host: str, command: str) -> Conversation:
        """See `doctor.transport.Transport.talk`."""
        return Lines(host, self._step(host).open(host, command))

    def close(self) -> None:
        """See `doctor.transport.Transport.close`. The carriers are asked first: they know what they started."""
        with self._changed:
            self._children.closed = True
            steps = list(self._all)
            self._changed.notify_all()
        for step in steps:
            step.close()
            with step.changed:
                step.changed.notify_all()
        deadline = time.monotonic() + _FAREWELL
        for step in steps:
            step.join(max(deadline - time.monotonic(), 0))
        self._children.close()

    # ---- one command

    def _run(self, channel: Channel, stdin: bytes, timeout: float) -> Said:
        channel.keep_err, channel.whole = self._limit, True
        deadline, left, out = time.monotonic() + timeout, memoryview(stdin), bytearray()
        why: Unreached | None = None
        try:
            while why is None and not (channel.code is not None and channel.drained):
                if left:
                    left = left[channel.write(left) :]
                wait = deadline - time.monotonic()
                if wait <= 0:
                    why = unreached("timeout", f"the command did not end within {seconds(timeout)}")
                    break
                channel.wait(bool(left), min(wait, _FOREVER))
                out += channel.read() or b""
                if len(out) + len(channel.err) > self._limit:
                    why = unreached("flood", f"it printed more than {size(self._limit)}, and was cut off")
            out += channel.read() or b""
        except Unreached as stop:
            why = stop
        with contextlib.suppress(Unreached):
            channel.free()
        code = NO_STATUS if why or channel.code is None else channel.code
        said = Said(code, bytes(out), bytes(channel.err), channel.sent or time.time(), time.time())
        if why:
            raise Unreached(why.kind, why.text, why.hint, said)
        return said

    # ---- launches

    def _step(self, host: str) -> Step:
        """The launch that has a host, once it takes commands. Raises: Unreached."""
        with self._changed:
            while True:
                if self._children.closed:
                    raise unreached("budget", "the run's time was up")
                step = self._steps.get(host)
                if step and not step.ended and host not in step.failed:
                    return step
                if step and host in step.failed:
                    raise step.failed[host]
                if host in self._failed:
                    raise self._failed[host]
                if host not in self._forming:
                    self._form_again(host, step)
                self._changed.wait(1.0)

    def _form_again(self, host: str, step: Step | None) -> None:
        """Launches for all, at first; for all that were on a launch that has ended, after that."""
        if step is None:
            hosts = [one for one in self._hosts if one not in self._steps and one not in self._failed] or [host]
            hosts = hosts if host in hosts else [host]
        else:
            hosts = [one for one, has in self._steps.items() if has is step]
        for one in hosts:
            self._tries[one] = self._tries.get(one, 0) + 1
            if self._tries[one] > _TRIES:
                self._failed[one] = unreached("lost", f"{self._launcher.name} was started {_TRIES} times, and ended")
        wanted = [one for one in hosts if one not in self._failed]
        self._start(wanted)

    def _start(self, hosts: Sequence[str]) -> None:
        """Forms launches for hosts, in another thread. The lock is held."""
        if hosts:
            for host in hosts:
                self._steps.pop(host, None)
            self._forming.update(hosts)
            threading.Thread(target=self._form, args=(tuple(hosts),), daemon=True).start()

    def _form(self, hosts: tuple[str, ...]) -> None:
        try:
            self._launch(hosts)
        except Unreached as stop:
            self._give_up(dict.fromkeys(hosts, stop))
        except Exception as error:  # noqa: BLE001 - the rim: nobody must wait for a thread that has died
            self._give_up(dict.fromkeys(hosts, unreached("error", f"{type(error).__name__}: {error}")))

    def _launch(self, hosts: tuple[str, ...]) -> None:
        if not self._checked:
            self._launcher.check()
            self._checked = True
        with self._few:
            step = Step(self._launcher, hosts, self._patience, self._children)
            with self._changed:
                self._all.append(step)
                if self._children.closed:
                    step.close()
            self._await(step)
        if len(step.greeted) == len(hosts):
            self._adopt(step)
        elif step.greeted:
            self._part(step)
        else:
            self._split(step)

    def _await(self, step: Step) -> None:
        """Until all have said hello, or it is no use to wait for the rest."""
        with step.changed:
            while len(step.greeted) < len(step.hosts) and not step.ended and not self._children.closed:
                left = step.began + self._limit_of(step) - time.monotonic()
                if left <= 0:
                    return
                step.changed.wait(left)

    def _limit_of(self, step: Step) -> float:
        """Seconds for the last hello."""
        times = sorted(step.greeted.values())
        half = (len(step.hosts) + 1) // 2
        if len(times) < half or len(step.hosts) == 1:
            return self._patience
        return min(self._patience, max(3 * times[half - 1], times[half - 1] + _STRAGGLE))

    def _adopt(self, step: Step) -> None:
        with self._changed:
            for host in step.hosts:
                self._steps[host] = step
                self._forming.discard(host)
            self._changed.notify_all()

    def _part(self, step: Step) -> None:
        """Launches anew for those who came, and apart from them for those who did not.

        srun passes nothing on before all tasks are there, and ends them all when one cannot be started.
        """
        step.close()
        missing = counted(len(step.hosts) - len(step.greeted))
        self._warn(f"{self._launcher.name} was started again: {missing} kept the others waiting")
        came = [host for host in step.hosts if host in step.greeted]
        late = [host for host in step.hosts if host not in step.greeted]
        with self._changed:
            if not self._children.closed:
                self._start(came)
                self._start(late)

    def _split(self, step: Step) -> None:
        """Nobody came: in parts, without those that are known to be down, until who cannot be reached stands alone."""
        step.close()
        if self._children.closed:
            return
        dead = {**self._launcher.states(step.hosts), **step.ears.troubles} if step.ended else dict(step.ears.troubles)
        dead = {host: why for host, why in dead.items() if host in step.hosts}
        left = [host for host in step.hosts if host not in dead]
        if dead and left:
            self._warn(f"{self._launcher.name} was started again without {counted(len(dead))} that it cannot use")
        elif len(left) == 1 or (step.ended and self._launcher.alike(step.ears.words)):
            dead, left = {host: self._why(step, host) for host in left}, []
        self._give_up(dead)
        count = 1 if dead else min(len(left), _PARTS)
        with self._changed:
            for part in range(count):
                self._start(left[part::count])

    def _why(self, step: Step, host: str) -> Unreached:
        """Why the only host of a launch did not say hello."""
        name, words = self._launcher.name, step.said(host)
        if host in step.ears.troubles:
            return step.ears.troubles[host]
        if b"doctor-no-python" in words:
            return unreached("no-python", "there is no python3 on the host")
        if step.ended and step.ears.words:
            return unreached("refused", f"{name} does not start a task on it: {step.ears.words}")
        waited = seconds(self._patience)
        if host in step.ears.started:
            return unreached("silent", f"{name} started its task, which said nothing within {waited}")
        return unreached("dropped", f"{name} had no answer from it within {waited}")

    def _warn(self, text: str) -> None:
        with self._changed:
            if text not in self.warnings and not self._children.closed:
                self.warnings.append(text)

    def _give_up(self, why: dict[str, Unreached]) -> None:
        with self._changed:
            self._failed.update(why)
            self._forming.difference_update(why)
            self._changed.notify_all()


def counted(hosts: int) -> str:
    """
    >>> counted(1), counted(3)
    ('1 host', '3 hosts')
    """
    return f"{hosts} host{'' if hosts == 1 else 's'}"

"""The ranks of a host: what they send, what they print, and how they end."""

import json
import os
import select
import time

from doctor.remote.runtime.controller import BACKLOG
from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.streams import LineBuffer, last_lines
from doctor.smoke.programs.agent.interpreters import StartingInterpreters, start_interpreter, widen_pipe, worker_input
from doctor.smoke.programs.agent.kernel import KernelMessages, Limits, process_limits
from doctor.smoke.programs.agent.network import carried_bytes, tcp_sockets
from doctor.smoke.programs.agent.pressure import Pressure
from doctor.smoke.programs.agent.rank_monitor import SEND

LOOK = 0.02  # seconds between two readings of the flight recorders
BEAT = 0.2  # seconds between two lines about the ranks, at most; `SEND` at least
SURVEY = 0.15  # seconds between two surveys of sockets, at least
SHARE = 20  # a turn is followed by a pause so many times as long, so that hundreds of ranks are not held up by us
WAITS = 0.25  # a rank that has been in one collective for so long has its sockets examined
TAIL = 8192  # bytes kept of what a rank prints
LONGEST_EVENT = 1 << 20  # bytes


def pause_after(started, least, most=0.4):
    """Seconds until the next turn of work that began when this process had run for `started` seconds."""
    return min(max(least, SHARE * (time.process_time() - started)), most)


class RankWatcher:
    """Starts the interpreters that the ranks come from, and reports to the controller what the ranks do.

    `monitors` is rank -> RankMonitor. `late` are seconds that this program itself waited for a CPU.
    """

    def __init__(self, poll, controller, descendants):
        self.poll, self.controller, self.descendants = poll, controller, descendants
        self.monitors = {}
        self.ranks_by_pid = {}  # pid of an interpreter -> its ranks, None for the one process of all ranks
        self.starting = StartingInterpreters()
        self.ended_well = False  # the one process of all ranks, before that: something of it may still be there
        self.stdin_data = {}  # fd -> what is still to be written to an interpreter's stdin
        self.events, self.event_lines = None, LineBuffer(65536)
        self.parts = {}  # rank -> the text so far of an event that comes in parts
        self.outputs = {}  # fd -> rank, -1 for the process that they all come from
        self.tail = b""  # of what that process printed
        self.log = self.limits = None
        self.late = self.reported_at = self.next_look = self.next_report = self.next_survey = 0.0
        self.retransmissions = []
        self.has_peers = True  # other hosts: where there are none, nothing is sent again
        self.devices = None  # their links, which TCP does not show, where ranks use any
        self.pressure = Pressure()

    def open_pipes(self, ranks):
        """What ranks write to: the pipe of their events, and rank -> the pipe of its stdout and stderr."""
        self.log = KernelMessages()
        self.limits = Limits(os.getpid())
        self.events, events = os.pipe()
        widen_pipe(self.events)
        self.start_reading(self.events)
        errors = {}
        for rank in ranks:
            reader, errors[rank] = os.pipe()
            self.outputs[reader] = rank
            self.start_reading(reader)
        return events, errors

    def start(self, argv, environ, inherited, ranks, early=False):
        """One interpreter; `ranks`: its own, None for the one process of all ranks. Returns (pid, its stdin)."""
        pid, stdin, output = start_interpreter(argv, environ, inherited, early)
        self.outputs[output] = -1 if ranks is None else ranks[0]
        self.start_reading(output)
        self.ranks_by_pid[pid] = ranks
        self.starting.add(pid, self.outputs[output])
        self.descendants.sessions.add(pid)
        return pid, stdin

    def give_orders(self, stdin, orders, worker):
        """To an interpreter that was started; they are written as fast as it reads."""
        self.stdin_data[stdin] = worker_input(worker, orders)
        self.poll.register(stdin, select.POLLOUT)

    def close(self):
        """What `open_pipes` opened, and what interpreters print: there will be others."""
        for fd in list(self.outputs) + [self.events] * (self.events is not None):
            self.stop_reading(fd)
        self.outputs.clear()
        if self.log:
            self.log.close()
        self.events, self.tail = None, b""

    def handle(self, fd):
        if fd == self.events:
            self.read_events()
        elif fd in self.stdin_data:
            self.write_stdin(fd)
        elif fd in self.outputs:
            self.read_output(fd)

    def write_stdin(self, fd):
        """The worker's text, as fast as it is read. The pipe stays open behind it: its end would mean ours."""
        waiting = self.stdin_data
        try:
            while waiting[fd]:
                waiting[fd] = waiting[fd][os.write(fd, waiting[fd]) :]
        except BlockingIOError:
            return
        except OSError:  # it has ended already; its exit status and what it printed will show why
            pass
        self.poll.unregister(fd)

    def read_events(self):
        """Events of the ranks: passed on as they are, with what we know of an end."""
        try:
            piece = os.read(self.events, 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            self.stop_reading(self.events)
            self.events = None
            if self.ended_well:
                self.report_end(-1, 0)
        for line in self.event_lines.split(piece):
            self.forward_event(line)

    def forward_event(self, line):
        try:
            event = json.loads(line.decode("ascii"))
            kind, rank = event["ev"], event["rank"]
        except (ValueError, TypeError, KeyError):
            self.controller.send(fault=filled("a rank sent an invalid event: {0}", repr(line[:100])))
            return
        if kind == "part":
            self.join_parts(rank, event)
        elif kind == "child":  # a loader worker, or a rank that will have some: it is of use only here
            self.descendants.note(event.get("pid"), event.get("folder"))
        elif kind == "spun":  # it goes with what the kernel says of the rank
            if rank in self.monitors:
                self.pressure.note_spin(rank, event)
        elif kind == "exit":
            if rank in self.monitors:
                self.monitors[rank].current_limits().set_process_limits(str(event.get("limits", "")))
                self.pressure.observe(rank, 0, str(event.get("schedstat", ""))[:100])
            self.report_end(rank, event["status"])
        else:
            if kind == "imported":
                self.starting.has_imported(rank)
            elif kind == "error" and rank in self.monitors:
                self.monitors[rank].error = str(event.get("text", ""))[:600]
                self.monitors[rank].secondary = bool(event.get("secondary"))
            self.controller.send_json(b'{"event":' + line + b"}")

    def join_parts(self, rank, event):
        """An event that is too long for one write to a pipe."""
        text = self.parts.pop(rank, "") + str(event.get("text", ""))
        if not event.get("more"):
            self.forward_event(text.encode("ascii", "replace"))
        elif len(text) > LONGEST_EVENT or rank not in self.monitors:
            self.controller.send(fault=filled("rank {0} sent an event of more than {1} bytes", rank, LONGEST_EVENT))
        else:
            self.parts[rank] = text

    def read_output(self, fd):
        """The end of what a rank prints is kept for the case that it dies."""
        try:
            piece = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not piece:
            self.outputs.pop(fd)
            self.stop_reading(fd)
            return
        writer = self.monitors.get(self.outputs[fd], self)
        writer.tail = (writer.tail + piece)[-TAIL:]
        if writer is not self:
            writer.note_output(len(piece), time.monotonic())

    def start_reading(self, fd):
        os.set_blocking(fd, False)
        self.poll.register(fd, select.POLLIN)

    def stop_reading(self, fd):
        self.poll.unregister(fd)
        os.close(fd)

    def report_end(self, rank, status):
        """A rank's process, or the one that they come from (-1), has ended with this wait status."""
        for fd in [fd for fd, owner in self.outputs.items() if owner == rank]:
            self.read_output(fd)
        monitor = self.monitors.get(rank)
        event = {"rank": rank, "ev": "exit", "status": status}
        if monitor:
            log = self.log.oom_line(monitor.pid) if monitor.pid else ""
            monitor.end(status, log)
            event.update(dict((name, value) for name, value in (("oom", monitor.oom), ("log", log)) if value))
        tail = last_lines((monitor or self).tail, 4000)
        if status and "log" not in event:
            sentences = (monitor and monitor.limits or self.limits).sentences(tail + (monitor.error if monitor else ""))
            event.update({"log": " ".join(sentences)[:600]} if sentences else {})
        if status and tail:
            event["tail"] = tail
        self.controller.send(event=event)

    def watch(self, clock):
        """Reads the flight recorders, and reports what is new."""
        begun, gap = time.monotonic(), clock - self.next_look
        if self.next_look and gap > 0.1:
            self.late = max(self.late, gap)
        started = time.process_time()
        for monitor in self.monitors.values():
            monitor.read_recorder()
        self.reap()
        self.pressure.watch(self.monitors.values(), clock)
        self.next_look = clock + pause_after(started, LOOK)
        if clock < self.next_report or len(self.controller.queue) > BACKLOG:
            return
        started = time.process_time()
        self.report(clock + time.monotonic() - begun)
        self.next_report = clock + pause_after(started, SEND)

    def report(self, clock):
        """Looks at ranks that do not move, and sends what is new of all."""
        for monitor in self.monitors.values():
            monitor.observe(clock)
        snapshots = list(filter(None, [monitor.snapshot(clock) for monitor in self.monitors.values()]))
        evidence = self.find_retransmissions(clock)
        if snapshots or evidence or clock - self.reported_at > BEAT:
            message = dict(self.starting.report(clock), snaps=snapshots, late=round(self.late, 3))
            self.controller.send(**dict(message, evidence=evidence) if evidence else message)
            self.reported_at, self.late = clock, 0.0

    def find_retransmissions(self, clock):
        """Sockets that send the same bytes again and again, of ranks that wait in a collective."""
        stuck = [
            monitor.pid for monitor in self.monitors.values()
            if monitor.pid and not monitor.ended and monitor.waits_in_collective() and monitor.age(clock) > WAITS
        ]  # fmt: skip
        if stuck and self.has_peers and clock > self.next_survey:
            started = time.process_time()
            ranks = dict((monitor.pid, rank) for rank, monitor in self.monitors.items())
            carried = carried_bytes(stuck, self.devices)
            for pid in stuck:
                self.monitors[ranks[pid]].note_traffic(carried.get(pid), clock)
            self.retransmissions = [
                [ranks[pid], peer[0], peer[1], unacked, retransmits]
                for pid, established, _, peer, retransmits, unacked, _ in tcp_sockets(stuck)
                if established and retransmits >= 2 and unacked
            ]
            self.next_survey = clock + pause_after(started, SURVEY, 5.0)
        return self.retransmissions if stuck else []

    def reap(self):
        """Ends of what we started ourselves, and of orphans that came to us."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                ended = None
            if not ended:
                return
            pid = ended.si_pid
            for monitor in self.monitors.values():
                if monitor.pid == pid:
                    # A program may change its own, which can be read until the process is reaped.
                    monitor.current_limits().set_process_limits(process_limits(pid))
                    self.pressure.observe(monitor.rank, pid)
            status = os.waitpid(pid, 0)[1]
            self.descendants.pids.add(pid)
            if pid in self.ranks_by_pid:
                self.read_all_events()
                ranks = self.ranks_by_pid.pop(pid)
                early = self.starting.remove(pid) and ranks is None and status == 0
                # A wrapper may leave the interpreter behind, which keeps the pipe of the events open.
                self.ended_well = early and self.events is not None
                for rank in [-1] * (not self.ended_well) if ranks is None else ranks:
                    self.report_end(rank, status)
            else:
                for monitor in self.monitors.values():
                    if monitor.pid == pid and not monitor.ended:
                        self.report_end(monitor.rank, status)

    def read_all_events(self):
        """What was reported before an end comes before the end."""
        ready = True
        while self.events is not None and ready:
            poll = select.poll()
            poll.register(self.events, select.POLLIN)
            ready = any(mask & select.POLLIN for _, mask in poll.poll(0))
            if ready:
                self.read_events()

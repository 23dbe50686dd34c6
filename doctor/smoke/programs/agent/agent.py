"""The agent's loop: carries out the controller's orders, watches the ranks, and reports what they do."""

import json
import mmap
import os
import signal
import sys
import time

from doctor.remote.runtime.controller import OrderedProgram
from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.job_variables import job_variables
from doctor.remote.runtime.processes import become_reaper
from doctor.remote.runtime.reading import find_interpreter
from doctor.smoke.programs.agent.cleanup import Descendants
from doctor.smoke.programs.agent.device_traffic import DeviceTraffic
from doctor.smoke.programs.agent.file_wait import lasting_file_waits
from doctor.smoke.programs.agent.interpreters import rank_environment, unnamed_file
from doctor.smoke.programs.agent.network import (
    halted_connections,
    interface_addresses,
    interface_speeds,
    listen_on,
    network_state,
    probe_connections,
    tcp_sockets,
)
from doctor.smoke.programs.agent.procfs import accelerators, hidden_accelerators, npu_model
from doctor.smoke.programs.agent.rank_monitor import RankMonitor, rank_processes
from doctor.smoke.programs.agent.rank_watcher import RankWatcher
from doctor.smoke.programs.agent.stacks import dump_stacks
from doctor.smoke.programs.recorder_page import PAGE_SIZE

PATIENCE = 15.0  # seconds without an order of the controller, which sends one every other second

ORDERS = {
    "prepare": "prepare", "start": "start", "stay": "stay", "stacks": "send_stacks", "sockets": "send_sockets",
    "probe": "send_probes", "pressure": "send_pressure", "end": "end",
}  # fmt: skip
"""The agent's method by the order's name on the wire; the other fields of an order are its parameters."""


class InheritedFiles:
    """The files that a host's ranks inherit: flight recorders, events, and rank -> stacks, and -> what it prints."""

    def __init__(self, mine, watcher):
        self.recorders = unnamed_file("box", PAGE_SIZE * len(mine))
        self.stacks = dict((rank, unnamed_file("stacks", 0)) for rank in mine)
        self.events, self.errors = watcher.open_pipes(mine)

    def of(self, ranks):
        """Those that one interpreter inherits."""
        return [self.recorders, self.events] + list(self.stacks.values()) + [self.errors[rank] for rank in ranks]

    def close_written(self):
        """Ours of those that only ranks write to: their end shows that a rank has ended."""
        for fd in [self.events] + list(self.errors.values()):
            os.close(fd)

    def close(self):
        self.close_written()
        for fd in [self.recorders] + list(self.stacks.values()):
            os.close(fd)


class EarlyInterpreter:
    """An interpreter that imports torch, and what it was started for."""

    def __init__(self, pid, stdin, files, mine, argv, environ):
        self.pid, self.stdin, self.files = pid, stdin, files
        self.mine, self.argv, self.environ = mine, argv, environ

    def is_running(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def end(self, watcher):
        """Ends it, and closes what was opened for its ranks.

        It is not waited for, as one that reads a file system without an answer does not end: the watcher reaps it.
        """
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.stdin)
        watcher.ranks_by_pid.pop(self.pid)
        watcher.starting.remove(self.pid)
        watcher.close()
        self.files.close()


class Agent(OrderedProgram):
    """Watches the ranks of one host for the controller; `ORDERS` are what it can be ordered to do.

    A method that an order names runs to its end before the next line is read; nothing else runs at the same time.
    """

    orders = ORDERS
    failure = "the agent failed: {0}: {1}"

    def __init__(self, request):
        OrderedProgram.__init__(self, request)
        self.request, self.mark = request, request["marker"]
        self.descendants = Descendants("DOCTOR_SMOKE=" + self.mark)
        self.watcher = RankWatcher(self.poll, self.controller, self.descendants)
        self.store = None  # the socket that the ranks will meet at
        self.stacks = {}  # rank -> fd
        self.stacks_due = {}  # rank -> size of that file when it was asked, of a rank that got no CPU since
        self.early = None  # the interpreter that was started before the order to start came

    # -- the loop

    def begin(self):
        if "prepare" in self.request:
            self.prepare(**self.request["prepare"])
        become_reaper()
        if self.request.get("expected"):
            self.expect(**self.request["expected"])

    def run(self):
        while True:
            running = bool(self.watcher.monitors)
            pause = max(0, self.watcher.next_look - time.monotonic()) * 1000 if running else 100
            self.handle_events(pause)
            self.quit_if_left(PATIENCE if running else 4 * PATIENCE)
            if running and time.monotonic() >= self.watcher.next_look:
                self.watcher.watch(time.monotonic())

    def handle_file(self, fd, _mask):
        self.watcher.handle(fd)

    # -- what the controller orders

    def prepare(self, listen=False, port=0):
        """Binds the port that the ranks will meet at, before anything forks."""
        problem = ""
        if listen:
            try:
                self.store = listen_on(port)
                port = self.store.getsockname()[1]
            except OSError as error:
                problem = filled("port {0}: {1}", port, error.strerror or error)
        server = os.environ.get("SSH_CONNECTION", "").split()
        devices = accelerators(os.environ)
        hidden, unallocated = hidden_accelerators(devices, os.environ)
        self.controller.send(
            hello={
                "host": os.uname()[1],
                "pid": os.getpid(),
                "python": "%d.%d.%d" % sys.version_info[:3],
                "cpus": len(os.sched_getaffinity(0)),
                "addresses": interface_addresses(),
                "delays": network_state()["delays"],
                "speeds": interface_speeds(),
                "port": port if listen and not problem else 0,
                "port_error": problem,
                "server": server[2] if len(server) == 4 else "",
                "devices": devices,
                "hidden": hidden,
                "unallocated": unallocated,
                "npu_model": npu_model(),
                "uid": os.getuid(),
                "variables": job_variables(os.environ),
                "now": time.time(),
            }
        )

    def start(self, plan, mine, worker, master, python="", hosts_store=False, start="fork", seconds=0, peer=""):
        """Starts the interpreter that becomes the ranks ("fork"), or one for each of them ("exec")."""
        if seconds:
            self.deadline = time.monotonic() + seconds
        argv = find_interpreter(python) or [python or "python3"]
        environ = rank_environment(plan, master, self.mark, peer)
        early = self.take_early(mine if start == "fork" and hosts_store else None, argv, environ)
        files = early.files if early else InheritedFiles(mine, self.watcher)
        memory = mmap.mmap(files.recorders, PAGE_SIZE * len(mine))
        monitors = [RankMonitor(rank, memory, PAGE_SIZE * index) for index, rank in enumerate(mine)]
        self.watcher.has_peers = len(set(place["host"] for place in plan["places"])) > 1
        if plan["backend"] != "gloo":
            npus = [place["device"] for place in plan["places"] if place["rank"] in mine and place["device"] >= 0]
            self.watcher.devices = DeviceTraffic(plan["backend"], npus)
        self.watcher.monitors = dict((monitor.rank, monitor) for monitor in monitors)
        self.stacks = files.stacks
        orders = {
            "plan": plan, "box": files.recorders, "index": dict((rank, index) for index, rank in enumerate(mine)),
            "start": start, "master": master, "stacks": files.stacks, "agent": os.getpid(), "events": files.events,
        }  # fmt: skip
        for ranks in [mine] if start == "fork" else [[rank] for rank in mine]:
            group = dict(orders, mine=ranks, errors=dict((rank, files.errors[rank]) for rank in ranks))
            group["hosts_store"] = hosts_store and (start == "fork" or 0 in ranks)
            store = [self.store.fileno()] if self.store and group["hosts_store"] else []
            group["store"] = store[0] if store else -1
            if early:
                stdin = early.stdin
            else:
                inherited = files.of(ranks) + store
                _, stdin = self.watcher.start(argv, environ, inherited, None if start == "fork" else ranks)
            self.watcher.give_orders(stdin, group, worker.encode("utf-8"))
        files.close_written()
        if self.store:
            self.store.close()

    def expect(self, mine, plan, python=""):
        """Starts the interpreter of ranks that will probably be ordered, so that it imports torch in the meantime.

        Not on a host with accelerators, which the ranks would be ordered to use. What fails here will fail again where
        it is ordered, and is reported then.
        """
        if not self.store or any(accelerators().values()):
            return
        argv = find_interpreter(python) or [python or "python3"]
        environ = rank_environment(plan, ["", 0], self.mark)
        try:
            files = InheritedFiles(mine, self.watcher)
            inherited = files.of(mine) + [self.store.fileno()]
            pid, stdin = self.watcher.start(argv, environ, inherited, None, early=True)
        except OSError:
            self.watcher.close()
            return
        self.early = EarlyInterpreter(pid, stdin, files, mine, argv, environ)

    def take_early(self, mine, argv, environ):
        """The interpreter that was started early, if it is what is ordered now and still there. Else it is ended."""
        early, self.early = self.early, None
        ordered = (mine, argv, environ)
        if early and not ((early.mine, early.argv, early.environ) == ordered and early.is_running()):
            early.end(self.watcher)
            early = None
        return early

    def send_stacks(self):
        """Asks every rank, and its loader workers one after the other, to write down where it is.

        The limits that the host's ranks have reached, and files that they wait for, come with it: they may be why.
        """
        stacks = dump_stacks(self.watcher.monitors.values(), self.stacks, self.stacks_due)
        pids = rank_processes(self.watcher.monitors.values(), self.watcher.starting.by_pid.values())
        limits = [self.watcher.limits] + [monitor.limits for monitor in self.watcher.monitors.values()]
        reached = list(dict.fromkeys(sentence for limit in limits if limit for sentence in limit.sentences()))[:4]
        self.controller.send(stacks=stacks, due=bool(self.stacks_due), limits=reached, files=lasting_file_waits(pids))

    def send_sockets(self):
        """The ranks' connections, where they listen, the host's addresses, and what slows down its sending."""
        alive = [monitor for monitor in self.watcher.monitors.values() if monitor.pid and not monitor.ended]
        ranks = dict((monitor.pid, monitor.rank) for monitor in alive)
        connections, listening, unread = [], [], set()
        for pid, established, local, peer, retransmits, unacked, waiting in tcp_sockets(sorted(ranks))[:4096]:
            if established:
                connections.append([ranks[pid], peer[0], peer[1], unacked, retransmits])
                unread.update([peer[0]] * bool(waiting))
            else:
                listening.append([ranks[pid], local[0], local[1]])
        more = {"halted": halted_connections(sorted(ranks))[:1024], "unread": sorted(unread)[:1024]}
        self.controller.send(sockets=connections, listening=listening, **more, **network_state())

    def send_probes(self, targets, seconds=0.6):
        """Connects to all targets at once."""
        self.controller.send(probes=probe_connections(targets[:1024], seconds))

    def send_pressure(self):
        """What kept the ranks from running."""
        alive = [monitor for monitor in self.watcher.monitors.values() if monitor.pid and not monitor.ended]
        pids = dict((monitor.rank, monitor.pid) for monitor in alive)
        self.controller.send(pressure=self.watcher.pressure.report(pids))

    def end(self):
        remaining = self.kill_all()
        self.say_bye(left=remaining)

    # -- the end

    def quit(self, *_):
        if self.ending:
            return
        self.kill_all()
        os._exit(self.status)

    def kill_all(self):
        """Kills everything that came from us, and removes what it left behind."""
        self.ending = True
        remaining = self.descendants.kill_all()
        self.descendants.pids.update(monitor.pid for monitor in self.watcher.monitors.values() if monitor.pid)
        self.descendants.remove_leftovers()
        return remaining


def main(request, _program=b"", agent_class=Agent):
    """Prepares the host, if asked to, and runs the agent until the run has ended."""
    agent_class(json.loads(request.decode("ascii"))).serve()

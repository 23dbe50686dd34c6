"""The prober's loop: listens, connects and measures as the controller orders, and reports what came of it."""

import json
import os
import pwd
import re
import sys
import time

from doctor.net.prober.attempt import ConnectionAttempt, PacketSizeSearch
from doctor.net.prober.device_tools import end_program, installed_programs, run_programs, start_program
from doctor.net.prober.handshake import ECHO, SINK, RunKeys
from doctor.net.prober.listener import Listener, UnprovenCalls, open_listener
from doctor.net.prober.socket_loop import Pace, SocketLoop, close_now, raise_file_limit
from doctor.net.prober.transfer import call_for, measure_latency, measure_streams
from doctor.remote.runtime.controller import OrderedProgram
from doctor.remote.runtime.neighbours import ask_neighbours
from doctor.remote.runtime.netlink import neighbour_table
from doctor.remote.runtime.reading import link_at, read_text
from doctor.smoke.programs.agent.network import interface_addresses, proc_address, socket_owners, socket_rows
from doctor.smoke.programs.agent.procfs import open_files

PATIENCE = 20.0  # seconds without an order of the controller, which sends one every few seconds
QUESTION_SECONDS = 0.6  # for all questions for hardware addresses
MAX_SEARCHES = 4  # hosts to which the largest packet is searched for
REPORT_SIZE = 512  # attempts of one message
ORDERS = {
    "listen": "listen", "connect": "connect", "arrived": "send_arrived", "job": "look_for_job",
    "programs": "list_programs", "serve": "serve_program", "call": "call_programs", "served": "end_served",
    "speed": "measure", "given-up": "send_given_up", "pace": "send_pace", "stay": "stay", "end": "end",
}  # fmt: skip
"""The prober's method by the order's name on the wire; the other fields of an order are its parameters."""
SYN_RECEIVED = "03"
DAEMONS = ("nvidia-persiste", "nv-hostengine", "dcgm", "nvidia-smi", "npu-smi", "npu-exporter", "nv-fabricmanage")
"""Beginnings of names, as the kernel cuts them, of programs that hold a device and are no job."""


class Prober(OrderedProgram):
    """Tries the network of one host for the controller; `ORDERS` are what it can be ordered to do."""

    orders = ORDERS
    failure = "the prober failed: {0}: {1}"

    def __init__(self, request):
        OrderedProgram.__init__(self, request)
        self.loop = SocketLoop(self.poll)
        token, own_key = (bytes(bytearray.fromhex(request[name])) for name in ("token", "own_key"))
        self.member = RunKeys(request["host"], token, own_key)
        self.listeners, self.earlier = {}, []
        self.waiting, self.in_flight, self.finished = [], 0, []
        self.searches, self.answers = 0, {}
        self.connecting, self.connect_end = None, 0.0
        descriptors = raise_file_limit()
        self.limit, self.calls = max(16, min(512, descriptors // 4)), UnprovenCalls(descriptors)
        self.pace = Pace()
        self.served = None

    # -- the loop

    def run(self):
        while True:
            self.handle_events(100)
            self.pace.turn()
            self.loop.expire()
            self.quit_if_left(PATIENCE)
            if self.connecting is not None:
                self.go_on()

    def handle_file(self, fd, mask):
        self.loop.handle(fd, mask)

    # -- what the controller orders

    def begin(self):
        self.watch_controller()
        self.controller.send(
            hello={
                "host": os.uname()[1],
                "python": "%d.%d.%d" % sys.version_info[:3],
                "uid": os.getuid(),
                "addresses": interface_addresses(),
                "network": network_identity(),
                "now": time.time(),
            }
        )

    def listen(self, services):
        """Listens on each [address, port]. Answers [address, port, port that it got, problem, owner]."""
        results, taken = [], []
        for address, port in services[:4096]:
            try:
                listener = Listener(self.loop, open_listener(address, port), self.member, self.calls)
                self.listeners[address, listener.port] = listener
                results.append([address, max(port, 0), listener.port, "", {}])
            except OSError as error:
                results.append([address, max(port, 0), 0, error.strerror or str(error), {}])
                taken.append(port)
        owners = port_owners(set(taken)) if taken else {}
        for result in results:
            if result[3]:
                result[4] = owners.get(result[1], {})
        self.earlier = arrived_calls(self.listeners)  # of a run before, which the kernel keeps for half a minute
        self.controller.send(listening=results)

    def connect(self, number, targets, keys, seconds, total, last):
        """Connects to each of [host, address, port, bulk, source port]; not more at once than files may be open.

        `keys`: [host, key] of each, by which it proves itself. `last`: no order with more targets of this round
        follows, and the attempts begin.
        """
        self.member.peer_keys.update((host, bytes(bytearray.fromhex(key))) for host, key in keys)
        place = (self.loop, self.member)
        for peer, address, port, bulk, source in targets:
            attempt = ConnectionAttempt(*place, peer, address, port, seconds, bool(bulk), 0, self.on_attempt, source)
            self.waiting.append(attempt)
        if last:
            self.waiting.reverse()
            self.connecting, self.connect_end, self.answers = number, time.monotonic() + total, {}
            _, self.without_room = neighbour_table()

    def go_on(self):
        if time.monotonic() > self.connect_end:
            for attempt in self.waiting:
                self.finished.append([attempt.peer, attempt.address, attempt.port, "untried", "", 0, 0, 0, 0])
            self.waiting = []
        while self.waiting and self.in_flight < self.limit:
            self.in_flight += 1
            self.waiting.pop().start()
        done = not self.waiting and not self.in_flight
        if self.finished and (done or len(self.finished) >= REPORT_SIZE):
            self.ask_neighbours()
        while self.finished and (done or len(self.finished) >= REPORT_SIZE):
            self.controller.send(attempts=self.finished[:REPORT_SIZE], round=self.connecting)
            del self.finished[:REPORT_SIZE]
        if done:
            number, self.connecting = self.connecting, None
            self.controller.send(done=number)

    def ask_neighbours(self):
        """Whether the hosts that were called answer on the own network; what is reached without has called before."""
        called = [report for report in self.finished if report[3] in ("open", "dropped", "unreachable")]
        unasked = set(report[1] for report in called) - set(self.answers)
        if unasked:
            self.answers.update(dict.fromkeys(unasked))
            self.answers.update(ask_neighbours(unasked, QUESTION_SECONDS))
        for report in called:
            answer = self.answers[report[1]]
            if answer is not None and (report[3] != "open" or not answer):
                report[3] = "unreachable" if report[3] == "open" else report[3]
                report[4] = "neighbour" if answer else "no-neighbour"

    def on_attempt(self, attempt):
        stalled = attempt.outcome in ("sends-stall", "receives-stall")
        if attempt.outcome in ("dropped", "unreachable") and neighbour_table()[1] > self.without_room:
            attempt.outcome, attempt.detail = "untried", "ENOBUFS"
        if stalled and self.searches < MAX_SEARCHES:
            self.searches += 1
            PacketSizeSearch(attempt, self.keep).start()
        else:
            self.keep(attempt, 0)

    def keep(self, attempt, largest):
        self.in_flight -= 1
        report = [attempt.peer, attempt.address, attempt.port, attempt.outcome, attempt.detail, round(attempt.took, 5)]
        self.finished.append(report + [attempt.again, largest, attempt.source_port])

    def send_arrived(self):
        """The callers whose SYN has come here, and to whom our answer does not get through."""
        self.controller.send(arrived=[call for call in arrived_calls(self.listeners) if call not in self.earlier])

    def send_given_up(self):
        """The calls that this host has closed before they could prove themselves."""
        self.controller.send(given_up=self.calls.given_up)

    def send_pace(self):
        """How far this host let the prober run since it was last asked."""
        self.controller.send(pace=self.pace.report())
        self.pace.restart()

    def look_for_job(self):
        """Who computes on this host's accelerators."""
        self.controller.send(job=accelerator_users())

    def measure(self, number, target, echoes, seconds, limit, streams):
        """Latency, then one stream, then several, to [address, port, host]. `limit`: bytes of each measurement."""
        result = {"host": target[2], "problem": ""}
        try:
            link = call_for(self.member, target, ECHO, echoes)
            try:
                result["latencies"] = [round(took, 7) for took in measure_latency(link, echoes, seconds)]
            finally:
                close_now(link)
            for name, count in (("single", 1), ("multi", streams)):
                links = [call_for(self.member, target, SINK, limit + 1) for _ in range(count)]
                result[name] = measure_streams(links, seconds, limit)
        except OSError as error:
            result["problem"] = error.strerror or str(error)
        self.controller.send(speed=result, round=number)

    # -- programs of the accelerators' own network

    def list_programs(self):
        self.controller.send(programs=installed_programs())

    def serve_program(self, number, argv, seconds):
        """Starts the part of a program that waits for the other host's."""
        self.end_served()
        try:
            self.served = start_program(argv, seconds)
        except OSError:
            pass
        self.controller.send(serving=number)

    def call_programs(self, number, calls, seconds, again):
        self.controller.send(called=run_programs(calls, seconds, again), round=number)

    def end_served(self):
        if self.served is not None:
            end_program(self.served)
            self.served = None

    def end(self):
        self.end_served()
        for listener in list(self.listeners.values()):
            listener.close()
        self.say_bye()

    def quit(self, *_):
        """The kernel closes all sockets."""
        self.end_served()
        os._exit(self.status)


def network_identity():
    """Equal for two probers that are in one network namespace of one machine."""
    namespace = link_at("/proc/self/ns/net")
    return read_text("/proc/sys/kernel/random/boot_id", 64).strip() + namespace if namespace else ""


def main(request, _program=b""):
    """Runs the prober until an order ends it, or no more orders arrive."""
    Prober(json.loads(request.decode("ascii"))).serve()


def arrived_calls(listeners):
    """[address, its port, port here] of each caller whose SYN came to one of their ports, and no packet after it."""
    calls, ports = set(), set(port for _, port in listeners)
    for fields in socket_rows(os.getpid(), "tcp"):
        if fields[3] == SYN_RECEIVED and proc_address(fields[1])[1] in ports:
            calls.add((*proc_address(fields[2])[:2], proc_address(fields[1])[1]))
    return [list(call) for call in sorted(calls)[:4096]]


def port_owners(ports):
    """By port: {"user", "pid", "command", "seconds"} of a process that holds it; without what cannot be seen."""
    held = {}
    for fields in socket_rows(os.getpid(), "tcp"):
        port = proc_address(fields[1])[1]
        if port in ports and (port not in held or fields[3] == "0A"):
            held[port] = fields[9], int(fields[7])
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if held else []
    by_inode = socket_owners(pids)
    return dict((port, _describe(by_inode.get(inode), uid)) for port, (inode, uid) in held.items())


def _describe(pid, uid):
    try:
        owner = {"user": pwd.getpwuid(uid).pw_name}
    except KeyError:
        owner = {"user": "uid %d" % uid}
    if pid:
        arguments = read_text("/proc/%d/cmdline" % pid, 400).split("\0")
        fields = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
        owner.update(pid=pid, command=" ".join(arguments).strip()[:200])
        uptime = read_text("/proc/uptime").split()
        if len(fields) > 19 and uptime:
            owner["seconds"] = int(float(uptime[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    return owner


def accelerator_users():
    """[pid, command] of the first processes that have an NPU or a GPU open, as far as they can be seen."""
    users = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or len(users) >= 4:
            continue
        if any(re.match(r"/dev/(davinci|nvidia)\d+$", link) for link in open_files(int(name), 1 << 20)):
            command = read_text("/proc/%s/comm" % name, 64).strip()
            if not command.startswith(DAEMONS):
                users.append([int(name), command])
    return users

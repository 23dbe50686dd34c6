"""The prober's loop: listens, connects and measures as the controller orders, and reports what came of it."""

import json
import os
import resource
import select
import signal
import sys
import time

from doctor.net.prober.attempt import ConnectionAttempt
from doctor.net.prober.device_tools import end_program, installed_programs, run_programs, start_program
from doctor.net.prober.handshake import ECHO, SINK
from doctor.net.prober.listener import Listener, UnprovenCalls, open_listener
from doctor.net.prober.pace import Pace
from doctor.net.prober.packet_size import PacketSizeSearch
from doctor.net.prober.port_owner import arrived_calls, port_owners
from doctor.net.prober.running_job import accelerator_users
from doctor.net.prober.socket_loop import SocketLoop, close_now
from doctor.net.prober.transfer import call_for, measure_latency, measure_streams
from doctor.remote.runtime.signals import on_termination
from doctor.smoke.programs.agent.controller import ControllerLine
from doctor.smoke.programs.agent.network import interface_addresses
from doctor.smoke.programs.agent.procfs import read_text

PATIENCE = 20.0  # seconds without an order of the controller, which sends one every few seconds
MAX_SEARCHES = 4  # hosts to which the largest packet is searched for
REPORT_SIZE = 512  # attempts of one message

ORDERS = {
    "listen": "listen", "connect": "connect", "arrived": "send_arrived", "job": "look_for_job",
    "programs": "list_programs", "serve": "serve_program", "call": "call_programs", "served": "end_served",
    "speed": "measure", "given-up": "send_given_up", "pace": "send_pace", "stay": "stay", "end": "end",
}  # fmt: skip
"""The prober's method by the order's name on the wire; the other fields of an order are its parameters."""


class Prober:
    """Tries the network of one host for the controller; `ORDERS` are what it can be ordered to do."""

    def __init__(self, request):
        self.poll = select.poll()
        self.controller = ControllerLine(request["marker"].encode("ascii"), self.poll, self.quit)
        self.loop = SocketLoop(self.poll)
        self.host, self.token = request["host"], bytes(bytearray.fromhex(request["token"]))
        self.deadline = time.monotonic() + request["seconds"]
        self.listeners = {}
        self.waiting, self.in_flight, self.finished = [], 0, []
        self.searches = 0
        self.connecting, self.connect_end = None, 0.0
        descriptors = raise_file_limit()
        self.limit, self.calls = max(16, min(512, descriptors // 4)), UnprovenCalls(descriptors)
        self.pace = Pace()
        self.served = None

    # -- the loop

    def run(self):
        while True:
            for fd, mask in self.poll.poll(100):
                if fd == 0:
                    for line in self.controller.read():
                        self.carry_out(line)
                elif fd == 1:
                    self.controller.push()
                else:
                    self.loop.handle(fd, mask)
            self.pace.turn()
            self.loop.expire()
            if time.monotonic() > min(self.deadline, self.controller.last_order + PATIENCE):
                self.quit()
            if self.connecting is not None:
                self.go_on()

    def carry_out(self, line):
        try:
            order = json.loads(line.decode("ascii"))
            getattr(self, ORDERS[order.pop("do")])(**order)
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            self.controller.send(fault="%r failed: %s: %s" % (line[:40], type(error).__name__, error))

    # -- what the controller orders

    def hello(self):
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
                listener = Listener(self.loop, open_listener(address, port), self.token, self.host, self.calls)
                self.listeners[address, listener.port] = listener
                results.append([address, port, listener.port, "", {}])
            except OSError as error:
                results.append([address, port, 0, error.strerror or str(error), {}])
                taken.append(port)
        owners = port_owners(set(taken)) if taken else {}
        for result in results:
            if result[3]:
                result[4] = owners.get(result[1], {})
        self.controller.send(listening=results)

    def connect(self, number, targets, seconds, total, last):
        """Connects to each of [host, address, port, bulk, source port]; not more at once than files may be open.

        `last`: no order with more targets of this round follows, and the attempts begin.
        """
        self.waiting += [
            ConnectionAttempt(
                self.loop, self.token, self.host, peer, address, port, seconds, bool(bulk), 0, self.on_attempt, source
            )
            for peer, address, port, bulk, source in targets
        ]
        if last:
            self.waiting.reverse()
            self.connecting, self.connect_end = number, time.monotonic() + total

    def go_on(self):
        if time.monotonic() > self.connect_end:
            for attempt in self.waiting:
                self.finished.append([attempt.peer, attempt.address, attempt.port, "untried", "", 0, 0, 0, 0])
            self.waiting = []
        while self.waiting and self.in_flight < self.limit:
            self.in_flight += 1
            self.waiting.pop().start()
        done = not self.waiting and not self.in_flight
        while self.finished and (done or len(self.finished) >= REPORT_SIZE):
            self.controller.send(attempts=self.finished[:REPORT_SIZE], round=self.connecting)
            del self.finished[:REPORT_SIZE]
        if done:
            number, self.connecting = self.connecting, None
            self.controller.send(done=number)

    def on_attempt(self, attempt):
        stalled = attempt.outcome in ("sends-stall", "receives-stall")
        if stalled and self.searches < MAX_SEARCHES:
            self.searches += 1
            PacketSizeSearch(attempt, self.keep).start()
        else:
            self.keep(attempt, 0)

    def keep(self, attempt, largest):
        self.in_flight -= 1
        self.finished.append(
            [
                attempt.peer,
                attempt.address,
                attempt.port,
                attempt.outcome,
                attempt.detail,
                round(attempt.took, 5),
                attempt.again,
                largest,
                attempt.source_port,
            ]
        )

    def send_arrived(self):
        """The callers whose SYN has come here, and to whom our answer does not get through."""
        self.controller.send(arrived=arrived_calls(set(port for _, port in self.listeners)))

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
            link = call_for(self.token, self.host, target, ECHO, echoes)
            try:
                result["latencies"] = [round(took, 7) for took in measure_latency(link, echoes, seconds)]
            finally:
                close_now(link)
            for name, count in (("single", 1), ("multi", streams)):
                links = [call_for(self.token, self.host, target, SINK, limit + 1) for _ in range(count)]
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

    def stay(self):
        """The controller is still there."""
        pass

    def end(self):
        self.end_served()
        for listener in list(self.listeners.values()):
            listener.close()
        self.controller.send(bye={"cpu": round(time.process_time(), 3)})
        os.set_blocking(1, True)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(2)  # nobody reads: no reason to stay
        self.controller.push()
        os._exit(0)

    def quit(self, *_):
        """The kernel closes all sockets."""
        self.end_served()
        os._exit(3)


def network_identity():
    """Equal for two probers that are in one network namespace of one machine."""
    try:
        namespace = os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
    return read_text("/proc/sys/kernel/random/boot_id", 64).strip() + namespace


def raise_file_limit():
    """Files that may be open, as many as the limit allows and 8192 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
            soft = enough
        except (OSError, ValueError):
            pass
    return 8192 if soft == resource.RLIM_INFINITY else soft


def main(request, _program=b""):
    """Runs the prober until it is ordered to end or nobody orders it any more."""
    request = json.loads(request.decode("ascii"))
    os.set_blocking(1, False)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.write(1, b"\n")  # behind whatever a login shell left on its last line
    prober = Prober(request)
    on_termination(prober.quit)
    prober.hello()
    try:
        prober.run()
    except Exception as error:
        prober.controller.send(fault="the prober failed: %s: %s" % (type(error).__name__, error))
        prober.quit()

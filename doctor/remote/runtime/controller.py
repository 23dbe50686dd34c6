"""The line to the controller: messages out, orders in; and what all programs do that are ordered by lines."""

import fcntl
import json
import os
import select
import signal
import time

from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.host_texts import filled, with_texts
from doctor.remote.runtime.readable_json import strict_json
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import LineBuffer

POLLRDHUP = 0x2000  # <asm-generic/poll.h>
LEFT_STATUS = 8  # exit status of a program that no order came to: the controller, or the way from it, stood still
BACKLOG = 4 << 20  # bytes that may wait for the controller before ranks are not reported


class ControllerLine:
    """Our stdin and stdout. Messages wait in `queue` until they can be written.

    `on_lost` is called when the controller has gone, or takes in nothing for too long.
    """

    def __init__(self, marker, poll, on_lost):
        self.marker, self.poll, self.on_lost = marker, poll, on_lost
        self.queue = bytearray()
        self.lines = LineBuffer()
        self.last_order = time.monotonic()
        self.writing = False
        poll.register(0, select.POLLIN)

    def send(self, **message):
        self.send_json(json.dumps(with_texts(message), separators=(",", ":")).encode("ascii"))

    def send_json(self, data):
        self.queue += marked_line(self.marker, strict_json(data))
        if len(self.queue) > 16 * BACKLOG:
            self.on_lost()
        self.push()

    def push(self):
        try:
            while self.queue:
                del self.queue[: os.write(1, bytes(self.queue[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self.on_lost()
        if bool(self.queue) != self.writing:
            self.writing = bool(self.queue)
            if self.writing:
                self.poll.register(1, select.POLLOUT)
            else:
                self.poll.unregister(1)

    def read(self):
        """The orders that have come, each as a line."""
        piece = os.read(0, 65536)
        if not piece:
            self.on_lost()
        self.last_order = time.monotonic()
        return self.lines.split(piece)


class OrderedProgram:
    """Carries out the controller's orders; `orders` is the method by an order's name, the other fields its parameters.

    `begin` is called first, then `run`, which calls `handle_events` again and again. `quit` ends it where the
    controller has gone, once: `ending`. `handle_file` takes in what is polled beside the controller.
    """

    orders = {}
    failure = ""  # the message of an error that nothing expects, by its type and text

    def __init__(self, request):
        self.poll = select.poll()
        self.controller = ControllerLine(request["marker"].encode("ascii"), self.poll, self.quit)
        self.ending = False
        self.status = 3  # exit status of `quit`
        self.deadline = time.monotonic() + request.get("seconds", 3600)

    def begin(self):
        raise NotImplementedError

    def run(self):
        raise NotImplementedError

    def quit(self, *_):
        raise NotImplementedError

    def handle_file(self, fd, mask):
        raise NotImplementedError

    def watch_controller(self):
        """The kernel says when the controller has gone, also while an order is carried out and none is read."""
        signal.signal(signal.SIGIO, self.on_input)
        try:
            fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        except OSError:  # a sandbox that has no such signals: then it ends with what it carries out
            pass

    def on_input(self, *_):
        line = select.poll()
        line.register(0, POLLRDHUP)
        if line.poll(0):
            self.quit()

    def serve(self):
        """Runs it until an order ends it, or no more orders arrive."""
        os.set_blocking(1, False)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        on_termination(self.quit)
        os.write(1, b"\n")  # ends a line that a login shell left open
        self.begin()
        try:
            self.run()
        except Exception as error:
            self.ending = False
            self.controller.send(fault=filled(self.failure, type(error).__name__, error))
            self.quit()

    def handle_events(self, milliseconds):
        """Waits at most so long for something to happen, and takes it in."""
        for fd, mask in self.poll.poll(milliseconds):
            if fd == 0:
                for line in self.controller.read():
                    self.carry_out(line)
            elif fd == 1:
                self.controller.push()
            else:
                self.handle_file(fd, mask)

    def carry_out(self, line):
        try:
            order = json.loads(line.decode("ascii"))
            getattr(self, self.orders[order.pop("do")])(**order)
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            self.controller.send(fault=filled("{0} failed: {1}: {2}", repr(line[:40]), type(error).__name__, error))
        self.controller.last_order = time.monotonic()  # those that came in the meantime are read next

    def quit_if_left(self, patience):
        """Ends it where its time is over, or no order has come for so many seconds."""
        without_orders = time.monotonic() > self.controller.last_order + patience
        if without_orders or time.monotonic() > self.deadline:
            self.status = LEFT_STATUS if without_orders else self.status
            self.quit()

    def stay(self):
        """The controller is still there."""
        pass

    def say_bye(self, **fields):
        self.controller.send(bye=dict(fields, cpu=round(time.process_time(), 3)))
        os.set_blocking(1, True)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(2)  # ends the program where the controller does not read
        self.controller.push()
        os._exit(0)

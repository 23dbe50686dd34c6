"""The line to the controller: messages out, orders in."""

import json
import os
import select
import time

from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.lines import LineBuffer
from doctor.remote.runtime.strict_json import strict_json

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
        self.send_json(json.dumps(message, separators=(",", ":")).encode("ascii"))

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

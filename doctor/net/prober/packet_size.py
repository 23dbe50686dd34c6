"""The largest packet that passes between two hosts, where small ones do and full-size ones do not."""

from doctor.net.prober.attempt import ConnectionAttempt

STEP = 8  # bytes to which the size is found
SMALLEST = 552  # bytes; every link carries a packet of this size


class PacketSizeSearch:
    """Halves the range between a size that passes and one that does not, one attempt at a time.

    `on_end` is given the largest size in bytes, headers included, that passed; 0 where none did.
    """

    def __init__(self, failed, on_end):
        self.failed, self.on_end = failed, on_end
        self.headers = 60 if ":" in failed.address else 40
        self.passed, self.too_large = 0, max(failed.mtu or 1500, SMALLEST + STEP)
        self.size = SMALLEST

    def start(self):
        failed = self.failed
        attempt = ConnectionAttempt(
            failed.loop, failed.token, failed.me, failed.peer, failed.address, failed.port, 1.5,
            True, self.size - self.headers, self.on_attempt,
        )  # fmt: skip
        attempt.start()

    def on_attempt(self, attempt):
        if attempt.outcome == "open":
            self.passed = self.size
        else:
            self.too_large = self.size
        if not self.passed or self.too_large - self.passed <= STEP:
            self.on_end(self.failed, self.passed)
            return
        self.size = (self.passed + self.too_large) // 2
        self.start()

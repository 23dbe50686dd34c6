"""Whether this host lets the prober run: what was late here says nothing of the network."""

import os
import time

from doctor.smoke.programs.agent.procfs import cpu_ticks, cpu_times


class Pace:
    """Measures since `restart`. `turn` is called once in every turn of the prober's loop."""

    def __init__(self):
        self.last = time.monotonic()
        self.restart()

    def restart(self):
        self.began, self.longest = self.last, 0.0
        self.waited, self.ticks = waited_for_cpu(), cpu_ticks()

    def turn(self):
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now

    def report(self):
        """Seconds in all, of the longest turn, of waiting for a CPU; the share that the hypervisor took."""
        stolen, _, every = cpu_ticks()
        stolen, every = stolen - self.ticks[0], every - self.ticks[1]
        return {
            "seconds": round(self.last - self.began, 3),
            "longest": round(self.longest, 3),
            "waited": round(max(0.0, waited_for_cpu() - self.waited), 3),
            "stolen": round(stolen / every, 3) if 0 < stolen <= every else 0.0,
        }


def waited_for_cpu():
    """Seconds that this process could have run and did not; 0 where the kernel does not count them."""
    times = cpu_times(os.getpid(), False)
    return times[1] if times else 0.0

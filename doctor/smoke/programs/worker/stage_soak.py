"""Stage ``soak``: the same collectives again and again, with fresh data, until the time that was asked for is over,
in intervals with the temperatures and error counters of their time.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from glob import glob

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.cpu_quota import small_file
from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.group_search import divisions
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.second_round import SECOND_ROUND_SECONDS, repeat_calls, run_second_round
from doctor.smoke.programs.worker.stage_pace import compute_work, pace_factors, seconds_without_run_queue
from doctor.smoke.programs.worker.stage_pairs import SLOW_FACTOR, has_links, measure_pairs
from doctor.smoke.programs.worker.work_timing import CpuTour

REPEATS = 20
"""Between two decisions whether to go on."""
SECOND_ROUND_SHARE = 0.5
"""Of the stage's time, for the second round beyond its usual time: what is rare takes long to be seen again."""
MINUTE = 60.0
"""Seconds of an interval, where the soak is long enough."""
FEWEST_INTERVALS, MOST_INTERVALS = 8, 240
MOST_EVENTS = 100_000
"""Of all ranks together."""
MOST_MEASUREMENTS, MEASURING_SHARE = 8, 0.1
"""Of the pairs, where a collective takes longer than before: how many, and their share of the time."""
MUCH_SLOWER, SLOW_SECONDS, EXCHANGE_SECONDS = 5.0, 1.0, 0.1
"""Times as long as usual that repeats must take for so long, one after the other, for a measurement at once: at the end
of the interval the link may be as quick as before. And what one exchange in each round may take."""
KEPT, PIECES = 30, 4
"""Times of an interval that a rank reports; pieces of work in a turn."""

LINK_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "tx_carrier_errors")
"""Of a network card, in /sys/class/net/NIC/statistics: Linux, Documentation/ABI/testing/sysfs-class-net-statistics."""
PORT_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "packet_seq_err",
    "out_of_sequence",
    "local_ack_timeout_err",
)
"""Of an RDMA port; in their folder and that of the adapter's own: Documentation/ABI/stable/sysfs-class-infiniband."""
TOOLS = {
    "cuda": ["nvidia-smi", "--query-gpu=temperature.gpu", "--format=csv,noheader,nounits"],
    "npu": ["npu-smi", "info"],
}
"""By device type: what prints the temperature of each device."""
TOOL_SECONDS = 20.0
"""A tool that takes longer is ended."""
MOST_PRINTED = 65536
NPU_ROW = re.compile(r"^\|\s*(\d{1,3})\s+\S[^|]*\|\s*[A-Za-z]+\s*\|\s*[\d.]{1,8}\s+(\d{1,3})\s", re.M)
"""``| 0     910B3  | OK   | 95.7   36   0 / 0 |``: number of the card, and its temperature behind its power."""


def sensor_temperatures() -> dict[str, float]:
    """By chip of /sys/class/hwmon, such as ``coretemp``: degrees Celsius, of its sensors the hottest."""
    hottest: dict[str, float] = {}
    for path in sorted(glob("/sys/class/hwmon/hwmon*/temp*_input"))[:512]:
        text, chip = small_file(path).strip(), small_file(os.path.dirname(path) + "/name").strip()[:30]
        if re.match(r"-?\d{1,7}\Z", text) and chip:
            hottest[chip] = max(hottest.get(chip, -273.0), int(text) / 1000)
    return hottest


def link_errors() -> dict[str, int]:
    """Counts since the host began, by link and counter: ``eth0 rx_errors``, ``mlx5_0/1 symbol_error``."""
    patterns: list[tuple[str, str, tuple[str, ...]]] = [("/sys/class/net/*/device", "", LINK_ERRORS)]
    patterns += [("/sys/class/infiniband/*/ports/*", folder, PORT_ERRORS) for folder in ("/counters/", "/hw_counters/")]
    counts: dict[str, int] = {}
    for pattern, folder, names in patterns:
        for place in sorted(glob(pattern))[:128]:
            parts = place.split("/")
            link = parts[4] + ("/" + parts[6] if len(parts) > 6 else "")
            top = os.path.dirname(place) + "/statistics/" if parts[-1] == "device" else place + folder
            for name in names:
                text = small_file(top + name).strip()
                if re.match(r"\d{1,19}\Z", text):
                    counts[f"{link} {name}"] = int(text)
    return counts


def printed_temperatures(device: str, text: str) -> dict[str, float]:
    r"""Of a vendor's tool, by device.

    >>> printed_temperatures("cuda", "41\n[N/A]\n")
    {'GPU 0': 41.0}
    """
    if device == "npu":
        return {f"NPU {number}": float(heat) for number, heat in NPU_ROW.findall(text)[:64]}
    lines = enumerate(line.strip() for line in text.splitlines()[:64])
    return {f"GPU {number}": float(line) for number, line in lines if re.match(r"\d{1,3}\Z", line)}


class Sensors:
    """What changes on this host while ranks work. A tool is started, and its answer taken when it has come."""

    def __init__(self, device: str) -> None:
        self.device, self.before = device, link_errors()
        self.tool: subprocess.Popen[str] | None = None
        self.tool_began, self.printed = 0.0, dict[str, float]()

    def ask(self) -> None:
        """Starts the tool for this host's devices; it takes seconds, for which nothing here may wait."""
        self.collect()
        if self.device not in TOOLS or self.tool:
            return
        try:
            self.tool = subprocess.Popen(
                TOOLS[self.device],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except OSError:
            return
        self.tool_began = time.monotonic()

    def collect(self) -> None:
        """Takes the tool's answer, if it has come."""
        if not self.tool or not self.tool.stdout:
            return
        if self.tool.poll() is not None:
            self.printed = printed_temperatures(self.device, self.tool.stdout.read(MOST_PRINTED))
        elif time.monotonic() - self.tool_began > TOOL_SECONDS:
            self.tool.kill()
            self.tool.wait()
        else:
            return
        self.tool.stdout.close()
        self.tool = None

    def read(self) -> tuple[dict[str, float], dict[str, int]]:
        """Degrees Celsius by sensor, and errors of links since the last time; those that stand still are left out."""
        self.collect()
        now, before = link_errors(), self.before
        self.before = now
        grown = {name: count - before[name] for name, count in now.items() if count > before.get(name, count)}
        return {**sensor_temperatures(), **self.printed}, dict(list(grown.items())[:16])

    def end(self) -> None:
        """Ends a tool that still runs."""
        if self.tool:
            self.tool.kill()
            self.tool.wait()
            self.tool = None


def interval_seconds(soak: float, world: int) -> float:
    """A minute; less where there would be few of them, more where all ranks would report too many."""
    most = max(FEWEST_INTERVALS, min(MOST_INTERVALS, MOST_EVENTS // max(1, world)))
    return max(min(MINUTE, soak / FEWEST_INTERVALS), soak / most)


def some_of(numbers: list[float]) -> list[float]:
    """At most `KEPT` of them, evenly."""
    step = max(1.0, len(numbers) / KEPT)
    return [numbers[int(step * place)] for place in range(min(len(numbers), KEPT))]


class SoakIntervals:
    """Times work and a collective in each turn, and emits what an interval had when it is over."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx, self.length = ctx, interval_seconds(ctx.plan["soak"], ctx.world_size)
        self.number, self.turns, self.began = 0, 0, time.monotonic()
        self.compute: list[float] = []
        self.reduce: list[float] = []
        self.quickest = math.inf
        """Tenth of an interval's times of all_reduce."""
        self.usual: dict[int, float] = {}
        """Seconds of a repeat lately, by the number of its group."""
        self.slow_seconds, self.measurements, self.measuring = 0.0, 0, 0.0
        """Of the latest repeats; how often the pairs were measured, and the seconds of that."""
        self.results, self.wrong = ctx.compared_results, ctx.wrong_results
        self.factors = pace_factors(ctx)
        self.nbytes = min(1 << 20, ctx.plan["max_bytes"])
        self.message = torch.zeros(max(1, self.nbytes // 4), device=ctx.device)
        is_first = ctx.hosts.index(ctx.hosts[ctx.rank]) == ctx.rank
        self.sensors = Sensors(ctx.device.type) if is_first else None
        if self.sensors:
            self.sensors.ask()
        compute_work(ctx, self.factors)

    def turn(self, test: CollectiveTest, remaining: float) -> None:
        """``test``: of the world; ``remaining``: seconds of the stage, the same on every rank."""
        number = int((self.ctx.plan["soak"] - remaining) / self.length)
        if number > self.number:
            self.finish_interval(self.ctx.plan["soak"] - remaining)
            self.number = number
        tour = CpuTour(self.ctx)
        try:
            tour.move(self.turns)
            self.ctx.recorder.mark("compute")
            work = [seconds_without_run_queue(lambda: compute_work(self.ctx, self.factors)) for _ in range(PIECES)]
        finally:
            tour.end()
        self.compute += work[1:]  # the first one of a CPU warms its caches
        self.turns += 1
        self.ctx.comm.all_reduce(self.message, test.group)  # who comes late is waited for here, and not timed
        started = time.perf_counter()
        self.ctx.comm.all_reduce(self.message, test.group)
        self.reduce.append(round(time.perf_counter() - started, 7))

    def repeated(self, group: int, seconds: float, soaked: float) -> None:
        """After the calls of a group have been repeated once."""
        usual = self.usual.setdefault(group, seconds)
        is_slow = seconds > MUCH_SLOWER * usual
        self.usual[group] = usual if is_slow else 0.9 * usual + 0.1 * seconds
        self.slow_seconds = self.slow_seconds + seconds if is_slow else 0.0
        # To measure takes no more time than was lost.
        self.measure_if(self.slow_seconds > max(SLOW_SECONDS, self.measuring / max(1, self.measurements)), soaked)

    def finish_interval(self, soaked: float) -> None:
        """Emits it after ``soaked`` seconds; if rank 0 waited longer than before, the pairs show which host is slow."""
        quick = sorted(self.reduce)[(len(self.reduce) - 1) // 10]
        self.quickest = min(self.quickest, quick)
        self.emit()
        has_time = self.measuring <= MEASURING_SHARE * soaked
        self.measure_if(has_time and quick > SLOW_FACTOR * self.quickest, soaked)

    def measure_if(self, is_slower: bool, soaked: float) -> None:
        """Measures the pairs where rank 0 is slower. All ranks call it."""
        ctx, started = self.ctx, time.monotonic()
        can_measure = has_links(ctx) and self.measurements < MOST_MEASUREMENTS
        if not can_measure or not (agreed := ctx.comm.agree(soaked if is_slower else 0.0)):
            return
        self.measurements, ctx.soaked_seconds = self.measurements + 1, round(agreed, 3)
        results, wrong = ctx.compared_results - self.results, ctx.wrong_results - self.wrong
        measure_pairs(ctx, EXCHANGE_SECONDS)
        self.results, self.wrong = ctx.compared_results - results, ctx.wrong_results - wrong
        pause, self.slow_seconds = time.monotonic() - started, 0.0
        self.began, self.measuring = self.began + pause, self.measuring + pause

    def emit(self) -> None:
        """The interval that is over; the next one begins."""
        ctx = self.ctx
        temperatures, errors = self.sensors.read() if self.sensors else ({}, {})
        ctx.emit(
            "interval",
            number=self.number,
            start=round(self.number * self.length, 3),
            seconds=round(time.monotonic() - self.began, 3),
            calls=ctx.compared_results - self.results,
            wrong=ctx.wrong_results - self.wrong,
            compute=some_of(self.compute),
            reduce=some_of(self.reduce),
            bytes=self.message.numel() * 4,
            temperatures=temperatures,
            errors=errors,
        )
        self.compute, self.reduce, self.began = [], [], time.monotonic()
        self.results, self.wrong = ctx.compared_results, ctx.wrong_results
        if self.sensors:
            self.sensors.ask()

    def end(self) -> None:
        """The last interval."""
        if self.reduce:
            self.finish_interval(self.ctx.plan["soak"])
        if self.sensors:
            self.sensors.end()


def stage_soak(ctx: RankContext) -> None:
    """Collectives of the world and of its divisions, by turns, each on values of its own and compared.

    Rank 0's clock ends them. Emits what was wrong as it is found, up to a limit, each interval when it is over, and at
    the end the counts of all.
    """
    started, number, turn = time.monotonic(), 0, 0
    tests = [CollectiveTest(ctx, ctx.comm.world)]
    for parts in divisions(ctx.hosts):
        if not all(map(ctx.comm.can_form, parts)):
            continue
        groups = [
            ctx.comm.group(filled("part {0} of {1}", ranks[0], len(ranks)), ranks, together=True) for ranks in parts
        ]
        tests += [CollectiveTest(ctx, group) for group in groups if ctx.rank in group.ranks]
    intervals = SoakIntervals(ctx)
    while (remaining := ctx.comm.agree(ctx.plan["soak"] - (time.monotonic() - started))) > 0:
        intervals.turn(tests[0], remaining)
        # Every second turn is the world's.
        test = tests[0] if turn % 2 == 0 or len(tests) == 1 else tests[1 + turn // 2 % (len(tests) - 1)]
        turn += 1
        for _ in range(REPEATS):
            number, began = number + 1, time.monotonic()
            repeat_calls(test, number, [])
            now = time.monotonic()
            intervals.repeated(test.group.number, now - began, now - started)
    intervals.end()
    counts: dict[str, int] = {}
    wrong: dict[str, int] = {}
    sources: dict[int, int] = {}
    for test in tests:
        for label, (_, count) in test.checked.items():
            counts[label] = counts.get(label, 0) + count
        for op, count in test.wrong_counts.items():
            wrong[op] = wrong.get(op, 0) + count
        for rank, count in test.wrong_sources.items():
            sources[rank] = sources.get(rank, 0) + count
    ctx.emit("soaked", counts=counts, wrong=wrong, sources=sources, seconds=round(time.monotonic() - started, 3))
    run_second_round(ctx, SECOND_ROUND_SECONDS + SECOND_ROUND_SHARE * ctx.plan["soak"])


STAGE_FUNCTIONS["soak"] = stage_soak

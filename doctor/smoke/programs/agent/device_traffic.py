"""What the links between devices have carried, by the counters of the vendors' tools: NVLink, and the ports of NPUs."""

import os
import re
import signal
import time

from doctor.smoke.programs.agent.procfs import is_descendant

TRAFFIC_TOOLS = {
    "nccl": ["nvidia-smi", "nvlink", "-gt", "d"],
    "hccl": ["sh", "-c", 'for npu; do hccn_tool -i "$npu" -stat -g; done', "sh"],
}
"""By backend; that of HCCL gets the numbers of the NPUs as arguments."""
TRAFFIC_COUNTERS = {
    "nccl": re.compile(r"^[ \t]{0,16}Link \d{1,3}: (?:Data|Raw) [TR]x: (\d{1,19}) KiB[ \t\r]{0,4}$", re.M),
    "hccl": re.compile(r"^(?:mac|roce)_[tr]x_(?:total_oct|all_pkt)_num:(\d{1,19})[ \t\r]{0,4}$", re.M),
}
"""``Link 0: Data Tx: 19241022 KiB``, as drivers from 2021 on print it (V100, H800). ``roce_tx_all_pkt_num:0``: by its
growth MindCluster's device plugin tells a hung task; ``mac_tx_total_oct_num`` is of the same structure of the driver,
dcmi_network_pkt_stats_info."""
TOOL_SECONDS = 10.0  # a tool that takes longer is ended
MOST_PRINTED = 1 << 18  # bytes
MOST_REFUSED = 3  # a tool that is not there, or may not tell, is not asked again and again


class DeviceTraffic:
    """The sum of the counters as of the tool's last answer: only whether it grows is of use.

    A tool takes up to a second, for which nothing here waits: it is started, and its answer taken when it has come.
    Another job's traffic on the same links shows as well.
    """

    def __init__(self, backend, npus=()):
        self.argv = TRAFFIC_TOOLS[backend] + ([str(npu) for npu in npus] if backend == "hccl" else [])
        self.counters = TRAFFIC_COUNTERS[backend]
        self.total = 0  # of the last answer; 0 until there is one
        self.pid, self.pipe, self.began, self.printed = 0, -1, 0.0, b""
        self.refused = 0  # answers without a counter, one after the other

    def carried(self):
        """The sum so far, without waiting; starts the tool for the next time."""
        if self.pipe >= 0:
            self.collect()
        elif self.refused < MOST_REFUSED:
            self.start()
        return self.total

    def start(self):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for number, file in enumerate((nothing, writer, nothing)):
                    os.dup2(file, number)
                os.execvp(self.argv[0], self.argv)
            finally:
                os._exit(127)
        os.close(writer)
        os.set_blocking(reader, False)
        self.pid, self.pipe, self.began, self.printed = pid, reader, time.monotonic(), b""

    def collect(self):
        """Takes what was printed; the end of the pipe is the end of the tool, which the agent's loop reaps."""
        piece = b"-"
        while piece and len(self.printed) <= MOST_PRINTED:
            try:
                piece = os.read(self.pipe, 65536)
            except BlockingIOError:
                if time.monotonic() - self.began > TOOL_SECONDS:
                    self.end()
                return
            self.printed += piece
        counts = self.counters.findall(self.printed.decode("ascii", "replace"))
        self.refused = 0 if counts else self.refused + 1
        self.total = sum(map(int, counts)) if counts else self.total
        self.end()

    def end(self):
        os.close(self.pipe)
        if is_descendant(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        self.pid, self.pipe = 0, -1

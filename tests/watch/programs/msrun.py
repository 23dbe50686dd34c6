#!/usr/bin/env python3
"""MindSpore's msrun in what a rehearsal sees of it; emulated, since MindSpore is no package of these tests.

Source: MindSpore, ``mindspore/parallel/cluster/process_entity/_api.py`` and ``run.py``: on the master's host a
scheduler is started first, with the job's own program and MS_ROLE=MS_SCHED; then the workers, with MS_ROLE=MS_WORKER
and MS_NODE_ID where the line tells it; each writes a file below ``--log_dir``. Without ``--join`` msrun ends at once.
"""

import argparse
import os
import subprocess
import sys

parser = argparse.ArgumentParser()
for name, kind, default in (
    ("worker_num", int, 8),
    ("local_worker_num", int, 8),
    ("master_addr", str, "127.0.0.1"),
    ("master_port", int, 8118),
    ("node_rank", int, -1),
    ("log_dir", str, ""),
    ("join", str, "False"),
    ("cluster_time_out", int, 600),
):
    parser.add_argument(f"--{name}", type=kind, default=default)
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
given = parser.parse_args()
command = [*([sys.executable] if given.script.endswith(".py") else []), given.script, *given.arguments]
os.makedirs(given.log_dir or ".", exist_ok=True)
common = {
    **os.environ,
    "MS_WORKER_NUM": str(given.worker_num),
    "MS_SCHED_HOST": given.master_addr,
    "MS_SCHED_PORT": str(given.master_port),
    "MS_CLUSTER_TIMEOUT": str(given.cluster_time_out),
}


def start(log, **more):
    with open(os.path.join(given.log_dir, log), "w") as file:
        return subprocess.Popen(command, env={**common, **more}, stdout=file, stderr=subprocess.STDOUT)


started = [start("scheduler.log", MS_ROLE="MS_SCHED")]
for index in range(given.local_worker_num):
    own = {"MS_ROLE": "MS_WORKER"}
    if given.local_worker_num == given.worker_num:
        own["MS_NODE_ID"] = str(index)
    elif given.node_rank >= 0:
        own["MS_NODE_ID"] = str(given.node_rank * given.local_worker_num + index)
    started.append(start(f"worker_{own.get('MS_NODE_ID', index)}.log", **own))
codes = [process.wait() for process in started] if given.join == "True" else []
if any(codes):
    sys.exit("Distributed job exited with exception.")

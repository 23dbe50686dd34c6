"""The speed of reading logs: ``python -m tests.diagnose.speed 500`` makes a log of that many MB and reads it.

The lines are those of plog, NCCL and Megatron, a third of each, with other numbers in each line and now and then an error;
compared with ``grep -c ERROR`` on the same file, both in CPU time.
"""

# ruff: noqa: E501
from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PLOG = """\
[INFO] HCCL({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [hccl_communicator.cc:{a}] [{pid}][HcclAllReduce]tag[AllReduce_10.0.0.{i}%eth0_30000_0_{a}], sendBuf[0x12c0{x:08x}], recvBuf[0x12c0{y:08x}], count[{a}], dataType[fp16]
[EVENT] RUNTIME({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [stream.cc:{i}] {pid} Setup: stream_id={i}, device_id={r}, sq_id={i}, cq_id={i}
[DEBUG] GE({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [graph_manager.cc:{a}]{pid} ExecuteGraph: graph {i} session {a} addr 0x{x:012x} node Default/network/layer_{i}/MatMul-op{a} inputs {r}
[WARNING] HCCP({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [ra_host.c:{a}]tid:{pid},ra_socket_batch_connect({a}) : [ssl]connect retry phy_id({r}) num({i})
[INFO] RUNTIME({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [engine.cc:{a}] {pid} SubmitTask: device_id={r}, stream_id={i}, task_id={a}, task_type=KERNEL_AICORE, kernel=te_matmul_{x:08x}_{i}_kernel0
""".splitlines()
_NCCL = """\
node{i}:{pid}:{a} [{r}] NCCL INFO Channel {i:02}/0 : {r}[{x:x}] -> {i}[{y:x}] via P2P/CUMEM/read
node{i}:{pid}:{a} [{r}] NCCL INFO Channel {i:02}/0 : {r}[{r}] -> {i}[{r}] [send] via NET/IB/{r}/GDRDMA
node{i}:{pid}:{a} [{r}] NCCL INFO Trees [0] {r}/-1/-1->{i}->-1 [1] {r}/-1/-1->{i}->{a}
node{i}:{pid}:{a} [{r}] NCCL INFO AllReduce: opCount {x:x} sendbuff 0x{x:012x} recvbuff 0x{y:012x} count {a} datatype 9 op 0 root 0 comm 0x{y:012x} [nranks={i}] stream 0x{x:012x}
""".splitlines()
_MEGATRON = """\
 [2026-11-20 12:{m:02}:{s:02}] iteration {a:8}/  500000 | consumed samples: {x:12} | elapsed time per iteration (ms): {g}.{r} | throughput per GPU (TFLOP/s/GPU): {i}.{r} | learning rate: {r}.{f:06}E-05 | global batch size:  1024 | lm loss: {r}.{f:06}E+00 | loss scale: 1.0 | grad norm: {r}.{f:03} | number of skipped iterations:   0 | number of nan iterations:   0 |
(min, max) time across ranks (ms):
    forward-backward ...............................: ({g}.{i}, {a}.{r})
    all-grads-sync .................................: ({i}.{r}, {g}.{r})
[default{r}]: > rank {i} loaded checkpoint shard iter_{a:07}/mp_rank_{r:02}_{i:03}/model_optim_rng.pt in {g} ms
""".splitlines()
_RARE = """\
node{i}:{pid}:{a} [{r}] NCCL INFO comm 0x{x:012x} rank {r} nranks {i} cudaDev {r} nvmlDev {r} busId {y:x} - Init COMPLETE
[ERROR] HCCP({pid},python):2026-11-20-12:{m:02}:{s:02}.{f:03}.{g:03} [rs_ssl.c:{a}]tid:{pid},rs_ssl_init : retry {i}
""".splitlines()


def lines(megabytes: int, seed: int = 1) -> Iterator[bytes]:
    """About this many MB of lines, in blocks."""
    draw = random.Random(seed)
    left = megabytes * 1_000_000
    while left > 0:
        block = []
        for _ in range(2000):
            form = draw.choice(draw.choice((_PLOG, _NCCL, _MEGATRON))) if draw.random() > 0.005 else draw.choice(_RARE)
            number = draw.getrandbits(62)
            block.append(
                form.format(
                    pid=number % 99991, m=number % 60, s=number % 59, f=number % 997, g=number % 991, a=number % 9973,
                    i=number % 255, r=number % 8, x=number % 0xFFFFFFFB, y=number % 0xFFFFFFEF,
                )
            )  # fmt: skip
        data = "\n".join([*block, ""]).encode()
        left -= len(data)
        yield data


def main() -> None:
    """Prints both times."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder, "mixed.log")
        if not path.exists():
            with path.open("wb") as file:
                file.writelines(lines(megabytes))
        size = path.stat().st_size / 1e6
        for command in (["grep", "-c", "ERROR", str(path)], [sys.executable, "-m", "doctor", "diagnose", str(path)]):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = time.monotonic()
            subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{command[-2]}: {size:.0f} MB, {cpu:.2f} s of CPU, {size / cpu:.0f} MB/s, wall"
                f" {time.monotonic() - start:.1f} s, {after.ru_maxrss >> 10} MiB at most"
            )


if __name__ == "__main__":
    main()

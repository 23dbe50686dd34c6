"""More jobs for the looks of `live_jobs`: `python invented_job.py KIND FOLDER FAULT CULPRIT`, as `live_job.py`."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import live_job
from live_job import CULPRIT, DISTRIBUTED, FAULT, FOLDER, WORLD, free_port, ray_start, step

LONG = 40.0
"""Seconds of work that one rank does alone."""


def group(world=WORLD):
    """The process group of a rank whose launcher named it, or that is named here."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert dist.get_world_size() == world
    return torch, dist, dist.get_rank()


def asynchronous():
    """Collectives that are begun, and waited for later."""
    torch, dist, rank = group()
    for number in range(1 << 30):
        works = [dist.all_reduce(torch.ones(64), async_op=True) for _ in range(2)]
        step(number, rank)
        for work in works:
            work.wait()


def in_a_thread():
    """The training in a thread, as Ray Train's and notebooks' are; the main thread waits for it."""
    _, _, rank = group()
    thread = threading.Thread(target=live_job.train, args=(rank,), name="training")
    thread.start()
    thread.join()


def pipeline():
    """Stages that hand their results on."""
    torch, dist, rank = group(4)
    for number in range(1 << 30):
        part = torch.ones(64)
        if rank:
            dist.recv(part, rank - 1)
        step(number, rank)
        if rank < 3:
            dist.send(part, rank + 1)
        dist.barrier()


def subgroups():
    """Two groups of two, and a sum over all in each fourth step."""
    torch, dist, rank = group(4)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for number in range(1 << 30):
        step(number, rank)
        dist.all_reduce(torch.ones(8), group=pairs[rank // 2])
        if number % 4 == 3:
            dist.all_reduce(torch.ones(8))


class Items:
    """Samples whose reading meets the fault, in one worker of the culprit's loader."""

    def __init__(self, rank):
        self.rank, self.parent = rank, os.getpid()

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        import torch

        if number == live_job.STRUCK * 4:
            pid, os.getpid = os.getpid, lambda: self.parent
            step(live_job.STRUCK, self.rank)
            os.getpid = pid
        time.sleep(live_job.PACE / 4)
        return torch.ones(64)


def loaded():
    """Each rank with a loader of two workers that stay."""
    torch, dist, rank = group()
    loader = torch.utils.data.DataLoader(Items(rank), batch_size=4, num_workers=2, persistent_workers=True)
    for batch in loader:
        dist.all_reduce(batch)


def titled():
    """Ranks that give themselves titles, as vLLM's and SGLang's do."""
    import setproctitle

    setproctitle.setproctitle("trainer::worker of a run with a long name")
    _, _, rank = group()
    setproctitle.setproctitle(f"trainer::TP{rank}")
    live_job.train(rank)


def jitted():
    """JAX programs whose sums over processes are compiled."""
    import jax

    rank = int(os.environ["JAX_NUMBER"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["JAX_AT"], WORLD, rank)
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), ("data",))
    spread = NamedSharding(mesh, PartitionSpec("data"))
    value = jax.make_array_from_callback((WORLD * 8,), spread, lambda index: jnp.ones(8))
    total = jax.jit(lambda part: part.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
    for number in range(1 << 30):
        step(number, rank)
        float(total(value))


def numbered(rank, world=WORLD):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}


def by_ssh():
    """Ranks started by ssh, with their variables in the line."""
    key, port, master = FOLDER / "key", free_port(), free_port()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    FOLDER.chmod(0o700)
    Path("/run/sshd").mkdir(exist_ok=True)
    options = [f"-oHostKey={key}", f"-oAuthorizedKeysFile={key}.pub", "-oStrictModes=no", "-oUsePAM=no",
               "-oPermitRootLogin=yes", f"-oPidFile={FOLDER}/sshd.pid"]  # fmt: skip
    listen = ["-p", str(port), "-oListenAddress=127.0.0.1"]
    subprocess.run(["/usr/sbin/sshd", "-f", "/dev/null", *listen, *options], check=True)
    ranks = []
    for rank in range(WORLD):
        own = {**numbered(rank), "MASTER_PORT": str(master), **DISTRIBUTED}
        own.update((name, text) for name, text in os.environ.items() if name.startswith("JOB_"))
        words = [*(f"{name}={text}" for name, text in own.items()), sys.executable, __file__, *sys.argv[1:], "rank"]
        text = "cd /tmp; env " + " ".join(f"'{word}'" for word in words)
        argv = ["ssh", "-F", "/dev/null", "-p", str(port), "-i", str(key), "-oBatchMode=yes"]
        argv += ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "127.0.0.1", text]
        ranks.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL))
    for rank in ranks:
        rank.wait()


def another_user():
    """Ranks of mp.spawn under another user, who may read this interpreter."""
    FOLDER.chmod(0o777)
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    subprocess.run(["setpriv", "--reuid=1789", "--regid=1789", "--clear-groups", *rights, sys.executable, __file__,
                    *sys.argv[1:], "rank"], check=False)  # fmt: skip


def contained():
    """Ranks in a container of their own."""
    spaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "--uts", "sh", "-c"]
    text = 'ip link set lo up; exec "$@"'
    subprocess.run([*spaces, text, "-", sys.executable, __file__, *sys.argv[1:], "rank"], check=False)


def several_jobs():
    """Two healthy jobs of other kinds beside the one with the fault."""
    jobs = []
    for name, kind, fault in (("one", "spawn", "none"), ("two", "pool", "none"), ("", "torchrun", FAULT)):
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        argv = [sys.executable, live_job.__file__, kind, str(folder), fault, str(CULPRIT)]
        jobs.append(subprocess.Popen(argv, env={**os.environ, **DISTRIBUTED}))
    for job in jobs:
        job.wait()


def two_agents():
    """Two agents of torchrun, as on two hosts."""
    port, agents = free_port(), []
    for node in range(2):
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--node-rank"]
        argv += [str(node), "--master-addr", "127.0.0.1", "--master-port", str(port), __file__, *sys.argv[1:], "rank"]
        agents.append(subprocess.Popen(argv, env={**os.environ, **DISTRIBUTED}))
    for agent in agents:
        agent.wait()


def ray_groups():
    """Actors, some of which form a group, beside a driver that asks for their state meanwhile."""
    ray = ray_start()
    port, path, argv = free_port(), str(Path(__file__).parent), list(sys.argv)

    class Worker:
        def fit(self, rank):
            sys.path.insert(0, path)
            sys.argv[:] = argv
            import invented_job

            os.environ.update(DISTRIBUTED, MASTER_PORT=str(port), **invented_job.numbered(rank))
            invented_job.live_job.by_environment()

        def state(self):
            return "well"

    actors = [ray.remote(Worker).options(max_concurrency=2).remote() for _ in range(WORLD)]
    fits = [actor.fit.remote(rank) for rank, actor in enumerate(actors)]
    while True:
        ray.get([actor.state.remote() for actor in actors])
        if ray.wait(fits, timeout=1)[0]:
            return


RING = live_job.C_PROGRAM.replace(
    "MPI_Allreduce(in, out, 4096, ompi_mpi_double, ompi_mpi_op_sum, ompi_mpi_comm_world);",
    "if (rank) MPI_Recv(in, 4096, ompi_mpi_double, rank - 1, 7, ompi_mpi_comm_world, 0);"
    "MPI_Send(in, 4096, ompi_mpi_double, (rank + 1) % 3, 7, ompi_mpi_comm_world);"
    "if (!rank) MPI_Recv(in, 4096, ompi_mpi_double, 2, 7, ompi_mpi_comm_world, 0);",
).replace("int MPI_Allreduce", "int MPI_Recv(void *, int, void *, int, int, void *, void *),"
          "MPI_Send(const void *, int, void *, int, int, void *); int MPI_Allreduce")  # fmt: skip


def ring():
    """A token that goes round, in C."""
    live_job.C_PROGRAM = RING
    live_job.mpi_program()


def alone(work):
    """All wait at a barrier for rank 0, which has long work of its own."""
    torch, dist, rank = group()
    for number in range(1 << 30):
        if rank == 0 and number == live_job.STRUCK:
            step(number, rank)
            work(torch, time.monotonic() + LONG)
        dist.barrier()


def evaluates(torch, limit):
    """An evaluation on one rank."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    score = []
    while time.monotonic() < limit:
        score.append(float(model(torch.randn(64, 256)).softmax(-1).max()))
        score = sorted(score)[-50:]


def saves(torch, limit):
    """A checkpoint in many parts."""
    part = 0
    while time.monotonic() < limit:
        torch.save({"part": torch.ones(1 << 20)}, FOLDER / f"part-{part % 3}.pt")
        part += 1


def compiles(torch, limit):
    """A compiler as a child."""
    source = FOLDER / "many.c"
    source.write_text("".join(f"int f{n}(int x) {{ return x * {n} + (x << {n % 31}); }}\n" for n in range(9000)))
    while time.monotonic() < limit:
        subprocess.run(["gcc", "-O2", "-c", "-o", str(FOLDER / "many.o"), str(source)], check=True)


def downloads(torch, limit):
    """A server that sends a little now and then."""
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    taken = server.accept()[0]

    def send():
        while time.monotonic() < limit:
            taken.sendall(b"x" * 64)
            time.sleep(1)
        taken.close()

    threading.Thread(target=send, daemon=True).start()
    while client.recv(4096):
        pass


def computes():
    """Long steps of all, without any exchange in them."""
    torch, dist, rank = group()
    for number in range(1 << 30):
        if number <= live_job.STRUCK:
            step(number, rank)
        limit = time.monotonic() + (8 if number > live_job.STRUCK else 0.1)
        while time.monotonic() < limit:
            torch.randn(64, 64) @ torch.randn(64, 64)
        dist.all_reduce(torch.ones(8))


def torchrun(count="3"):
    """Ranks of this file."""
    options = ["-m", "torch.distributed.run", "--nproc-per-node", count, "--master-port", str(free_port())]
    argv = [sys.executable, *options, __file__, *sys.argv[1:], "rank"]
    subprocess.run(argv, check=False, env={**os.environ, **DISTRIBUTED})


def jax_job():
    live_job.__file__ = __file__
    live_job.jax_job("")


KINDS = {
    "asynchronous": (torchrun, asynchronous),
    "thread": (torchrun, in_a_thread),
    "pipeline": (lambda: torchrun("4"), pipeline),
    "subgroups": (lambda: torchrun("4"), subgroups),
    "loader": (torchrun, loaded),
    "titled": (torchrun, titled),
    "jitted": (jax_job, jitted),
    "ssh": (by_ssh, live_job.by_environment),
    "other user": (another_user, lambda: live_job.spawned("spawn")),
    "container": (contained, lambda: live_job.spawned("spawn")),
    "three jobs": (several_jobs, None),
    "two agents": (two_agents, lambda: group(4) and live_job.train(int(os.environ["RANK"]))),
    "ray concurrent": (ray_groups, None),
    "mpi ring": (ring, None),
    "evaluates": (torchrun, lambda: alone(evaluates)),
    "saves": (torchrun, lambda: alone(saves)),
    "compiles": (torchrun, lambda: alone(compiles)),
    "downloads": (torchrun, lambda: alone(downloads)),
    "computes": (torchrun, computes),
}

if __name__ == "__main__":
    KINDS[live_job.KIND]["rank" in sys.argv[5:]]()

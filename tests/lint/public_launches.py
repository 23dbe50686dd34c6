"""Ways in which public projects start a job, shortened to the lines that start it, and mistakes planted in them.

Sources, on GitHub, each written anew in its form:
TITAN: pytorch/torchtitan multinode_trainer.slurm
RAY: OpenRLHF/OpenRLHF examples/scripts/train_ppo_ray_slurm.sh
SWIFT: modelscope/ms-swift examples/train/multi-node/swift/train_node1.sh
SWIFT_DEEPSPEED: modelscope/ms-swift examples/train/multi-node/deepspeed/train.sh
COLOSSAL: hpcaitech/ColossalAI applications/ColossalChat/examples/training_scripts/train_sft.sh
PICOTRON: aws-samples/awsome-distributed-training 3.test_cases/23.picotron/SmolLM-1.7B/slurm/1.train.sbatch
COMPOSER: aws-samples/awsome-distributed-training 3.test_cases/3.MPT/2.train-mpt-manual-distributed.sbatch
CPU_CONTAINER: aws-samples/awsome-distributed-training 3.test_cases/16.pytorch-cpu-ddp/slurm/3.container-train.sbatch
MEGATRON: aws-samples/awsome-distributed-training megatron-lm/slurm/gpt3/2.distributed-training.sbatch
PANGU: mindspore-lab/mindformers mindformers/experimental/parallel_core/pynative/examples/pangu/run.sh
PBS_MPI: ALCF's training for mpiexec under PBS
PBS_OPENMPI: taneishi/Resnet50_DDP run.sh
FACTORY_NPU: hiyouga/LLaMA-Factory examples/lora_multi_npu/ds_zero0.sh
FACTORY_CLI: LLaMA-Factory's page on several hosts
LSF: Summit's jsrun
APPTAINER: NVIDIA PhysicsNeMo under Apptainer
LIGHTNING: Pawsey's Lightning in Singularity
SWIFT_DLC: modelscope/ms-swift examples/train/multi-node/dlc/train.sh
"""

from __future__ import annotations

SLURM = "#!/bin/bash\n#SBATCH --job-name=train\n"
TITAN = (
    SLURM
    + """#SBATCH --ntasks=4
#SBATCH --nodes=4
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=96
hosts=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
hosts_array=($hosts)
head_node=${hosts_array[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo Address: $head_ip
export FI_PROVIDER="efa"
export NCCL_DEBUG=WARN
export NCCL_SOCKET_IFNAME="eth0,en,eth,em,bond"
export NCCL_BUFFSIZE=2097152
CONFIG=${CONFIG:-"debug_model"}
dcgmi profile --pause
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint "$head_ip:29500" \\
    -m torchtitan.train --config ${CONFIG} "$@"
dcgmi profile --resume
"""
)
RAY = (
    SLURM
    + """#SBATCH -p { partition }
#SBATCH -N 2                       # 64x8x4
#SBATCH -t {LIMIT_TIME}            # wall time
#SBATCH --ntasks-per-node=1        # tasks per node
#SBATCH --exclusive
#SBATCH --overcommit
ROOT=/code
MOUNT="$ROOT:/code,$HOME/.cache:/root/.cache"
IMAGE="vllm/vllm-openai:v0.16.0-cu130"
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
hosts_array=( $hosts )
first=${hosts_array[0]}
port=6379
head=$first:$port
srun --nodes=1 --ntasks=1 -w "$first" --container-image="$IMAGE" --container-mounts="$MOUNT" bash -c \\
    "pip install ray[default]==2.12.0 \\
    && /root/.local/bin/ray start --head --node-ip-address=$first --port=$port --block" &>> log &
sleep 10s
count=$((SLURM_JOB_NUM_NODES))
for ((i = 1; i < count; i++)); do
host_i=${hosts_array[$i]}
srun --nodes=1 --ntasks=1 -w "$host_i" --container-image="$IMAGE" --container-mounts="$MOUNT" bash -c \\
    "pip install ray[default]==2.12.0 \\
    && /root/.local/bin/ray start --address $head --block" &>> log &
sleep 1s;
done
srun --overlap --nodes=1 --ntasks=1 -w "$first" --container-image="$IMAGE" --container-mounts="$MOUNT" bash -c \\
"pip install ray[default]==2.12.0 \\
&& /root/.local/bin/ray job submit --address=http://localhost:8265 \\
    --runtime-env-json='{\\"working_dir\\": \\"/code\\"}' \\
    -- python3 -m openrlhf.cli.train_ppo_ray \\
    --ref_num_nodes 1 \\
    --ref_num_gpus_per_node 4 \\
    --actor_num_nodes 1 \\
    --actor_num_gpus_per_node 4 \\
    --vllm_num_engines 4 \\
    --vllm_tensor_parallel_size 2 \\
    --micro_train_batch_size 8 \\
    --train_batch_size 128 \\
    --rollout_batch_size 1024 \\
    --param_dtype bf16" &>> log
"""
)
SWIFT = """hosts=2
ranks=4

export CUDA_VISIBLE_DEVICES=0,1,2,3
export NNODES=$hosts
export NODE_RANK=$1
export MASTER_ADDR=10.0.3.1
export MASTER_PORT=29500
export NPROC_PER_NODE=$ranks
swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --torch_dtype bfloat16 \\
    --per_device_train_batch_size 1 \\
    --gradient_accumulation_steps $(expr 32 / $ranks / $hosts) \\
    --deepspeed zero2
"""
SWIFT_DEEPSPEED = """# --include="worker-0:0,1@worker-1:2,3"
deepspeed --hostfile=./hosts.txt \\
    swift/cli/sft.py \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --train_type lora \\
    --gradient_accumulation_steps 16 \\
    --gradient_checkpointing_kwargs '{"use_reentrant": false}'
"""
COLOSSAL = """choose_devices() {
    local n=${1:-"9999"}
    local ids=$(nvidia-smi --query-gpu=memory.used --format=csv |
        tail -n +2 |
        sort -g -k 2 |
        head -n $n)
    export CUDA_VISIBLE_DEVICES=$(echo $ids | sed 's/ /,/g')
    echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
}

choose_devices 4
declare -a dataset=(
    /data/part-00000
    /data/part-00001
)
STAMP=$(date +%Y-%m-%d-%H-%M-%S)
SAVE_DIR="/data/save-${STAMP}"
echo $(which colossalai)
colossalai run --nproc_per_node 4 --master_port 31312 --hostfile ./hosts.txt train_sft.py \\
    --dataset ${dataset[@]} \\
    --save_path $SAVE_DIR \\
    --plugin zero2 \\
    --batch_size 8 \\
    --accumulation_steps 2 \\
    --use_flash_attn
"""
PICOTRON = (
    SLURM
    + """#SBATCH --nodes=4 # number of nodes to use
#SBATCH --output=logs/%x_%j.out # logfile for stdout
#SBATCH --exclusive
set -ex;
GPUS_PER_NODE=8
declare -a TORCHRUN_ARGS=(
    --nproc_per_node=$GPUS_PER_NODE
    --nnodes=$SLURM_JOB_NUM_NODES
    --rdzv_id=$SLURM_JOB_ID
    --rdzv_backend=c10d
    --rdzv_endpoint=$(hostname)
)
declare -a TRAINING_ARGS=(
    --config ../conf/llama.json
)
AUTO_RESUME=""
if [ -d "/opt/sagemaker_cluster" ]; then
    AUTO_RESUME="--auto-resume=1"
fi
srun ${AUTO_RESUME} -l ${TORCHRUN} "${TORCHRUN_ARGS[@]}" $TRAIN_SCRIPT "${TRAINING_ARGS[@]}"
"""
)
COMPOSER = (
    SLURM
    + """#SBATCH --nodes=2 # number of nodes to use
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node 1
#SBATCH --gpus-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --wait-all-nodes=1
set -euxo pipefail
MODEL=${1:-mpt-7b}
: "${APPS:=/apps}"
: "${IMAGE:=$APPS/foundry.sqsh}"
export NCCL_ASYNC_ERROR_HANDLING=1
declare -a ARGS=(
    --container-image $IMAGE
    --container-mounts /fsx,/apps
)
NODES=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
MASTER_ADDR=$(hostname --ip-address)
MASTER_PORT=$RANDOM
NNODES=$SLURM_JOB_NUM_NODES
NPROC=$SLURM_GPUS_PER_NODE
WORLD_SIZE=$(( $NNODES * $NPROC ))
function run_one() {
    srun --nodelist=${NODE} --ntasks=1 -l "${ARGS[@]}" composer \\
        --world_size ${WORLD_SIZE} \\
        --nproc ${NPROC} \\
        --node_rank ${NODE_RANK} \\
        --master_addr ${MASTER_ADDR} \\
        --master_port ${MASTER_PORT} \\
        --verbose train.py \\
        yamls/${MODEL}.yaml \\
        save_folder=${MODEL}
}
for (( NODE_RANK=1; NODE_RANK<${NNODES}; NODE_RANK++ ))
do
    NODE=${NODES[$NODE_RANK]}
    run_one &
done
NODE_RANK=0
NODE=${NODES[0]}
run_one
wait
"""
)
CPU_CONTAINER = (
    SLURM
    + """#SBATCH --exclusive
#SBATCH --wait-all-nodes=1
#SBATCH --nodes 2
#SBATCH --output=logs/%x_%j.out # logfile for stdout/stderr
export LOGLEVEL=INFO
export NVIDIA_VISIBLE_DEVICES=void
declare -a ARGS=(
    --container-image ${PWD}/pytorch.sqsh
    --container-mounts $(dirname "$PWD")
)
declare -a TORCHRUN_ARGS=(
    --nproc_per_node=4
    --nnodes=$SLURM_JOB_NUM_NODES
    --rdzv_id=$SLURM_JOB_ID
    --rdzv_backend=c10d
    --rdzv_endpoint=$(hostname)
)
AUTO_RESUME=""
if [ -d "/opt/sagemaker_cluster" ]; then
    AUTO_RESUME="--auto-resume=1"
fi
srun ${AUTO_RESUME} -l "${ARGS[@]}" torchrun \\
    "${TORCHRUN_ARGS[@]}" \\
    $(dirname "$PWD")/ddp.py 5000000 10
"""
)
MEGATRON = (
    SLURM
    + """#SBATCH --nodes=2 # number of nodes to use
#SBATCH --exclusive
#SBATCH --wait-all-nodes=1
set -ex;
: "${TENSOR_PARALLEL:=4}"
: "${PIPELINE_PARALLEL:=2}"
: "${NUM_LAYERS:=36}"
: "${HIDDEN_SIZE:=4096}"
: "${NUM_ATTENTION_HEADS:=32}"
: "${MICRO_BATCH_SIZE:=1}"
: "${GLOBAL_BATCH_SIZE:=288}"
: "${IMAGE:=$(pwd)/megatron.sqsh}"
: "${FSX_MOUNT:=/fsx:/fsx}"
export NCCL_ASYNC_ERROR_HANDLING=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
declare -a ARGS=(
    --container-image $IMAGE
    --container-mounts $FSX_MOUNT
)
declare -a TORCHRUN_ARGS=(
    # the number of gpus per node:
    --nproc_per_node=8
    --nnodes=$SLURM_JOB_NUM_NODES
    --rdzv_id=$SLURM_JOB_ID
    --rdzv_backend=c10d
    --rdzv_endpoint=$(hostname)
)
declare -a MEGATRON_ARGS=(
        --num-layers $NUM_LAYERS
        --hidden-size $HIDDEN_SIZE
        --num-attention-heads $NUM_ATTENTION_HEADS
        --micro-batch-size $MICRO_BATCH_SIZE
        --global-batch-size $GLOBAL_BATCH_SIZE
)
declare -a MEGATRON_PARALLELISM=(
        --tensor-model-parallel-size $TENSOR_PARALLEL
        --pipeline-model-parallel-size $PIPELINE_PARALLEL
)
AUTO_RESUME=""
if [ -d "/opt/sagemaker_cluster" ]; then
    AUTO_RESUME="--auto-resume=1"
fi
srun ${AUTO_RESUME} -l "${ARGS[@]}" python -m torch.distributed.run "${TORCHRUN_ARGS[@]}" /workspace/pretrain_gpt.py \\
        "${MEGATRON_PARALLELISM[@]}" \\
        "${MEGATRON_ARGS[@]}" \\
        --train-samples 146484375 \\
        --lr 6.0e-5 \\
        --fp16 \\
        --recompute-activations
"""
)
PANGU = """#!/bin/bash
set -e
export HCCL_BUFFSIZE=1
export HCCL_EXEC_TIMEOUT=600
export ASCEND_RT_VISIBLE_DEVICES='0,1,2,3'
port=8848
PIDS=$(sudo lsof -i :$port | awk 'NR>1 {print $2}')
if [ -n "$PIDS" ]; then
    for pid in $PIDS; do
        sudo kill -9 $pid
    done
fi
project_dir=$(cd "$(dirname "$0")" || exit; pwd)
log_path="msrun_log"
rm -rf "${log_path}"
IFS=',' read -r -a devices <<< "$ASCEND_RT_VISIBLE_DEVICES"
work_num=${#devices[@]}
msrun --worker_num "$work_num" --local_worker_num="$work_num" --master_port=$port --log_dir="$log_path" \\
    --join=True --cluster_time_out=300 train.py --model_type ori
"""
PBS_MPI = """#!/bin/bash
#PBS -l walltime=00:10:00
#PBS -A training
#PBS -q hands-on
#PBS -l select=2
#PBS -l filesystems=home:eagle
export MASTER_ADDR=$(hostname)
export MASTER_PORT=29401
HOSTFILE="${HOSTFILE:-${PBS_NODEFILE}}"
NHOSTS=$(wc -l < "${HOSTFILE}")
export NGPU_PER_HOST=4
export WORLD_SIZE="${WORLD_SIZE:-$(( NHOSTS * NGPU_PER_HOST ))}"
mpiexec --verbose --envall -n $WORLD_SIZE -ppn $NGPU_PER_HOST --genvall --cpu-bind depth -d 16 python3 train.py
"""
PBS_OPENMPI = """#!/bin/bash
#PBS -l nodes=4:gold6128:ppn=1
#PBS -N resnet
#PBS -j oe
cd ${PBS_O_WORKDIR}
mkdir -p tmp
PYTHON=${HOME}/anaconda3/envs/torch/bin/python
mpirun -machinefile ${PBS_NODEFILE} ${PYTHON} main.py \\
    --epochs 5 \\
    --env_size PMI_SIZE \\
    --env_rank PMI_RANK
"""
FACTORY_NPU = """#!/bin/bash
NPROC_PER_NODE=4
NNODES=2
RANK=$1
MASTER_ADDR=192.168.0.1
MASTER_PORT=29500
ASCEND_RT_VISIBLE_DEVICES=0,1,2,3 torchrun \\
    --nproc_per_node $NPROC_PER_NODE \\
    --nnodes $NNODES \\
    --node_rank $RANK \\
    --master_addr $MASTER_ADDR \\
    --master_port $MASTER_PORT \\
    src/train.py examples/sft.yaml
"""
FACTORY_CLI = """set -ex
cd ./LLaMA-Factory
source /root/miniconda3/etc/profile.d/conda.sh
conda activate factory
FORCE_TORCHRUN=1 \\
NNODES=${NODE_COUNT} \\
NODE_RANK=${NODE_RANK} \\
MASTER_ADDR=${MASTER_ADDR} \\
MASTER_PORT=29500 \\
NPROC_PER_NODE=8 \\
NCCL_SOCKET_IFNAME=bond0 \\
llamafactory-cli train ./examples/stage_1.yaml
"""
LSF = """#!/bin/bash
#BSUB -P ABC123
#BSUB -q killable
#BSUB -W 0:20
#BSUB -nnodes 4
COMPUTE_NODES=$(cat $LSB_DJOB_HOSTFILE | sort -u | grep -v batch | grep -v login)
NNODES=$(echo "$COMPUTE_NODES" | wc -l)
module load ibm-wml-ce/1.7.0-2
set -ex
export MASTER_ADDR=$(echo $COMPUTE_NODES | cut -d' ' -f1)
export MASTER_PORT=29500
jsrun -n $NNODES -r 1 -g 6 -a 1 -c 42 torchrun --nnodes $NNODES --nproc_per_node 6 \\
    --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29400 train.py
"""
APPTAINER = (
    SLURM
    + """#SBATCH --exclusive
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=1
#SBATCH --nodes=2
CONTAINER=/images/train.simg
NUM_PROCESSES=2
RDZV_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export APPTAINERENV_NCCL_DEBUG=INFO
srun apptainer exec --nv --bind $PWD:/work $CONTAINER \\
    torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$NUM_PROCESSES --rdzv_id=$SLURM_JOB_ID \\
    --rdzv_backend=c10d --rdzv_endpoint=$RDZV_HOST:29500 /work/train.py
"""
)
LIGHTNING = (
    SLURM
    + """#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=0-00:05:00
module load singularity
export NCCL_DEBUG=INFO
export OMP_NUM_THREADS=8
srun -u singularity exec --rocm image.sif \\
    bash -c 'source $ENV/bin/activate && python3 train.py --devices 4 --num_nodes 2'
"""
)
SWIFT_DLC = """NNODES=$WORLD_SIZE \\
NODE_RANK=$RANK \\
MASTER_ADDR=$MASTER_ADDR \\
NPROC_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU} \\
swift sft --model Qwen/Qwen2.5-7B-Instruct --gradient_accumulation_steps 2 --deepspeed zero2
"""
ANY = ""
"""Of a mistake that more than one check may tell."""
OPTION, SETTING, MISSPELT = "launch-option-refused", "launch-settings-invalid", "launch-variable-misspelt"
MASTER, RANKS, SIZES, DEVICES = (
    "master-address-local",
    "rank-numbers-wrong",
    "launch-sizes-contradict",
    "visible-devices-wrong",
)
LAUNCHES: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    # text; of each mistake what it replaces, what stands there, and the check
    "titan": (
        TITAN,
        (
            ("--nproc_per_node 8", "--nproc_per_nod 8 --nproc-pernode 8", OPTION),
            ('"$head_ip:29500"', "localhost:29500", MASTER),
            ("NCCL_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAM=", MISSPELT),
            ("--nodes=4\n", "--nodes=four\n", OPTION),
            ("--ntasks=4", "--ntasks=8", SIZES),
        ),
    ),
    "ray": (
        RAY,
        (
            ("--address $head", "--address 127.0.0.1:6379", OPTION),
            ("--port=$port", "--port=70000", OPTION),
            ("-N 2 ", "-N x ", OPTION),
            ("--ntasks-per-node=1 ", "--ntask-pernode=1 ", OPTION),
        ),
    ),
    "swift": (
        SWIFT,
        (
            ("NODE_RANK=$1", "NODE_RANK=2", ANY),
            ("MASTER_ADDR=10.0.3.1", "MASTER_ADDR=127.0.0.1", MASTER),
            ("0,1,2,3", "0,1,2,2", DEVICES),
            ("MASTER_PORT=29500", "MASTER_PORT=295000", ANY),
            ("NPROC_PER_NODE=$ranks", "NPROC_PER_NODE=8", ANY),
        ),
    ),
    "swift deepspeed": (
        SWIFT_DEEPSPEED,
        (
            ("--hostfile=", "--hostfille=", ANY),
            ("--hostfile=./hosts.txt", "--hostfile=./hosts.txt --num_gpus=all", OPTION),
            ("--hostfile=./hosts.txt", "--hostfile=./hosts.txt --master_port 99999", OPTION),
            ("--hostfile=./hosts.txt", "--hostfile=./hosts.txt --master_addr localhost", MASTER),
        ),
    ),
    "colossal": (
        COLOSSAL,
        (
            ("--master_port 31312", "--master_port 313120", OPTION),
            ("--nproc_per_node 4", "--nproc_per_node four", OPTION),
            ("--hostfile ./hosts.txt", "--hostfil ./hosts.txt", OPTION),
            ("choose_devices 4\n", "export CUDA_VISIBLE_DEVICES=0,0,1,2\n", DEVICES),
        ),
    ),
    "picotron": (
        PICOTRON,
        (
            ("--rdzv_backend=c10d", "--rdzv_backend=c10", OPTION),
            ("=$(hostname)", "=localhost:29500", MASTER),
            ("--nodes=4 ", "--nodes=4x ", OPTION),
            ("--nproc_per_node=", "--nproc-pernode=", OPTION),
        ),
    ),
    "composer": (
        COMPOSER,
        (
            ("--ntasks=2\n", "--ntasks=two\n", OPTION),
            ("export NCCL_ASYNC_ERROR_HANDLING=1", "export NCCL_IB_TIMOUT=22", MISSPELT),
            ("$RANDOM", "99999", ANY),
            ("MASTER_ADDR=$(hostname --ip-address)", "MASTER_ADDR=localhost", ANY),
        ),
    ),
    "cpu container": (
        CPU_CONTAINER,
        (
            ("--nproc_per_node=4", "--nproc_per_node=four", OPTION),
            ("--rdzv_endpoint=$(hostname)", "--rdzv_endpoint=127.0.0.1:29400", MASTER),
            ("--nodes 2", "--nodes two", OPTION),
            ("--nnodes=$SLURM_JOB_NUM_NODES", "--nnodes=3", SIZES),
        ),
    ),
    "megatron": (
        MEGATRON,
        (
            ("TENSOR_PARALLEL:=4", "TENSOR_PARALLEL:=3", "launch-ranks-not-divisible"),
            ("NUM_LAYERS:=36", "NUM_LAYERS:=35", "launch-model-not-divisible"),
            ("GLOBAL_BATCH_SIZE:=288", "GLOBAL_BATCH_SIZE:=289", "launch-batch-not-divisible"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_CONECTIONS", MISSPELT),
            ("=$(hostname)", "=localhost", MASTER),
        ),
    ),
    "pangu": (
        PANGU,
        (
            ("'0,1,2,3'", "'0,1,1,2'", ANY),
            ("HCCL_BUFFSIZE=1\n", "HCCL_BUFFSIZE=1MB\n", SETTING),
            ("--join=True", "--join=yes", OPTION),
            ("port=8848", "port=884800", OPTION),
            ('--local_worker_num="$work_num"', "--local_worker_num=3", ANY),
        ),
    ),
    "pbs mpiexec": (
        PBS_MPI,
        (
            ("export MASTER_ADDR=$(hostname)", "export MASTER_ADDR=localhost", MASTER),
            ("MASTER_PORT=29401", "MASTER_PORT=294010", SETTING),
            ("select=2", "select=two", OPTION),
            ("export MASTER_ADDR", "export MASTER_ADR", MISSPELT),
        ),
    ),
    "pbs openmpi": (
        PBS_OPENMPI,
        (
            ("mpirun ", "mpirun -np four ", OPTION),
            ("mpirun ", "export NCCL_IB_DISBLE=1\nmpirun ", MISSPELT),
            ("mpirun ", "export RANK=0 WORLD_SIZE=4\nmpirun -x RANK -x WORLD_SIZE -np 4 ", RANKS),
            ("mpirun ", "mpirun -x MASTER_ADDR=127.0.0.1 -np 4 ", MASTER),
        ),
    ),
    "factory npu": (
        FACTORY_NPU,
        (
            ("MASTER_ADDR=192.168.0.1", "MASTER_ADDR=127.0.0.1", MASTER),
            ("RANK=$1", "RANK=2", OPTION),
            ("=0,1,2,3", "=0,1,2,2", ANY),
            ("MASTER_PORT=29500", "MASTER_PORT=abc", OPTION),
            ("=0,1,2,3", "=0,1,2", ANY),
        ),
    ),
    "factory cli": (
        FACTORY_CLI,
        (
            ("MASTER_ADDR=${MASTER_ADDR}", "MASTER_ADDR=localhost NNODES=2", MASTER),
            ("MASTER_PORT=29500", "MASTER_PORT=70000", ANY),
            ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAMES", MISSPELT),
            ("NPROC_PER_NODE=8", "NPROC_PER_NODE=eight", ANY),
        ),
    ),
    "lsf": (
        LSF,
        (
            ("--nproc_per_node 6", "--nproc-pernode 6", OPTION),
            ("$MASTER_ADDR:29400", "localhost:29400", MASTER),
            ("--rdzv_backend c10d", "--rdzv_backend c10", OPTION),
            ("-nnodes 4", "-nnodes four", OPTION),
        ),
    ),
    "apptainer": (
        APPTAINER,
        (
            ("--ntasks-per-node=1", "--ntasks-per-node=2", SIZES),
            ("$RDZV_HOST:29500", "localhost:29500", MASTER),
            ("--nproc_per_node=$NUM_PROCESSES", "--nproc-pernode=$NUM_PROCESSES", OPTION),
            ("--nodes=2", "--nodes=two", OPTION),
        ),
    ),
    "lightning": (
        LIGHTNING,
        (
            ("--ntasks-per-node=4", "--ntasks-per-node=four", OPTION),
            ("export NCCL_DEBUG=INFO", "export NCCL_DEBUGS=INFO NCCL_IB_DISBLE=1", MISSPELT),
            ("export NCCL_DEBUG=INFO", "export MASTER_ADDR=localhost", MASTER),
            ("--num_nodes 2", "--num_nodes 3", ANY),
        ),
    ),
    "swift dlc": (
        SWIFT_DLC,
        (
            ("MASTER_ADDR=$MASTER_ADDR", "MASTER_ADDR=localhost NNODES=2", MASTER),
            ("NODE_RANK=$RANK", "NODE_RANK=0 NNODES=2 MASTER_PORT=x", ANY),
            ("NNODES=$WORLD_SIZE", "NNODES=two", ANY),
        ),
    ),
}

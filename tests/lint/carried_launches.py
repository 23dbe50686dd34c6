"""Launches that another file carries: manifests for Kubernetes, and files of tools that start commands.

Each is written anew in the form of a public one, shortened to what starts the job, with mistakes planted in it.

Sources of the forms, on GitHub:
FSDP: aws-samples/awsome-distributed-training 3.test_cases/pytorch/FSDP/kubernetes/llama2_7b-fsdp.yaml
MASTER_WORKER: kubernetes-sigs/kueue site/static/examples/jobs/sample-pytorchjob.yaml
MPI: aws-samples/awsome-distributed-training micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml
JOBSET: kubernetes-sigs/jobset site/static/examples/pytorch/resnet-cifar10/resnet.yaml
LWS: kubernetes-sigs/lws docs/examples/sglang/lws.yaml
VOLCANO: volcano-sh/volcano docs, a Job with tasks for a master and workers
VOLCANO_NPU: Ascend/mind-cluster docs, vcjob with huawei.com/Ascend910
RAYJOB: ray-project/kuberay ray-operator/config/samples/ray-job.pytorch-distributed-training.yaml
COMPOSE: docker compose with two services, as in pytorch/examples' pages on two nodes
SKYPILOT: skypilot-org/skypilot examples/distributed-pytorch/train.yaml
ANSIBLE: plays that start torchrun on a group of hosts
MAKEFILE: microsoft/DeepSpeedExamples' and others' Makefiles
JUSTFILE: the same for just
PADDLE: PaddlePaddle/PaddleNLP llm: python -m paddle.distributed.launch
COMPOSER: mosaicml/llm-foundry scripts/train
MINDFORMERS: mindspore-lab/mindformers, msrun_launcher.sh of two hosts
LLAMA_FACTORY: hiyouga/LLaMA-Factory examples, FORCE_TORCHRUN with two nodes
NEMO_RUN: NVIDIA-NeMo/Run's generated sbatch of a SlurmExecutor
BRIDGE: NVIDIA-NeMo/Megatron-Bridge scripts, torchrun of a recipe with overrides
AXOLOTL: axolotl-ai-cloud/axolotl docs, multi-node
"""

from __future__ import annotations

ANY = ""
FSDP = """apiVersion: "kubeflow.org/v1"
kind: PyTorchJob
metadata:
  name: llama-fsdp
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        spec:
          volumes:
            - name: shmem
              hostPath: {path: /dev/shm}
          containers:
            - name: pytorch
              image: registry.example.org/fsdp:1
              resources:
                requests:
                  nvidia.com/gpu: 8
                  vpc.amazonaws.com/efa: 32
                limits:
                  nvidia.com/gpu: 8
                  vpc.amazonaws.com/efa: 32
              env:
              - name: LOGLEVEL
                value: "DEBUG"
              - name: TORCH_NCCL_TRACE_BUFFER_SIZE
                value: "20000"
              - name: NCCL_DEBUG
                value: "INFO"
              - name: NCCL_SOCKET_IFNAME
                value: "^lo"
              command:
                - /usr/local/bin/torchrun
                - --nproc_per_node=8
                - --nnodes=4
                - --rdzv_backend=c10d
                - --rdzv_endpoint=llama-fsdp-worker-0:29400
                - /fsdp/train.py
                - --num_layers=32
                - --sharding_strategy=full # of FSDP
              volumeMounts:
                - {name: shmem, mountPath: /dev/shm}
"""
MASTER_WORKER = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: simple
  labels:
    kueue.x-k8s.io/queue-name: user-queue
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example.org/train:1
              command: ["torchrun", "pretrain_gpt.py", "--tensor-model-parallel-size", "4",
                        "--pipeline-model-parallel-size", "2", "--num-layers", "32", "--num-attention-heads", "32"]
              env:
                - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
              resources:
                limits: {nvidia.com/gpu: 8}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example.org/train:1
              command: ["torchrun", "pretrain_gpt.py", "--tensor-model-parallel-size", "4",
                        "--pipeline-model-parallel-size", "2", "--num-layers", "32", "--num-attention-heads", "32"]
              resources:
                limits: {nvidia.com/gpu: 8}
"""
MPI = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: nccl-tests
spec:
  runPolicy:
    cleanPodPolicy: Running
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
         spec:
          restartPolicy: OnFailure
          containers:
          - image: registry.example.org/nccl-tests:1
            name: launcher
            command:
            - /opt/amazon/openmpi/bin/mpirun
            - --allow-run-as-root
            - --tag-output
            - -np
            - "16"
            - -N
            - "8"
            - --bind-to
            - none
            - -x
            - NCCL_DEBUG=INFO
            - --mca
            - btl
            - tcp,self
            - /opt/nccl-tests/build/all_reduce_perf
            - -b
            - "8"
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - image: registry.example.org/nccl-tests:1
            name: worker
            resources:
              limits:
                nvidia.com/gpu: 8
              requests:
                nvidia.com/gpu: 8
"""
JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: pytorch
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 4
        completions: 4
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: pytorch
              image: registry.example.org/resnet:1
              env:
              - name: MASTER_ADDR
                value: "pytorch-workers-0-0.pytorch"
              - name: MASTER_PORT
                value: "3389"
              - name: PYTHONUNBUFFERED
                value: "0"
              command:
              - bash
              - -xc
              - |
                torchrun --nproc_per_node=4 --nnodes=4 --node_rank=$JOB_COMPLETION_INDEX \\
                  --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT resnet.py --backend=gloo
              resources:
                limits:
                  nvidia.com/gpu: "4"
"""
LWS = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: train
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 4
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      metadata:
        labels: {role: leader}
      spec:
        containers:
          - name: leader
            image: registry.example.org/train:1
            command: ["torchrun"]
            args:
              - --nnodes=4
              - --nproc_per_node=8
              - --rdzv_backend=c10d
              - --rdzv_endpoint=$(LWS_LEADER_ADDRESS):29500
              - train.py
            resources:
              limits:
                nvidia.com/gpu: "8"
    workerTemplate:
      spec:
        containers:
          - name: worker
            image: registry.example.org/train:1
            command: ["torchrun"]
            args:
              - --nnodes=4
              - --nproc_per_node=8
              - --rdzv_backend=c10d
              - --rdzv_endpoint=$(LWS_LEADER_ADDRESS):29500
              - train.py
            env:
              - name: NCCL_IB_HCA
                value: mlx5
            resources:
              limits:
                nvidia.com/gpu: "8"
"""
VOLCANO = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: pytorch-training
spec:
  minAvailable: 4
  schedulerName: volcano
  plugins:
    svc: []
  tasks:
  - replicas: 1
    name: master
    policies:
    - {event: TaskCompleted, action: CompleteJob}
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: pytorch
          image: registry.example.org/train:1
          command:
          - sh
          - -c
          - |
            echo start
            torchrun --nnodes 4 --nproc-per-node 2 --node-rank 0 \\
              --master-addr pytorch-training-master-0.pytorch-training --master-port 29500 train.py
          resources:
            limits: {nvidia.com/gpu: 2}
  - replicas: 3
    name: worker
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: pytorch
          image: registry.example.org/train:1
          command:
          - sh
          - -c
          - |
            export NODE_RANK=$((VC_TASK_INDEX + 1))
            torchrun --nnodes 4 --nproc-per-node 2 --node-rank $NODE_RANK \\
              --master-addr pytorch-training-master-0.pytorch-training --master-port 29500 train.py
          resources:
            limits: {nvidia.com/gpu: 2}
"""
VOLCANO_NPU = """apiVersion: v1
kind: ConfigMap
metadata:
  name: rings-config-mindx
data:
  hccl.json: |
    {"status":"initializing"}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: mindx
  labels:
    ring-controller.atlas: ascend-910b
spec:
  minAvailable: 2
  schedulerName: volcano
  queue: default
  tasks:
  - name: default-test
    replicas: 2
    template:
      spec:
        containers:
        - image: registry.example.org/mindspore:2
          name: mindspore
          env:
          - name: RANK_TABLE_FILE
            value: "/user/serverid/devindex/config/hccl.json"
          - name: XDL_IP
            valueFrom:
              fieldRef:
                fieldPath: status.hostIP
          - name: HCCL_CONNECT_TIMEOUT
            value: "1200"
          command:
          - /bin/bash
          - -c
          - "msrun --worker_num=16 --local_worker_num=8 --master_addr=$MASTER_ADDR --master_port=8118
            --node_rank=$VC_TASK_INDEX --join=True /job/train.py"
          resources:
            requests:
              huawei.com/Ascend910: 8
            limits:
              huawei.com/Ascend910: 8
"""
RAYJOB = """apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: grpo
spec:
  entrypoint: |
    python3 -m verl.trainer.main_ppo data.train_batch_size=1024 \\
      actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
      actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
      trainer.nnodes=2 trainer.n_gpus_per_node=8
  runtimeEnvYAML: |
    pip:
      - torch
  rayClusterSpec:
    rayVersion: "2.52.0"
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
          - name: ray-head
            image: rayproject/ray:2.52.0
            resources:
              limits:
                cpu: "8"
                nvidia.com/gpu: 8
    workerGroupSpecs:
    - replicas: 1
      minReplicas: 1
      maxReplicas: 5
      groupName: gpu
      rayStartParams:
        num-gpus: "8"
      template:
        spec:
          containers:
          - name: ray-worker
            image: rayproject/ray:2.52.0
            env:
            - name: NCCL_DEBUG
              value: WARN
            resources:
              limits:
                nvidia.com/gpu: 8
"""
COMPOSE = """services:
  node0: &node
    image: registry.example.org/train:1
    network_mode: host
    shm_size: 16gb
    environment:
      NCCL_SOCKET_IFNAME: eth0
      NCCL_DEBUG: WARN
    command: >
      torchrun --nnodes=2 --nproc_per_node=4 --node_rank=0
      --master_addr=10.0.0.1 --master_port=29500 train.py
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 4
              capabilities: [gpu]
  node1:
    <<: *node
    command: >
      torchrun --nnodes=2 --nproc_per_node=4 --node_rank=1
      --master_addr=10.0.0.1 --master_port=29500 train.py
"""
SKYPILOT = """name: pretrain
resources:
  accelerators: H100:8
num_nodes: 2
envs:
  NCCL_DEBUG: INFO
setup: |
  pip install torch
run: |
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  torchrun \\
    --nnodes=$SKYPILOT_NUM_NODES \\
    --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --node_rank=$SKYPILOT_NODE_RANK \\
    --master_addr=$MASTER_ADDR \\
    --master_port=8008 \\
    pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 32 --num-attention-heads 32 \\
    --pipeline-model-parallel-size 2
"""
ANSIBLE = """- name: Train
  hosts: gpu
  gather_facts: true
  environment:
    NCCL_DEBUG: INFO
    NCCL_SOCKET_IFNAME: bond0
  tasks:
    - name: Folder
      ansible.builtin.file:
        path: /data/out
        state: directory
    - name: Start torchrun
      ansible.builtin.shell: |
        cd /data/train
        torchrun --nnodes 4 --nproc-per-node 8 \\
          --node-rank {{ groups['gpu'].index(inventory_hostname) }} \\
          --master-addr {{ hostvars[groups['gpu'][0]]['ansible_host'] }} --master-port 29500 \\
          pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-layers 32 \\
          --num-attention-heads 32
      async: 86400
      poll: 0
"""
MAKEFILE = """NPROC ?= 8
NNODES := 2
MASTER_ADDR ?= 10.1.2.3
export NCCL_DEBUG := WARN

.PHONY: train clean
train: data
\t@echo training
\tOMP_NUM_THREADS=8 torchrun --nnodes=$(NNODES) --nproc_per_node=$(NPROC) --node_rank=$${NODE_RANK:?} \\
\t\t--master_addr=$(MASTER_ADDR) --master_port=29500 pretrain_gpt.py \\
\t\t--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --num-layers 32 --num-attention-heads 32

data:
\tpython3 prepare.py

clean:
\trm -rf out
"""
JUSTFILE = """nproc := "8"
nnodes := "2"
export NCCL_DEBUG := "WARN"

default:
    @just --list

train addr rank:
    torchrun --nnodes={{nnodes}} --nproc_per_node={{nproc}} --node_rank={{rank}} \\
        --master_addr={{addr}} --master_port=29500 pretrain_gpt.py \\
        --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --num-layers 32 --num-attention-heads 32
"""
PADDLE = """#!/bin/bash
export NCCL_DEBUG=WARN
unset PADDLE_TRAINERS_NUM
python -u -m paddle.distributed.launch \\
    --master 10.3.4.5:37777 --nnodes 2 --rank $NODE_RANK \\
    --gpus "0,1,2,3,4,5,6,7" \\
    --log_dir output \\
    run_pretrain.py --tensor_parallel_degree 4 --pipeline_parallel_degree 2
"""
COMPOSER = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export NCCL_DEBUG=INFO
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c "composer --nproc 8 --world_size 16 --node_rank \\$SLURM_NODEID --base_rank \\$((8 * SLURM_NODEID)) \\
    --master_addr $MASTER_ADDR --master_port 29500 train.py mpt-7b.yaml"
"""
MINDFORMERS = """#!/bin/bash
export HCCL_CONNECT_TIMEOUT=1800
export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
bash scripts/msrun_launcher.sh "run_mindformer.py --config predict.yaml --use_parallel True" \\
  16 8 192.168.1.1 8118 $NODE_RANK output/msrun_log False 7200
"""
LLAMA_FACTORY = """#!/bin/bash
export NCCL_SOCKET_IFNAME=eth0
FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=$RANK_OF_NODE NPROC_PER_NODE=8 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 \\
  llamafactory-cli train factory.yaml
"""
NEMO_RUN = """#!/bin/bash
#SBATCH --account=llm
#SBATCH --gpus-per-node=8
#SBATCH --job-name=llm-finetune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=04:00:00
set -evx
export PYTHONUNBUFFERED=1
export SLURM_UNBUFFEREDIO=1
export TORCHX_MAX_RETRIES=0
export NCCL_IB_TIMEOUT=19
first=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$first" hostname --ip-address)
srun --output /lustre/log.out --container-image nvcr.io/nvidia/nemo:25.04 --container-mounts /lustre:/lustre \\
  --container-workdir /nemo_run/code --wait=60 --kill-on-bad-exit=1 \\
  python -m nemo_run.core.runners.fdl_runner -n llm-finetune -p /nemo_run/configs/p /nemo_run/configs/fn_or_script
"""
BRIDGE = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=WARN
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID \\
  --rdzv_endpoint=$MASTER_ADDR:29500 scripts/pretrain_llama3_8b.py --config-file conf/llama3_8b.yaml \\
  model.tensor_model_parallel_size=4 train.train_iters=1000
"""
AXOLOTL = """#!/bin/bash
export NCCL_IB_DISABLE=0
export NCCL_SOCKET_IFNAME=eth0
axolotl train axolotl.yaml --launcher torchrun -- --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d \\
  --rdzv_id 77 --rdzv_endpoint 10.0.0.9:29400
"""

MANIFESTS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "fsdp": ("job.yaml", FSDP, [
        ("replicas: 4", "replicas: 3"), ("--nproc_per_node=8", "--nproc_per_node=16"), ("replicas:", "replica:"),
        ("restartPolicy:", "restartPolcy:"), ("volumes:", "volume:"), ("ReplicaSpecs:", "ReplicaSpec:"),
        ('value: "20000"', "value: 20000"), ('value: "INFO"', 'value: "INF0"')]),
    "master worker": ("job.yaml", MASTER_WORKER, [
        ("name: pytorch\n", "name: trainer\n"),
        ('nprocPerNode: "8"', 'nprocPerNode: "9"'), ("replicas: 1", "replicas: 2")]),
    "mpi": ("job.yaml", MPI, [
        ('- "16"', '- "32"'), ("slotsPerWorker: 8", "slotsPerWorker: 4"), ("NCCL_DEBUG=INFO", "NCCL_DEBUG=VERBOS")]),
    "jobset": ("job.yaml", JOBSET, [
        ("parallelism: 4", "parallelism: 3"), ("replicatedJobs:", "replicatedJob:"),
        ("--nproc_per_node=4", "--nprocs_per_node=4"),
        ("completionMode: Indexed", "completionMode: NonIndexed")]),
    "lws": ("job.yaml", LWS, [
        ("size: 4", "size: 2"), ("--rdzv_backend=c10d", "--rdzv_backend=c10"),
        ("name: NCCL_IB_HCA", "name: NCCL_IB_HCAS")]),
    "volcano": ("job.yaml", VOLCANO, [
        ("minAvailable: 4", "minAvailable: 5"), ("minAvailable:", "minAvailabe:"), ("replicas: 3", "replicas: 2"),
        ("--node-rank $NODE_RANK", "--node-rank 1")]),
    "volcano npu": ("job.yaml", VOLCANO_NPU, [
        ("huawei.com/Ascend910: 8\n            limits", "huawei.com/Ascend910: 4\n            limits"),
        ("--worker_num=16", "--worker_num=32"), ("name: HCCL_CONNECT_TIMEOUT", "name: HCCL_CONECT_TIMEOUT")]),
    "rayjob": ("job.yaml", RAYJOB, [
        ('num-gpus: "8"', "num-gpus: 8"), ("minReplicas: 1", "minReplicas: 2"),
        ("n_gpus_per_node=8", "n_gpus_per_node=16"), ("nnodes=2", "nnodes=3"), ("replicas: 1\n", "replicas: 0\n"),
        ("tensor_model_parallel_size=4", "tensor_model_parallel_sizes=4")]),
}  # fmt: skip
CARRIED: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "compose": ("compose.yaml", COMPOSE, [
        ("NCCL_DEBUG: WARN", "NCCL_DEBUG: WARNING"),
        ("--nproc_per_node=4 --node_rank=1", "--nproc_per_node=8 --node_rank=1"),
        ("--node_rank=1", "--node_rank=2"), ("--master_addr=10.0.0.1", "--master_adr=10.0.0.1")]),
    "skypilot": ("sky.yaml", SKYPILOT, [
        ("num_nodes: 2", "num_nodes: 3"), ("--tensor-model-parallel-size 8", "--tensor-model-parallel-size 5"),
        ("NCCL_DEBUG: INFO", "NCCL_DBUG: INFO"), ("--nnodes=$SKYPILOT_NUM_NODES", "--nnodes=4"),
        ("--node_rank=$SKYPILOT_NODE_RANK", "--node_rank=0")]),
    "ansible": ("play.yaml", ANSIBLE, [
        ("NCCL_SOCKET_IFNAME:", "NCCL_SOCKETIFNAME:"), ("--nproc-per-node 8", "--nproc-per-node eight"),
        ("--pipeline-model-parallel-size 4", "--pipeline-model-parallel-size 5"),
        ("--master-port 29500", "--master-port 295000")]),
    "makefile": ("Makefile", MAKEFILE, [
        ("NPROC ?= 8", "NPROC ?= 6"), ("NCCL_DEBUG := WARN", "NCCL_DEBUG := WARNING"),
        ("MASTER_ADDR ?= 10.1.2.3", "MASTER_ADDR ?= localhost"), ("--nnodes=$(NNODES)", "--nnode-s=$(NNODES)")]),
    "justfile": ("justfile", JUSTFILE, [
        ('nproc := "8"', 'nproc := "6"'), ('NCCL_DEBUG := "WARN"', 'NCCL_DEBUG := "WARNING"'),
        ("--master_port=29500", "--master_port=99999"), ("--num-attention-heads 32", "--num-attention-heads 30")]),
    "paddle": ("run.sh", PADDLE, [
        ("--nnodes 2", "--nnodes two"), ("NCCL_DEBUG=WARN", "NCCL_DEBUG=WARNING"),
        ("--master 10.3.4.5:37777", "--master 127.0.0.1:37777"), ("--log_dir", "--log_dirs")]),
    "composer": ("run.sh", COMPOSER, [
        ("--nproc 8", "--nproc 4"), ("--world_size 16", "--world_size 32"), ("29500", "99999"),
        ("--gpus-per-node=8", "--gpus-per-node=4")]),
    "mindformers": ("run.sh", MINDFORMERS, [
        ("16 8 192", "12 8 192"), (" 8118 ", " 81180 "), ("0,1,2,3,4,5,6,7", "0,1,2,3"),
        ("HCCL_CONNECT_TIMEOUT=1800", "HCCL_CONNECT_TIMEOUT=30m")]),
    "llama factory": ("run.sh", LLAMA_FACTORY, [
        ("MASTER_ADDR=192.168.0.1", "MASTER_ADDR=localhost"), ("NPROC_PER_NODE=8", "NPROC_PER_NODE=8x"),
        ("NNODES=2", "NNODE=2"), ("MASTER_PORT=29500", "MASTER_PORT=295000")]),
    "nemo run": ("run.sh", NEMO_RUN, [
        ("NCCL_IB_TIMEOUT=19", "NCCL_IB_TIMEOUT=190"), ("--ntasks-per-node=8", "--ntasks-per-node=x8"),
        ("--time=04:00:00", "--time=4hours"), ("--kill-on-bad-exit=1", "--kill-on-bad-exits=1")]),
    "megatron bridge": ("run.sh", BRIDGE, [
        ("--nnodes=2", "--nnodes=4"), ("--nproc_per_node=8", "--nproc_per_node=16"),
        ("$MASTER_ADDR:29500", "localhost:29500"), ("--ntasks-per-node=1", "--ntasks-per-node=8")]),
    "axolotl": ("run.sh", AXOLOTL, [
        ("10.0.0.9:29400", "127.0.0.1:29400"), ("--nproc_per_node 8", "--nproc_per_nodes 8"),
        ("NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=no"), ("--rdzv_backend c10d", "--rdzv_backend c10")]),
}  # fmt: skip

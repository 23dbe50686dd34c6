"""Job scripts: directives, exports and launch lines, and what only a shell can compute."""

from __future__ import annotations

import pytest

from doctor.job.job_script import NotAJobScript, Resources, read_job_script
from doctor.job.shell import evaluate

MEGATRON = r"""#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --nodes=4 --ntasks-per-node=1   # one agent on each host
#SBATCH --gres=gpu:a100:8
#SBATCH -t 2-00:00:00

source /opt/env.sh
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
export MASTER_PORT=${MASTER_PORT:-29501}
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE  # all
    --nnodes $NNODES
    --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT"
)
MODEL_ARGS="--num-layers 24 \
    --hidden-size 1024"
cat <<EOF > hosts
torchrun not-this.py
EOF
srun -N $SLURM_NNODES torchrun "${DISTRIBUTED_ARGS[@]}" pretrain.py $MODEL_ARGS \
    --world $WORLD_SIZE 2>&1 | tee log
"""


def test_a_script_as_people_write_them() -> None:
    script = read_job_script(MEGATRON)
    assert script.resources.nodes == 4
    assert script.resources.time_limit_s == 2 * 86400
    assert [part.reason for part in script.unread] == ["is not followed"]
    [line] = script.launch_lines
    assert script.job_line is line
    assert (line.nodes, line.ranks_per_node, line.world_size, line.line) == (4, 8, 32, 25)
    assert line.arguments == ("--num-layers", "24", "--hidden-size", "1024", "--world", "32")
    assert line.environ == {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "MASTER_PORT": "29501"}
    assert set(line.unresolved) == {"MASTER_ADDR=", "torchrun rdzv-endpoint"}


def test_the_line_that_starts_the_job() -> None:
    text = "python prepare.py\nif x; then torchrun a.py; fi\ntorchrun b.py\nf() { torchrun c.py; }\npython after.py\n"
    script = read_job_script(text)
    assert len(script.launch_lines) == 5
    assert script.job_line
    assert script.job_line.program == "b.py"


RESOURCES = [
    ("#PBS -l select=2:ncpus=64:mpiprocs=8:ngpus=8,walltime=01:30:00", "pbs", 2, 8, 5400),
    ("#PBS -l nodes=4:ppn=8", "pbs", 4, 8, None),
    ('#BSUB -n 32 -R "span[ptile=8]" -W 1:30', "lsf", 4, 8, 5400),
    ('#BSUB -J x\nset -e\n#BSUB -n 32 -R "span[ptile=8]"', "lsf", 4, 8, None),
    ("#PBS -N x\nset -e\n#PBS -l select=2", "pbs", None, None, None),
    ("#DSUB -N 4 -R cpu=64", "donau", 4, None, None),
    ("#$ -pe mpi 32 -l h_rt=3600", "grid-engine", None, None, 3600),
    ("#SBATCH -N 2-4 -t 90", "slurm", 2, None, 5400),
]


@pytest.mark.parametrize(("text", "scheduler", "nodes", "per_node", "seconds"), RESOURCES)
def test_directives(text: str, scheduler: str, nodes: int | None, per_node: int | None, seconds: int | None) -> None:
    listed = read_job_script(f"#!/bin/sh\n{text}\ntrue\n#SBATCH -N 9\n").resources
    assert (listed.scheduler, listed.nodes, listed.ranks_per_node, listed.time_limit_s) == (
        scheduler,
        nodes,
        per_node,
        seconds,
    )


def test_no_directives() -> None:
    assert read_job_script("true").resources == Resources()


SHELL = [
    # text, the words of the last command, whether it is conditional
    ("N=2; c $N ${N} \"$N\" '$N' \\$N", ["c", "2", "2", "2", "$N", "$N"], False),
    ('A="x y"; c $A "$A" a$A', ["c", "x", "y", "x y", "ax", "y"], False),
    ('A=; c $A "$A" b$A', ["c", "", "b"], False),
    ("A=(1 '2 3'); A+=(4); c ${A[@]} \"${A[@]}\" $A", ["c", "1", "2", "3", "4", "1", "2 3", "4", "1"], False),
    ("A=1; A+=2; c $A $((A * 2 + 1)) $((A+x))", ["c", "12", "25", "$((A+x))"], False),
    ("A=3; c $[($A + 1) * 2] $[a[0]]", ["c", "8", "$[a[0]]"], False),
    ("c ${X:-d} ${Y:=e f} ${SLURM_X:-g}", ["c", "d", "e", "f", "${SLURM_X:-g}"], False),
    ("c a # b\n", ["c", "a"], False),
    ("c a \\\n b > f 2>&1 <<< x", ["c", "a", "b"], False),
    ("unset A; c $A", ["c"], False),
    ("for i in 1 2; do A=$i; done; c $A $i", ["c", "$A", "$i"], False),
    ("A=1; while x; do c $A; A=2; done", ["c", "$A"], True),
    ("A=1; if x; then A=2; else c $A; fi", ["c", "$A"], True),
    ("A=1; [ x ] && A=2; c $A", ["c", "$A"], False),
    ("A=1 && c $A", ["c", "1"], False),
    ("[[ a && b ]] || c", ["c"], True),
    ("case x in a|b) c 1;; *) c 2;; esac", ["c", "2"], True),
    ("f() { c 1; }", ["c", "1"], True),
    ("function f { c 1; }", ["c", "1"], True),
    ("(cd x && c 1)", ["c", "1"], False),
    ("i=1; ((i++)); c $i", ["c", "$i"], False),
    ("read A; c $A", ["c", "$A"], False),
    ("A=$(x \")\" '(' `y`); c $A", ["c", "$(x \")\" '(' `y`)"], False),
    ("c {1..4} $1 $@ `x` <(y)", ["c", "{1..4}", "$1", "$@", "`x`", "<(y)"], False),
]


@pytest.mark.parametrize(("text", "expected", "conditional"), SHELL)
def test_shell_text(text: str, expected: list[str], conditional: bool) -> None:
    command = [command for command in evaluate(text).commands if command.argv[0].text == "c"][-1]
    assert [word.text for word in command.argv] == expected
    assert command.conditional is conditional
    for word in command.argv:
        assert bool(word.unresolved) is any(mark in word.text for mark in ("$", "`", "{", "<")) or "'" in text


def test_exports() -> None:
    text = "A=1; export A B=2; declare -x C=3; D=4; export E=$(x); set -a; F=5; unset B\nG=6 c"
    command = evaluate(text, {"H": "0"}).commands[-1]
    assert command.environ == {"A": "1", "C": "3", "F": "5", "G": "6"}
    assert command.unresolved == {"E": "$(x)"}
    assert command.unset == {"B"}


@pytest.mark.parametrize("text", ["c 'x", 'c "x', "c $(x", "c ${x", "c `x", "A=(1", "c >", "c <<(x"])
def test_text_that_no_shell_accepts_is_reported(text: str) -> None:
    result = evaluate(f"true\n{text}\n")
    assert not result.commands
    assert [part.line for part in result.unread] == [2]


@pytest.mark.parametrize("text", ["#!/usr/bin/python3\nimport x\n", "a\0b", "x" * (2 << 20)])
def test_what_is_no_job_script(text: str) -> None:
    with pytest.raises(NotAJobScript):
        read_job_script(text)


@pytest.mark.parametrize(
    "line",
    [
        'bash -c "torchrun --nnodes 2 --node-rank $R --master-addr n1 t.py; echo done"',
        'docker run img bash -c "cd /job && torchrun --nnodes 2 --node-rank $R --master-addr n1 t.py | tee log"',
        'ssh $HOST "cd $PWD && torchrun --nnodes 2 --node-rank $R --master-addr n1 t.py"',
        'for i in 0 1; do ssh h$i "cd /job; torchrun --nnodes 2 --node-rank $i --master-addr n1 t.py" & done; wait',
    ],
)
def test_a_launch_in_the_text_of_a_shell_is_read_also_where_a_variable_is_not_known(line: str) -> None:
    line_read = read_job_script(f"#!/bin/bash\n{line}\n").job_line
    assert line_read is not None and line_read.program == "t.py" and "program" not in line_read.unresolved
    assert line_read.launchers[-1].launcher == "torchrun" and line_read.launchers[-1].options["master-addr"] == ("n1",)


@pytest.mark.parametrize(
    "line",
    ['ssh h1 "pkill -f torchrun"', 'bash -c "echo torchrun now"', 'ssh $H "pip install deepspeed"', "ssh $H ls"],
)
def test_the_text_of_a_shell_that_only_names_a_launcher_starts_nothing(line: str) -> None:
    assert read_job_script(f"#!/bin/bash\n{line}\n").launch_lines == ()


def test_a_script_with_dos_line_breaks_is_refused_with_its_line() -> None:
    """bash reads ``n1\\r`` there; sbatch: "Batch script contains DOS line breaks". In a comment they do no harm."""
    text = "#!/bin/bash\r\n#SBATCH -N 2\r\nexport MASTER_ADDR=n1\r\ntorchrun --nnodes 2 train.py\r\n"
    script = read_job_script(text)
    assert (script.refused, script.job_line) == (True, None)
    assert [(part.line, "carriage return" in part.reason) for part in script.unread] == [(3, True)]
    harmless = read_job_script("#!/bin/bash\r\n# a note\r\ntorchrun --nnodes 2 train.py\n")
    assert not harmless.refused and harmless.job_line


@pytest.mark.parametrize(
    ("directives", "command", "nodes"),
    [
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun python train.py", 2),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 4 python train.py", 1),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 5 python train.py", 2),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 2 --map-by ppr:1:node python train.py", 2),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 2 --map-by node python train.py", None),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np $N python train.py", None),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 2 --npersocket 1 python train.py", None),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4", "mpirun -np 2 --loadbalance python train.py", None),
        ("#SBATCH -N 2-4\n#SBATCH --ntasks-per-node=4", "mpirun python train.py", None),
        ("#SBATCH -N 2", "mpirun python train.py", None),
        ("#PBS -l select=2:mpiprocs=4", "mpirun -np 8 --hostfile $PBS_NODEFILE python train.py", 2),
        ("#PBS -l select=2:mpiprocs=4", "mpirun -np 8 --hostfile hosts python train.py", None),
        ('#BSUB -n 8\n#BSUB -R "span[ptile=4]"', "mpirun python train.py", 2),
    ],
)
def test_mpirun_fills_the_slots_of_its_job(directives: str, command: str, nodes: int | None) -> None:
    """As mpirun(1) of Open MPI 4.1 says under "Mapping": by slot."""
    [line] = read_job_script(f"#!/bin/bash\n{directives}\n{command}\n", {}).launch_lines
    assert line.nodes == nodes


@pytest.mark.parametrize(
    ("text", "folder", "is_made"),
    [
        ("mkdir out; cd out", "out", True),
        ("mkdir -p a/b; cd a", "a", True),
        ("cd a; mkdir b; cd b", "a/b", True),
        ("mkdir -p $D; cd out", "out", True),
        ("mkdir logs; cd out", "out", False),
        ("cd out || exit", "out", False),
    ],
)
def test_a_folder_that_the_script_makes(text: str, folder: str, is_made: bool) -> None:
    line = read_job_script(f"{text}\ntorchrun t.py\n").job_line
    assert line is not None
    assert (line.start_folder, line.makes_folder) == (folder, is_made)

"""A set-up of the script that its launch line does not get is a warning; one that it may get is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Severity
from tests.lint.launch_report import lint_report

HEAD = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\n"
RUN = "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n1:29501 train.py\n"
MPI = "export MASTER_PORT=29700\nmpirun -np 2 -x MASTER_PORT -x MASTER_ADDR=n1 python train.py\n"
SSH = (
    'for r in 0 1; do\n  ssh -n n$r "{0}cd /nfs/p && {1} --nnodes 2 --node_rank $r --nproc_per_node 8'
    ' --master_addr n0 --master_port 29777 train.py" &\ndone\nwait\n'
)
VENV = "#!/bin/bash\nsource /opt/envs/llm/bin/activate\n"

LOST = {
    "conda": (
        HEAD + "conda activate llm\n" + RUN,
        "conda activate is not given a function of its shell; expected eval",
    ),
    "env bash": ("#!/usr/bin/env bash\nmamba activate llm\n" + RUN, "mamba activate is not given a function"),
    "modules": (
        HEAD + "module load gcc/12 openmpi/4.1.5\nmodule load ucx\nmodule purge\n" + MPI,
        "mpirun is not given the modules of the script; expected module load gcc/12 openmpi/4.1.5 ucx, behind line 5",
    ),
    "venv": (
        VENV + SSH.format("", "torchrun"),
        "ssh is not given the Python of the script; expected source /opt/envs/llm/bin/activate, before torchrun on",
    ),
}
GIVEN = {
    "conda: its file": HEAD + "source ~/miniconda3/etc/profile.d/conda.sh\nconda activate llm\n" + RUN,
    "conda: its hook": HEAD + 'eval "$(conda shell.bash hook)"\nconda activate llm\n' + RUN,
    "conda: the same line": HEAD + ". /opt/conda/etc/profile.d/conda.sh && conda activate llm\n" + RUN,
    "conda: ~/.bashrc": HEAD + "source ~/.bashrc\nconda activate llm\n" + RUN,
    "conda: a module": HEAD + "module load anaconda3\nconda activate llm\n" + RUN,
    "conda: a login shell": HEAD.replace("bash", "bash -l", 1) + "conda activate llm\n" + RUN,
    "conda: an interactive shell": HEAD.replace("bash", "bash -i", 1) + "conda activate llm\n" + RUN,
    "conda: no script of its own": "conda activate llm\n" + RUN,
    "conda: on a condition": HEAD + "if [ -d ~/envs ]; then conda activate llm; fi\n" + RUN,
    "conda: another word": HEAD + "conda run -n llm python prepare.py\n" + RUN,
    "modules: purged first": HEAD + "module purge\nmodule load openmpi/4.1.5\n" + MPI,
    "modules: loaded on a condition": HEAD + "ml load gcc\nml purge\nif true; then\n  ml openmpi/5\nfi\n" + MPI,
    "modules: a file": HEAD + "module load gcc\nmodule purge\nsource env.sh\n" + MPI,
    "modules: a folder": HEAD + "module load gcc\nmodule purge\nexport PATH=/opt/ompi/bin:$PATH\n" + MPI,
    "modules: a path": HEAD + "module load gcc\nmodule purge\n" + MPI.replace("mpirun", "/opt/ompi/bin/mpirun"),
    "modules: only listed": HEAD + "module list\nmodule purge\n" + MPI,
    "venv: there, too": VENV + SSH.format("source /opt/envs/llm/bin/activate && ", "torchrun"),
    "venv: by its path": VENV + SSH.format("", "/opt/envs/llm/bin/torchrun"),
    "venv: PATH there": VENV + SSH.format("export PATH=/opt/envs/llm/bin:\\$PATH && ", "torchrun"),
    "venv: in a container": VENV + SSH.format("", "docker run --gpus all --network host --shm-size 8g x torchrun"),
    "venv: on this host": VENV + "torchrun --nproc_per_node 8 train.py\n",
    "venv: by Slurm": HEAD + "source /opt/envs/llm/bin/activate\n" + RUN,
}


def findings(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Severity, str]]:
    (folder / "run.sh").write_text(text)
    monkeypatch.chdir(folder)
    outcomes = [one for one in lint_report(["run.sh"]).outcomes if one.check == "launch-option-refused"]
    return [(one.severity_of(finding), str(finding)) for one in outcomes for finding in one.findings]


@pytest.mark.parametrize("name", LOST)
def test_what_a_line_does_not_get_is_a_warning(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = LOST[name]
    [(severity, told)] = findings(text, tmp_path, monkeypatch)
    assert severity is Severity.WARNING
    assert told.startswith(expected)


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_line_may_get_is_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(GIVEN[name], tmp_path, monkeypatch) == []

"""`doctor watch -- COMMAND` around commands that train nothing: what passes through, and what is said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from doctor.watch import folder
from doctor.watch.command import WatchedCommand
from tests.watch.running import LIMIT, doctor_watch

pytestmark = pytest.mark.timeout(LIMIT)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_and_the_streams_of_the_command_pass_through(script: str, code: int, tmp_path: Path) -> None:
    watched = doctor_watch("sh", "-c", f"echo out; echo err >&2; {script}", folder=tmp_path)
    assert watched.code == code
    assert watched.stdout == "out\n" and watched.stderr.startswith("err\n")
    assert "no rank was seen" in watched.stderr and not watched.report


def test_a_signal_reaches_the_command_and_its_answer_is_the_exit_code() -> None:
    script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    argv = [sys.executable, "-m", "doctor", "watch", "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as doctor:
        assert doctor.stdout and doctor.stdout.readline() == "ready\n"
        doctor.send_signal(signal.SIGTERM)
        out, _ = doctor.communicate(timeout=LIMIT)
    assert doctor.returncode == 7 and out == "caught\n"


def test_a_program_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    watched = doctor_watch("/no/such/program", folder=tmp_path)
    assert watched.code == 78
    assert watched.stderr == "doctor: /no/such/program: No such file or directory\n"


def test_where_no_folder_can_be_made_the_command_runs_unwatched(tmp_path: Path) -> None:
    """Neither full places nor another user's folder of the same name keep a job from starting."""
    script = (
        "import sys; from doctor.watch import folder; folder.PLACES = ('/no/such/place',); folder.tempfile.tempdir ="
    )
    script += " '/proc/nowhere'; sys.argv = ['doctor', 'watch', '--', 'sh', '-c', 'echo out; exit 3']; "
    script += "from doctor.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr.startswith("doctor watch: not watched: no folder for the ranks can be made: ")


def test_nothing_to_watch_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, "-m", "doctor", "watch"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and done.stderr.startswith("doctor: nothing to watch: expected a command after --")


def test_the_users_own_sitecustomize_runs_and_sees_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = (__name__, __file__)\n")
    arguments = [sys.executable, "-c", "import sys, sitecustomize; print(*sys.own, sitecustomize.__file__)"]
    watched = doctor_watch(*arguments, folder=tmp_path, PYTHONPATH=str(tmp_path))
    own_name = str(tmp_path / "sitecustomize.py")
    assert watched.stdout.split() == ["sitecustomize", own_name, own_name]


def test_nothing_of_torch_is_imported_where_the_program_imports_none(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", "import sys; print('torch' in sys.modules, 'doctor_watch_hook' in sys.modules)"]
    assert doctor_watch(*arguments, folder=tmp_path).stdout == "False True\n"


def test_the_folder_of_the_ranks_is_gone_afterwards(tmp_path: Path) -> None:
    watched = doctor_watch("sh", "-c", 'echo "$DOCTOR_WATCH"; ls "$DOCTOR_WATCH"', folder=tmp_path)
    folder, *files = watched.stdout.split()
    assert files == ["copies", "data-hooks", "digests", "hook", "lock", "ranks"] and not os.path.exists(folder)


def test_a_full_place_is_passed_over_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "PLACES", ("/dev/full", "/proc", str(tmp_path)))
    watch_folder = folder.WatchFolder.create()
    assert watch_folder.path.parent == tmp_path
    watch_folder.remove()


def test_ending_the_job_ends_the_workers_of_ranks_that_are_ended_first(tmp_path: Path) -> None:
    """A rank that ends at SIGTERM leaves its loader workers to nobody; a rank need not be the command's child."""
    script = f"(trap '' HUP; sleep 1000) & echo $! > {tmp_path}/worker; wait"
    rank = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    command = WatchedCommand(["sleep", "1000"], os.environ)
    worker = tmp_path / "worker"

    def both_are_there() -> bool:
        return worker.exists() and bool(worker.read_text())

    end_of_wait = time.monotonic() + LIMIT
    while not both_are_there() and time.monotonic() < end_of_wait:
        time.sleep(0.01)
    threading.Thread(target=rank.wait).start()  # as its launcher would
    command.end([rank.pid])
    assert command.run(lambda: False) == 128 + signal.SIGTERM
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(worker.read_text())).status() == psutil.STATUS_ZOMBIE


def test_a_signal_that_ended_the_command_first_does_not_end_its_watcher() -> None:
    """A terminal's Ctrl-C reaches both; the command has ended before its watcher takes the signal."""
    command = WatchedCommand(["sh", "-c", "exit 9"], os.environ)

    def press() -> bool:
        command.process.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return False

    assert (command.run(press), command.interrupted) == (9, signal.SIGINT)


def test_started_once_for_each_rank_one_process_watches_and_all_pass_their_exit_codes(tmp_path: Path) -> None:
    """A launcher's environment: the processes share one folder on the host."""
    processes = []
    for rank in range(3):
        environ = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3"}
        environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
        all_are_there = f"touch {tmp_path}/{rank}; while [ $(ls {tmp_path} | wc -l) -lt 3 ]; do sleep 0.1; done"
        script = f'echo "$DOCTOR_WATCH"; {all_are_there}; exit {rank}'
        argv = [sys.executable, "-m", "doctor", "watch", "--", "sh", "-c", f"{script}"]
        processes.append(subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=LIMIT) for process in processes]
    assert [process.returncode for process in processes] == [0, 1, 2]
    assert len({out for out, _ in outputs}) == 1
    assert sum("no rank was seen" in err for _, err in outputs) == 1


GROUPS = """
import faulthandler, torch, torch.distributed as dist, torch.distributed.algorithms.join
faulthandler.dump_traceback_later(40, exit=True)
for number in range(60):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    with torch.distributed.algorithms.join.Join([model]):  # at its end the parameters are broadcast from C++
        model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    dist.destroy_process_group()
    del model
print("over")
"""


def test_groups_of_gloo_end_right_behind_a_call_whose_tensors_the_hook_has_seen(tmp_path: Path) -> None:
    """Gloo's threads need Python's lock to free such tensors, and the end of a group waits for them with the lock."""
    watched = doctor_watch(sys.executable, "-c", GROUPS, folder=tmp_path)
    assert (watched.code, watched.stdout) == (0, "over\n"), watched.stderr

"""Tracebacks as they lie in logs: behind labels, with the head or the end cut off, and of other processes."""

from __future__ import annotations

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.excerpter.tracebacks import MAX_LABELS, TRACEBACK_HEAD, OpenTracebacks, is_of_program
from doctor.watch.long_wait import program_line
from tests.diagnose.test_rules import logs

MISMATCH = "RuntimeError: the shard of this rank has 8 rows, and the index of the data set names 4 of them"
TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/train.py", line 10, in main
    step(batch)
{MISMATCH}
"""


def labelled(label: str, text: str = TRACEBACK) -> str:
    """Each line of the text behind the label, in which ``#`` is the number of the line."""
    lines = enumerate(text.splitlines())
    return "".join(f"{label.replace('#', f'{number:03}')}{line}\n" for number, line in lines)


def summary(diagnosis: Diagnosis) -> list[tuple[str, int | None, str]]:
    return [(cause.signature, end.rank, end.host) for cause in diagnosis.causes for end in cause.culprits]


@pytest.mark.parametrize(
    ("label", "rank", "host"),
    [
        ("192.168.1.51: ", None, "192.168.1.51"),  # pdsh
        ("> [rank3]: ", 3, ""),  # quoted in an issue
        ("1779264164797\t2026-05-20T08:02:44.#Z\t", None, ""),  # a collector of logs
        ("2026-05-20T08:02:44.#456789Z ", None, ""),  # kubectl logs --timestamps
        ("stderr: ", None, ""),
        ("[trainer-0] ", None, ""),
        ("trainer-0  | ", None, ""),  # docker compose
        ("| ERROR | 12:00:00.# | ", None, ""),
    ],
)
def test_a_label_that_is_not_known_is_learned_from_the_first_line_of_a_traceback(
    label: str, rank: int | None, host: str
) -> None:
    diagnosis = logs(train="step 1\n" + labelled(label) + "NCCL\n")
    assert summary(diagnosis) == [("program-failed", rank, host)]
    assert diagnosis.causes[0].evidence[0].text.endswith(MISMATCH[-40:])


@pytest.mark.parametrize("head", ["  0%|   | 0/800 [00:22<?, ?it/s]", "2026-11-20 12:00:00,123 ERROR train: ", "E: "])
def test_what_only_the_first_line_of_a_traceback_begins_with_is_no_label(head: str) -> None:
    text = f"{head}{TRACEBACK}{head}done\nDone\n"
    assert summary(logs(train=text)) == [("program-failed", None, "")]
    assert logs(train=text).causes[0].evidence[0].text == MISMATCH


def test_labels_without_end_are_learned_up_to_a_bound() -> None:
    tracebacks = OpenTracebacks()
    for number in range(5 * MAX_LABELS):
        tracebacks.open("x" * (number % 97) + f"{chr(0x4E00 + number)}] {TRACEBACK_HEAD}")
    assert len(tracebacks) <= MAX_LABELS + 1 and not tracebacks.labels_left


def test_two_hosts_that_pdsh_mixes_are_two_processes() -> None:
    pairs = zip(labelled("10.0.0.1: ").splitlines(), labelled("10.0.0.2: ").splitlines(), strict=True)
    diagnosis = logs(train="".join(f"{one}\n{other}\n" for one, other in pairs))
    assert summary(diagnosis) == [("program-failed", None, "10.0.0.1"), ("program-failed", None, "10.0.0.2")]


def test_a_traceback_whose_first_line_is_cut_off_is_read_at_the_beginning_of_a_log_alone() -> None:
    tail = TRACEBACK.split("\n", 1)[1]
    assert summary(logs(train=tail)) == [("program-failed", None, "")]
    frames = tail.replace(MISMATCH, "Done")
    assert not logs(train=frames).failed and not logs(train="step 1\n" * 5 + frames).failed


def test_a_log_that_ends_within_a_traceback_shows_a_failure_and_not_why() -> None:
    cut = TRACEBACK.rsplit("\n", 2)[0]
    diagnosis = logs(train="step 1\n" + cut + "\n")
    assert diagnosis.failed and not diagnosis.causes and diagnosis.undecidable
    assert summary(logs(train=TRACEBACK + cut)) == [("program-failed", None, "")]


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: The Inner error is reported as above.",
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading.",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "EOFError",
    ],
)
def test_an_exception_that_only_reports_another_process_accuses_nobody(message: str) -> None:
    diagnosis = logs(train=TRACEBACK.replace(MISMATCH, message))
    assert diagnosis.failed and not diagnosis.causes
    both = logs(train=TRACEBACK + TRACEBACK.replace(MISMATCH, message))
    assert [cause.signature for cause in both.causes] in (["program-failed"], [])


def test_the_process_in_which_ray_raised_the_exception_is_its_own() -> None:
    text = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    ray.get(x)
ray.exceptions.RayTaskError(ValueError): ray::WorkerDict.update() (pid=77, ip=10.0.0.3, actor_id=abc)
  File "/srv/fsdp.py", line 3, in update
    raise ValueError("bad batch")
ValueError: bad batch
"""
    assert summary(logs(driver=text)) == [("python-exception", None, "10.0.0.3")]


FAILED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {}) local_rank: {} (pid: 7) of binary: x\n"
)


def test_the_only_worker_that_the_launcher_saw_fail_is_that_of_an_exception_without_a_label() -> None:
    (cause,) = logs(train=TRACEBACK + FAILED.format(1, 3)).causes
    assert [end.label for end in cause.culprits] == ["local rank 3"]
    (alone,) = logs(train="step 1\n" + FAILED.format(1, 3)).causes
    assert (alone.signature, alone.confidence) == ("worker-exited", "likely")


def row(rank: int, code: int, second: int) -> str:
    return (
        f"  time      : 2026-09-07_13:02:{second:02}\n  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 1469{rank})\n  error_file: <N/A>\n  traceback : x\n"
    )


def listed(others: str, first: str) -> str:
    return f"train.py FAILED\nFailures:\n[1]:\n{others}Root Cause (first observed failure):\n[0]:\n{first}"


@pytest.mark.parametrize(("later", "is_named"), [(31, False), (1, True)])
def test_a_worker_that_torchrun_killed_half_a_minute_after_another_failed_is_innocent(
    later: int, is_named: bool
) -> None:
    diagnosis = logs(train=listed(row(0, -9, 5 + later), row(1, 1, 5)))
    assert ((0, "torchrun-sigkill") in {(end[1], end[0]) for end in summary(diagnosis)}) == is_named
    assert diagnosis.failed


QUOTED = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-03-05_10:00:00
  host      : node1
  rank      : 8 (local_rank: 0)
  exitcode  : 1 (pid: 100)
  error_file: /tmp/torchelastic_x/none_y/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
    File "/opt/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
    File "/srv/train.py", line 329, in main
      raise ValueError("not this")
  {0}

============================================================
"""
"""How torchrun quotes the traceback of a worker whose program has @record; the form of pytorch/pytorch issue 73465."""


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        (MISMATCH, "program-failed"),
        ("KeyError: 'input_ids'", "exception-of-absence"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda-oom"),
    ],
)
def test_a_traceback_that_torchrun_quotes_is_that_of_the_worker_in_the_list(error: str, signature: str) -> None:
    assert summary(logs(job=QUOTED.format(error))) == [(signature, 8, "node1")]


@pytest.mark.parametrize(
    "error", ["ConnectionError: timed out", "RuntimeError: Worker 3 has failed, see the log above"]
)
def test_what_a_quoted_traceback_reports_of_others_accuses_nobody_for_certain(error: str) -> None:
    diagnosis = logs(job=QUOTED.format(error))
    assert not [
        cause for cause in diagnosis.causes if cause.confidence == "certain" and cause.signature != "python-exception"
    ]


def test_a_list_of_failures_alone_is_a_failure_and_tells_whose_output_is_missing() -> None:
    diagnosis = logs(train=listed(row(1, 1, 5), row(0, 1, 5)))
    assert diagnosis.undecidable and "rank 0" in diagnosis.undecidable.reason
    assert any("the output of rank 0" in text for text in diagnosis.undecidable.needed)


STEPS = {
    "trainer": "{{'loss': 2.{0}, 'epoch': 0.{0}}}",
    "megatron": " [2026-11-20 12:00:0{0}] iteration        {0}/  500 | lm loss: 2.{0}E+00 |",
    "titan": "[rank0]:[titan] 2026-11-20 12:00:0{0},123 - root - INFO - step: {0}  loss: 2.{0}",
    "engine": "INFO 11-20 12:00:0{0} [loggers.py:111] Engine 000: Avg generation throughput: 4{0}.1 tokens/s",
}
HANDLED = (
    TRACEBACK.replace(MISMATCH, "ConnectionResetError: [Errno 104] Connection reset by peer"),
    "WARNING retry 1/5 after ConnectionResetError: [Errno 104] Connection reset by peer\n",
    "EOFError\n",
    TRACEBACK.rsplit("\n", 2)[0] + "\n",
    '  File "/srv/x.py", line 3, in f\n    g()\n',
    TRACEBACK,
    "RuntimeError: sample 17 is damaged; skipping it\n",
)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("noise", HANDLED)
def test_what_a_program_handles_and_goes_on_is_at_most_possible(step: str, noise: str) -> None:
    before, behind = ("".join(step.format(number) + "\n" for number in numbers) for numbers in ((1, 2, 3), (4, 5, 6)))
    diagnosis = logs(train=before + noise + behind)
    assert all(cause.confidence == "possible" for cause in diagnosis.causes)
    assert diagnosis.undecidable is None and not diagnosis.waiting


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("/job/train.py", True),
        ("/opt/lib/train.py", True),
        ("<ipython-input-3-1a2b>", True),
        ("/usr/lib/python3.11/threading.py", False),
        ("/usr/lib64/python3.9/threading.py", False),  # of RHEL, openEuler and SUSE
        ("/opt/conda/lib/python3.10/site-packages/torch/_ops.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
    ],
)
def test_a_frame_is_of_the_program_or_of_a_library(path: str, is_ours: bool) -> None:
    assert is_of_program(path) is is_ours
    assert (program_line(f'File "{path}", line 7 in fit') != "") is is_ours


def ignored(label: str, announced: str) -> str:
    """A traceback that the interpreter handles, behind the line that says so."""
    lines = [announced, "Traceback (most recent call last):", '  File "/app/a.py", line 3, in __del__']
    return "".join(f"{label}{line}\n" for line in (*lines, "AttributeError: 'A' object has no attribute 'b'"))


@pytest.mark.parametrize("label", ["", "[rank1]: ", "(RayWorkerVllm pid=14289) "])
@pytest.mark.parametrize("announced", ["Exception ignored in: <function A.__del__ at 0x7f>", "--- Logging error ---"])
def test_an_exception_that_the_interpreter_ignores_is_no_fault(label: str, announced: str) -> None:
    assert not logs(run=ignored(label, announced) + f"{label}step 3 loss 2.1\n").failed
    behind = f'{label}Traceback (most recent call last):\n{label}  File "/app/t.py", line 9\n{label}KeyError: 7\n'
    (cause,) = logs(run=ignored(label, announced) + behind).causes
    assert "KeyError: 7" in cause.evidence[0].text


def test_an_ignored_exception_of_one_rank_is_none_of_another() -> None:
    text = "[rank0]: Exception ignored in: <function A.__del__ at 0x7f>\n"
    text += '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/app/t.py", line 9\n[rank1]: KeyError: 7\n'
    (cause,) = logs(run=text).causes
    assert [culprit.rank for culprit in cause.culprits] == [1]


@pytest.mark.parametrize("folded", ["", " [repeated 7x across cluster]"])
@pytest.mark.parametrize(
    ("head", "pid"),
    [
        ("Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::W.f() (pid=22, ip=10.39.1.2)", "22"),
        ("Traceback (most recent call last):", "21"),
    ],
)
def test_a_traceback_in_ray_s_output_is_of_the_process_that_raised_it(head: str, pid: str, folded: str) -> None:
    lines = [f"INFO step {number}" for number in range(9)]
    lines += [head, '  File "/app/t.py", line 9, in f', "    raise KeyError(7)", "KeyError: 7"]
    text = "".join(f"(Learner pid=21, ip=10.39.1.2) {line}{folded}\n" for line in lines)
    (cause,) = logs(run=text).causes
    assert [(culprit.label, culprit.host) for culprit in cause.culprits] == [(f"pid {pid}", "10.39.1.2")]
    assert "KeyError: 7" in cause.evidence[0].text

"""What a program survived is no certain cause of its end, and what it prints as its data is no failure of its own."""

from __future__ import annotations

import re

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.ask_hosts import LogRequest, _fixed_fields
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import BLOCK, CLOSED, MATCHER, SIGNATURES, TIMED_OUT, logs, named
from tests.watch.loss_samples import LINES

FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
CAUGHT = 'ERROR skipping a sample\nTraceback (most recent call last):\n  File "t.py", line 1\nValueError: bad batch\n'


def steps(first: int, last: int, form: str = "step {0} loss 2.31\n") -> str:
    return "".join(form.format(number) for number in range(first, last))


def confidences(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(cause.signature, cause.confidence) for cause in diagnosis.causes]


@pytest.mark.parametrize(
    "form",
    [
        "step {0} loss 2.31\n",
        "2026-11-20 12:00:{0} INFO iteration {0} done\n",
        "{{'loss': 2.31, 'epoch': 0.{0}}}\n",
        " 45%|####5     | {0}/100 [00:42<00:51, 10.61it/s]\n",
        "训练损失：2.{0}\n",
    ],
)
@pytest.mark.parametrize("fault", [FAULT, CAUGHT], ids=["illegal access", "caught"])
def test_an_error_after_which_the_process_goes_on_is_only_possible(fault: str, form: str) -> None:
    diagnosis = logs(train=steps(10, 20, form) + fault + steps(20, 60, form))
    ((_, confidence),) = confidences(diagnosis)
    assert confidence == "possible" and diagnosis.causes[0].summary.endswith("; the process went on after it")
    ended = logs(train=steps(10, 20, form) + fault)
    assert [cause.confidence for cause in ended.causes] == ["certain"]


@pytest.mark.parametrize(
    "line", [row for row in LINES if row[2] is not None and not row[1].startswith("[INFO]")], ids=lambda row: row[0]
)
def test_the_step_of_each_framework_is_progress(line: tuple[str, str, float | None, int | None, int | None]) -> None:
    before = re.sub(r"\d+(?=/\d+ \[)", "1", line[1])
    assert confidences(logs(train=f"{FAULT}{before}\n{line[1]}\n"))[0][1] == "possible"


def test_a_progress_bar_that_the_error_closed_is_no_progress() -> None:
    bars = "  0%|          | 0/625 [00:01<?, ?it/s]\n Epoch 0:  9%|#    | 3/40 [00:07<01:20, 2.21s/it, loss=2.1]\n"
    assert confidences(logs(train=FAULT + bars)) == [("cuda-illegal-access", "certain")]
    assert confidences(logs(train=FAULT + bars + bars)) == [("cuda-illegal-access", "certain")]
    assert confidences(logs(train=FAULT + bars + bars.replace("3/40", "4/40")))[0][1] == "possible"


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]: ValueError: bad batch\n" + steps(5, 9),  # torch prints it when nothing catches it: stdout came later
        FAULT + "ERROR failed at step 20\n",
        FAULT + "RuntimeError: step 20 timed out\n",
        "2026-11-20 12:00:09 " + FAULT + steps(1, 8, "2026-11-20 12:00:0{0} step {0} loss 1\n"),
        steps(1, 9) + FAULT,
    ],
    ids=["uncaught", "an error at a step", "a timeout at a step", "steps before it, printed later", "none after it"],
)
def test_a_step_that_shows_no_progress_after_the_error_takes_nothing_away(text: str) -> None:
    assert [confidence for _, confidence in confidences(logs(train=text))] == ["certain"]


def test_steps_of_another_rank_are_no_progress_of_the_one_that_failed() -> None:
    label = "[default{0}]:"
    text = label.format(1) + FAULT + steps(1, 9, label.format(0) + " step {0} loss 1\n")
    assert confidences(logs(train=f"{label.format(0)}{CLOSED}\n{text}"))[-1:] != [("cuda-illegal-access", "possible")]
    apart = logs(rank_0=steps(1, 9), rank_1=FAULT)
    assert [(cause.confidence, cause.culprits[0].rank) for cause in apart.causes] == [("certain", 1)]


def test_a_rank_that_survived_an_error_is_not_named_for_the_one_that_fell_silent() -> None:
    waits = {f"rank_{rank}": steps(1, 30) + TIMED_OUT for rank in (1, 2)}
    diagnosis = logs(rank_0=CAUGHT + steps(1, 30) + TIMED_OUT, rank_3=steps(1, 20), **waits)
    assert named(diagnosis) == [("rank-silent", "silence", [3])]


def test_the_silent_rank_that_had_printed_an_error_is_named_with_it() -> None:
    """Its steps may have been kept back until it ended: then the error is what ended it."""
    diagnosis = logs(rank_0=TIMED_OUT, rank_1=FAULT + steps(1, 9), rank_2=TIMED_OUT)
    assert named(diagnosis) == [("cuda-illegal-access", "silence", [1])]
    assert confidences(diagnosis) == [("cuda-illegal-access", "likely")]


def test_a_rank_that_its_launcher_saw_fail_did_not_survive_its_error() -> None:
    block = BLOCK.replace("'-15' if rank", "'1'")
    diagnosis = logs(
        rank_1=FAULT + steps(1, 9), rank_2=steps(1, 9), torchrun=f"Root Cause (first observed failure):\n{block}"
    )
    assert ("cuda-illegal-access", "certain") in confidences(diagnosis)


ENDS = {
    "Hugging Face": "{'train_runtime': 24.5341, 'train_samples_per_second': 4.0, 'train_loss': 2.1, 'epoch': 3.0}",
    "Hugging Face, metrics": "  train_runtime            = 0:00:24.53",
    "MindFormers": "2026-11-20 12:00:00,000 - mindformers[base_trainer.py:900] - INFO - ....Training Over!....",
    "Lightning": "`Trainer.fit` stopped: `max_epochs=3` reached.",
    "torchtitan": "[titan] 2026-11-20 12:00:00,000 - root - INFO - Training completed",
    "Chinese": "2026-11-20 12:00:00 INFO 训练完成，用时 3 小时",
    "Chinese, ended": "训练结束",
}
ENDS_OF_PROCESSES = {
    "DeepSpeed": "[2026-11-20 12:00:00,000] [INFO] [launch.py:351:main] Process 4711 exits successfully.",
    "vLLM": "INFO:     Application shutdown complete.",
}


@pytest.mark.parametrize("end", (ENDS | ENDS_OF_PROCESSES).values(), ids=ENDS | ENDS_OF_PROCESSES)
def test_the_good_end_of_each_framework_is_known(end: str) -> None:
    assert exit_code(logs(train=f"{steps(1, 5)}{end}\n")) == 0


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_good_end_undoes_the_error_before_it_and_none_behind_it(end: str) -> None:
    assert exit_code(logs(train=f"{CAUGHT}{end}\n")) == 0
    assert confidences(logs(train=f"{end}\n{FAULT}")) == [("cuda-illegal-access", "certain")]


@pytest.mark.parametrize("end", ENDS_OF_PROCESSES.values(), ids=ENDS_OF_PROCESSES)
def test_what_is_printed_at_a_bad_end_as_well_undoes_nothing(end: str) -> None:
    """uvicorn shuts vLLM down in order after its engine has failed; DeepSpeed says so of one process of several."""
    assert confidences(logs(train=f"{FAULT}{end}\n")) == [("cuda-illegal-access", "certain")]


@pytest.mark.parametrize("text", ["第 3 轮训练完成", "训练未完成", "epoch 2 训练结束", "训练异常结束"])
def test_the_end_of_an_epoch_is_not_that_of_the_run(text: str) -> None:
    assert exit_code(logs(train=f"{steps(1, 5)}{text}\n")) == 12


@pytest.mark.parametrize(
    "head",
    [
        "sample: ",
        "[sample 3] ",
        "2026-11-20 12:00:00 INFO sample at step 30: ",
        "[2026-11-20 12:00:00] Generated text > ",
        "prompt: ",
        "生成样本：",
    ],
)
def test_what_a_model_wrote_is_no_failure_of_the_program(head: str) -> None:
    assert not logs(train=f"step 30 loss 2\n{head}{FAULT}").failed


@pytest.mark.parametrize(
    "head", ["", "ERROR while loading sample: ", "2026-11-20 12:00:00 ERROR sample 7: ", "[rank1]: ", "step 30: "]
)
def test_an_error_that_is_no_such_text_counts(head: str) -> None:
    assert confidences(logs(train=f"{head}{FAULT}")) == [("cuda-illegal-access", "certain")]


def test_no_text_of_another_signature_is_taken_for_printed_text() -> None:
    for signature in SIGNATURES.values():
        for line in (line for sample in signature.samples for line in sample.text.split("\n")):
            ids = {item.id for item, pattern in MATCHER.candidates(line.encode()) if pattern.regex.search(line)}
            assert signature.role == "benign" or not ids & MATCHER.benign, line


def test_hosts_are_not_asked_for_every_step() -> None:
    literals = _fixed_fields(LogRequest(places=()), SIGNATURES.values())["literals"]
    assert isinstance(literals, list) and "it/s" not in literals and "poch" not in literals


def test_what_a_run_overcame_is_a_note_at_its_file() -> None:
    for end in (
        "Training completed\n",
        "[2026-11-20 12:10:00,000] [INFO] [launch.py:351:main] Process 4711 exits successfully.\n",
    ):
        diagnosis = logs(train=steps(1, 5) + CAUGHT + steps(5, 9) + end)
        assert exit_code(diagnosis) == 0
        assert diagnosis.files[0].notes == ["1 error after which the process went on and ended well: line 8"]


def test_a_process_that_ends_well_undoes_no_error_without_progress_behind_it() -> None:
    assert confidences(logs(train=f"{FAULT}{ENDS_OF_PROCESSES['DeepSpeed']}\n")) == [("cuda-illegal-access", "certain")]


def test_a_request_that_a_server_refused_is_no_failure_of_the_server() -> None:
    refused = (
        "ERROR 03-12 08:23:28 [serving_chat.py:200] Error in preprocessing\n"
        'Traceback (most recent call last):\n  File "s.py", line 1\n'
        "ValueError: This model's maximum context length is 4096 tokens. However, you requested 9000 tokens\n"
    )
    assert logs(serve=refused).causes == ()
    after = logs(serve=refused + 'Traceback (most recent call last):\n  File "s.py", line 1\nValueError: bad\n')
    assert confidences(after) == [("python-exception", "certain")]


@pytest.mark.parametrize(
    ("signal", "signature", "action"),
    [
        ("Killed", "dataloader-worker-killed", "give-memory"),
        ("Segmentation fault", "dataloader-worker-crashed", "fix-program"),
        ("Aborted", "dataloader-worker-crashed", "fix-program"),
        ("Bus error", "shm-full", "fix-host"),
    ],
)
def test_the_signal_of_a_data_loaders_worker_decides_what_to_do(signal: str, signature: str, action: str) -> None:
    (cause,) = logs(train=f"RuntimeError: DataLoader worker (pid 25902) is killed by signal: {signal}. \n").causes
    assert (cause.signature, SIGNATURES[cause.signature].action) == (signature, action)


def test_a_line_that_ray_kept_back_is_no_progress_behind_the_death_of_an_actor() -> None:
    """Measured with ray 2.60: the driver prints deduplicated lines some seconds late, and ends by the exception."""
    died = (
        "(Trainer pid=28803) step 2 rank 1 loss 0.33\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: Trainer\n\tpid: 28803\n\tip: 192.0.2.2\n"
    )
    step = "(Trainer pid=28804) step 9 rank 0 loss 0.1{0}\n"
    (late,) = logs(driver=died + step.format(" [repeated 4x across cluster] (Ray deduplicates logs by default.")).causes
    (later,) = logs(driver=died + step.format("")).causes
    assert (late.signature, late.confidence, later.confidence) == ("ray-worker-died", "likely", "possible")

"""A failure that no signature is about is told by the name of its code, or by its exception and where it arose."""

from __future__ import annotations

import pytest

from doctor.diagnose.error_codes import _names_by_table, code_name
from doctor.diagnose.exception_actions import _table, kind_of_code
from doctor.diagnose.excerpter.excerpt import LogReader
from doctor.diagnose.excerpter.line_choice import ShapeIndex
from doctor.diagnose.render.log_values import values_in_logs
from doctor.diagnose.signature import load_signatures
from doctor.facts.xid import CATALOG, catalog
from tests.diagnose.test_rules import logs

HEAD = "Traceback (most recent call last):\n"
PROGRAM = '  File "/home/me/job/train.py", line 35, in step\n    loss = model(batch)\n'
LIBRARY = (
    '  File "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call\n    return forward()\n'
)


def labelled(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("line", "signature", "detail"),
    [
        ("NPU function error: aclrtMemcpy, error code is 507001", "npu-call-failed", "507001 ACL_ERROR_RT_TS_ERROR"),
        ("NPU function error: f, error code is 107017", "npu-call-refused", "107017 ACL_ERROR_RT_INVALID_HANDLE"),
        ("OPS function error: Mul, error code is 161002", "cann-operator-failed", "161002 ACLNN_ERR_PARAM_INVALID"),
        ("OPS function error: Mul, error code is 599999", "cann-operator-failed", "599999"),
    ],
)
def test_a_code_is_named_by_the_table_of_its_vendor(line: str, signature: str, detail: str) -> None:
    (cause,) = logs(rank2=f"RuntimeError: call:torch_npu/csrc/a.cpp:1 {line}").causes
    assert cause.signature == signature
    assert cause.summary.endswith(f" ({detail})")


@pytest.mark.parametrize("code", ["507046", "507047", "507048", "107019", "107020"])
def test_a_wait_that_timed_out_accuses_nobody(code: str) -> None:
    diagnosis = logs(
        rank2=f"RuntimeError: call:a.cpp:1 NPU function error: aclrtSynchronizeStream, error code is {code}"
    )
    assert not diagnosis.causes
    assert diagnosis.undecidable


def test_each_table_is_of_a_signature_and_its_codes_have_names() -> None:
    tables = {item.code_table for item in load_signatures().values()} - {""}
    assert tables == {"cann", "cuda", "grpc", "hccl", "http", "ibv", "mindie", "nccl", "ucs"}
    assert code_name("ibv", "12") == "12 IBV_WC_RETRY_EXC_ERR"
    assert code_name("cuda", "702").startswith("702 cudaErrorLaunchTimeout: ")


MPI_ABORTED = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"


@pytest.mark.parametrize(
    "before",
    [
        f"{HEAD}{PROGRAM}KeyError: 'lr'\n",
        'CUDA error calling "cudaMemcpy(a, b, 4, cudaMemcpyDeviceToHost)", code is 702\n',
    ],
)
def test_the_error_before_a_call_of_mpi_abort_is_of_the_rank_that_called_it(before: str) -> None:
    (cause,) = logs(main=before + MPI_ABORTED).causes
    assert cause.signature != "mpi-abort" and [culprit.rank for culprit in cause.culprits] == [2]


def test_an_exception_behind_mpi_abort_or_of_mpi_itself_accuses_nobody() -> None:
    assert not logs(main=f"{MPI_ABORTED}{HEAD}{PROGRAM}KeyError: 'lr'\n").causes
    assert not logs(
        main=f"{HEAD}{PROGRAM}mpi4py.MPI.Exception: MPI_ERR_OTHER: known error not in list\n{MPI_ABORTED}"
    ).causes


def test_an_exception_behind_the_head_of_a_logger_is_told_with_its_message() -> None:
    line = "[2024-04-18 09:09:04] CRITICAL [root, rank=3] Uncaught ValueError: shard 7 and its index do not match\n"
    (cause,) = logs(main=line).causes
    assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("exception-of-mismatch", [3])
    assert not logs(main=line.replace("CRITICAL", "WARNING")).causes


@pytest.mark.parametrize(
    ("frames", "place"), [(PROGRAM + LIBRARY, "job/train.py:35"), (LIBRARY, "modules/module.py:1751"), ("", "")]
)
def test_an_exception_is_told_with_the_place_in_the_program(frames: str, place: str) -> None:
    text = labelled(3, f"{HEAD}{frames}mylib.errors.BadShard: shard 7 has no rows")
    (cause,) = logs(main=text + labelled(1, "step 4 loss 2.1")).causes
    assert [culprit.rank for culprit in cause.culprits] == [3]
    assert f"mylib.errors.BadShard{f' at {place}' if place else ''}: shard 7 has no rows)" in cause.summary


def test_the_message_of_an_exception_is_told_where_all_ranks_print_the_same() -> None:
    same = "".join(labelled(rank, f"{HEAD}{PROGRAM}KeyError: 'a'") for rank in range(2))
    (cause,) = logs(main=same).causes
    assert cause.summary.endswith("(KeyError at job/train.py:35: 'a')")
    (cause,) = logs(main=same.replace("'a'", "'b'", 1)).causes
    assert cause.summary.endswith("(KeyError at job/train.py:35)")


def test_the_message_of_an_exception_is_bounded() -> None:
    (cause,) = logs(main=f"{HEAD}{PROGRAM}KeyError: {'x' * 4000}\n").causes
    assert cause.summary.endswith("x…)") and len(cause.summary) < 300


def test_ranks_that_fail_in_different_ways_have_no_common_exception() -> None:
    text = labelled(0, f"{HEAD}{PROGRAM}KeyError: 'a'") + labelled(1, f"{HEAD}{PROGRAM}IndexError: 7")
    (cause,) = logs(main=text).causes
    assert "train.py" not in cause.summary


def test_a_rank_whose_traceback_was_cut_is_not_silent() -> None:
    waiting = labelled(0, "RuntimeError: [gloo/transport/tcp/pair.cc:1] Connection closed by peer [10.0.0.2]:4000")
    cut = labelled(1, HEAD + PROGRAM)
    assert all(cause.signature != "rank-silent" for cause in logs(main=cut + waiting).causes)


def test_both_ends_of_a_connection_of_open_mpis_daemons_are_named() -> None:
    text = "A process or daemon was unable to complete a TCP connection\nto another process:\n"
    (cause,) = logs(main=f"{text}  Local host:    n1\n  Remote host:   n2\n").causes
    assert sorted(culprit.host for culprit in cause.culprits) == ["n1", "n2"]
    assert cause.confidence != "certain"


def test_an_excerpt_keeps_the_places_of_the_program_and_what_it_did() -> None:
    reader = LogReader(ShapeIndex([([HEAD[:-2].encode()], HEAD[:-2].encode())]), 1 << 16)  # type: ignore[no-untyped-call]
    reader.start("a.log", 0, 0, 0)  # type: ignore[no-untyped-call]
    reader.edge_lines = 0
    text = f"{HEAD}{PROGRAM}{LIBRARY}ValueError: 7\n"
    reader.read_blocks(iter([text.encode()]))  # type: ignore[no-untyped-call]
    kept = [line for _, line in reader.report()["kept"]]  # type: ignore[no-untyped-call]
    assert [line for line in kept if "File" in line] == [PROGRAM.splitlines()[0], LIBRARY.splitlines()[0]]


@pytest.mark.parametrize(
    "line",
    [
        "ERROR 07-04 23:23:23 workers.py:120] Worker pid 3283517 died, exit code: -15.",
        "2026-11-20 12:00:00,1 - trainer - CRITICAL - the quorum is lost",
        "F1120 12:00:00.123456 4711 pool.cc:12] no memory",
        "mylaunch: error: 3 of 4 ranks are not there",
        "[错误] 2026-05-01 12:00:00 训练任务异常退出",
        "错误：无法连接到主节点",
    ],
)
def test_an_error_that_no_signature_is_about_is_a_failure_without_a_cause(line: str) -> None:
    diagnosis = logs(main=f"loading\n{line}\nkilling the others\n")
    assert diagnosis.failed and not diagnosis.causes
    assert [(waiting.signature, waiting.first.line) for waiting in diagnosis.waiting] == [("error-unknown", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "ERROR: upload failed, trying again\n" + "".join(f"step {step}/90 loss 1.2\n" for step in range(4)),
        "ERROR: upload failed\n" + "waiting\n" * 30,
        "validation error 0.21, 0 errors\n",
        "共 100 条 正确: 100 错误: 0\n",
        "ERROR: upload failed\n***** train metrics *****\n{'train_runtime': 12.1, 'epoch': 1.0}\nTraining completed.\n",
    ],
)
def test_an_error_behind_which_the_program_went_on_is_no_failure(text: str) -> None:
    assert not logs(main=text).failed


@pytest.mark.parametrize(
    "line",
    [
        "[1.2] [n1:1:0] ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set",
        "[1.2] [n1:1:0] ib_iface.c:623  UCX  ERROR iface=0x25: failed to create UD QP TX wr:256: Invalid argument",
        "n1:4711:4790 [2] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
    ],
)
def test_what_a_library_may_go_on_without_is_no_certain_cause(line: str) -> None:
    (cause,) = logs(main=line).causes
    assert cause.confidence == "likely"


def test_a_process_that_reports_an_exception_of_another_is_not_at_fault() -> None:
    message = (
        "RuntimeError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt"
    )
    diagnosis = logs(main=f"{HEAD}{PROGRAM}{message}")
    assert not diagnosis.causes
    assert diagnosis.undecidable


def test_a_secret_in_the_message_of_an_exception_takes_nothing_of_the_sentence_with_it() -> None:
    (cause,) = logs(rank2=HEAD + PROGRAM + "ValueError: bad batch, token=hf_abcdefghijABCDEFGHIJ0123456789\n").causes
    assert cause.summary.endswith("(ValueError at job/train.py:35: bad batch, token=[hidden])")


CANN_FORMS = (
    "{code}: [PID: 4711] 2026-11-20-12:00:00.123.456 the call failed",
    "[PID: 4711] 2026-11-20-12:00:00.123.456 Some_Error({code}): the call failed",
    "[rank3]: {code}: 2026-11-20-12:00:00.123.456 the call failed",
)

CODES_OF_ERRORS = [code for code in _names_by_table()["cann"] if code.startswith("E")]


@pytest.mark.parametrize("form", CANN_FORMS)
def test_no_code_of_cann_is_taken_for_the_end_of_a_good_run(form: str) -> None:
    codes = [*CODES_OF_ERRORS, "EE1999", "EQ0001", "E20999"]
    silent = [code for code in codes if not logs(main=f"loading\n{form.format(code=code)}\n").failed]
    assert silent == []


@pytest.mark.parametrize(
    "form",
    [
        "{code}: 2026-11-20-12:00:00.123.456 the call failed\n        Solution: see the manual",
        "[rank3]: {code}: the call failed\n        TraceBack (most recent call last):\n        retCode=7[FUNC:a]",
        "- Ascend Error Message:\n----\n{code}: the call failed\n        Possible Cause: N/A\n        Solution: N/A",
        "{code}: the call failed",
    ],
)
def test_a_code_is_decided_alike_in_the_forms_of_older_releases(form: str) -> None:
    for code in filter(kind_of_code, CODES_OF_ERRORS):
        newest = [cause.signature for cause in logs(main=f"loading\n{CANN_FORMS[1].format(code=code)}\n").causes]
        older = logs(main=f"loading\n{form.format(code=code)}\n")
        assert [cause.signature for cause in older.causes] == newest or older.undecidable, code
        assert older.failed and (older.causes or code in ("E30008",)), code


@pytest.mark.parametrize(
    "form",
    [
        "RuntimeError: a:b.cpp:1 NPU function error: aclrtCreateStream, error code is {code}",
        "RuntimeError: allocate:a.cpp:1406 NPU error, error code is {code}",
        "[ERROR] RUNTIME(983,python):2026-05-13-15:29:06.912.113 [api_c.cc:1097]983 rtMemcpy:ErrCode={code}, desc=[x]",
        "Call aclInit(nullptr) failed : {code} at file /work/backends/npu/runtime/runtime.cc line 403",
        "        synchronize stream failed, runtime result = {code}.[FUNC:ReportCallError][FILE:log_inner.cpp][LINE:1]",
        "[EXCEPTION] DEVICE(1,python) [a.cc:96] Create stream failed, ret:{code}",
    ],
)
@pytest.mark.parametrize(
    ("code", "signature"),
    [("107002", "npu-call-refused"), ("207000", "cann-code-support"), ("507008", "cann-code-device")],
)
def test_a_return_code_of_cann_is_described_by_its_kind_in_each_form(form: str, code: str, signature: str) -> None:
    text = "EE1001: [PID: 4] 2025-04-11-10:12:09.580.593 The argument is invalid.Reason: rtGetDevMsg execute failed\n"
    (cause,) = logs(main=f"loading\n{form.format(code=code)}\n{text}").causes
    assert cause.signature == signature, cause.summary
    assert code in cause.summary


def test_the_failed_request_for_the_text_of_an_error_is_no_error() -> None:
    for head in ("EE1001: [PID: 4] 2025-04-11-10:12:09.580.593 ", "EE1001: ", "EE1001: 2025-04-11-10:12:09.580.593 "):
        text = f"{head}The argument is invalid.Reason: rtGetDevMsg execute failed, reason=[context pointer null]"
        assert not logs(main=f"{text}\n        Solution: 1.Check the input parameter range\n").causes, head


def test_the_size_of_the_buffer_that_the_line_names_stands_in_the_remedy() -> None:
    line = "HCCL_BUFFSIZE is too SMALL, maxBs = 512, NEEDED_HCCL_BUFFSIZE((a * b) * 2) = 609MB, HCCL_BUFFSIZE=200MB."
    (cause,) = logs(main=f"loading\nEZ9999[PID: 17] 2025-12-23-07:36:19.237.396 (EZ9999):  {line}\n").causes
    assert values_in_logs(cause.evidence, cause.culprits)["MB"] == "609"


def test_a_line_below_shows_the_first_line_of_its_message() -> None:
    text = "a\nE40021: Failed to compile Op [Cast].\n        Solution: see the log\n"
    (cause,) = logs(main=text).causes
    assert [(event.line, event.text) for event in cause.evidence] == [(2, "E40021: Failed to compile Op [Cast].")]
    assert not logs(main="step 1\n        Solution: 42\nstep 2\n").failed


def test_an_error_with_a_code_says_more_than_the_one_that_announces_it() -> None:
    head = "[ERROR] PROFILER(1,ff,python):2022-01-10-14:19:56.741.053 [a.cc:51] Report] Ascend error occurred, message:"
    (cause,) = logs(main=f"{head}\nEK0001: Path [/data] for [profilerResultPath] is invalid.\n").causes
    assert cause.signature == "cann-code-settings" and cause.evidence[0].line == 2


def test_the_last_error_of_a_log_that_names_an_exception_is_told_by_it() -> None:
    text = (
        "[llm] [ERROR] [config.cpp:159] no tokenizer, with exception: NotImplementedError: unsupported model type: a\n"
    )
    (cause,) = logs(main=text).causes
    assert (cause.signature, cause.confidence) == ("exception-of-support", "likely")
    assert not logs(main="[ERROR] worker 3 failed: RuntimeError: bad shape\n").causes


def test_a_code_of_cann_is_told_by_its_name_and_by_whose_fault_it_is() -> None:
    (cause,) = logs(main=f"[rank3]: {CANN_FORMS[0].format(code='EE1013')}\n").causes
    assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("cann-code-memory", [3])
    assert "(EE1013 Resource_Error_Insufficient_Host_Memory)" in cause.summary
    (cause,) = logs(main=CANN_FORMS[1].format(code="EQ0001") + "\n").causes
    assert cause.summary.endswith("CANN: an error whose code is in no list of the vendor (EQ0001)")
    assert cause.confidence == "likely" and cause.culprits[0].label == "pid 4711"


@pytest.mark.parametrize("code", ["EE1002", "EI0002", "EI0006", "EI0015", "EZ9999", "EL9999"])
def test_a_code_of_a_wait_or_of_an_inner_error_accuses_nobody(code: str) -> None:
    for form in CANN_FORMS:
        assert not logs(main=f"loading\n{form.format(code=code)}\n").causes


def test_a_code_says_less_than_the_fault_beside_it_and_prose_about_a_code_is_no_failure() -> None:
    code = CANN_FORMS[1].format(code="EE1001")
    (cause,) = logs(
        main=f"RuntimeError: NPU out of memory. Tried to allocate 30.00 MiB (NPU 3; 60 GiB)\n{code}\n"
    ).causes
    assert cause.signature == "npu-oom"
    assert not logs(main="the manual explains EE1001 and (EL0003): see there\nstep 3/9 loss 2.1\n").failed


def test_every_kind_of_a_code_is_a_signature_and_names_listed_codes() -> None:
    names, catalog = _names_by_table()["cann"], load_signatures()
    for kind in (kind for kind in _table().kind if kind.codes and kind.signature.startswith("cann-")):
        assert catalog[kind.signature].code_table == "cann"
        assert [start for start in kind.codes if not any(code.startswith(start) for code in (*names, "E10044"))] == []


NPU = "[ERROR] 2026-11-20-12:00:00 (PID:{pid}, Device:{device}, RankID:{rank}) ERR00100 PTA call acl api failed"
UNNAMED = "the process of main.log"
TIMED_OUT = "RuntimeError: query:a.cpp:1 NPU function error: f, error code is 507014"


@pytest.mark.parametrize(
    ("line", "below", "names"),
    [
        (TIMED_OUT, NPU.format(pid=9, device=3, rank=-1), ["device 3"]),
        (TIMED_OUT, NPU.format(pid=9, device=3, rank=5), ["rank 5 (device 3)"]),
        (f"[rank5]: {TIMED_OUT}", NPU.format(pid=9, device=3, rank=-1), ["rank 5 (device 3)"]),
        (f"[rank5]: {TIMED_OUT}", NPU.format(pid=9, device=3, rank=6), ["rank 5"]),
        (TIMED_OUT, f"a\nb\n{NPU.format(pid=9, device=3, rank=5)}\n{NPU.format(pid=8, device=2, rank=4)}", [UNNAMED]),
    ],
)
def test_the_second_line_of_an_error_of_torch_npu_says_whose_it_is(line: str, below: str, names: list[str]) -> None:
    causes = logs(main=f"{line}\n{below}\n").causes
    assert [culprit.name for cause in causes for culprit in cause.culprits] == names


def test_processes_that_failed_alike_are_named_in_the_first_line() -> None:
    text = "".join(f"{TIMED_OUT}\n{NPU.format(pid=pid, device=pid, rank=-1)}\n" for pid in (1, 2))
    (cause,) = logs(main=text).causes
    assert cause.summary.startswith("device 1, device 2: ")


GPU_FORMS = (
    "[rank3]: torch.AcceleratorError: CUDA error: {text}",
    "RuntimeError: CUDA driver error: {text}",
    "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: {text}",
    "n1:11:22 [3] misc/alloc.cc:12 NCCL WARN Cuda failure {number} '{text}'",
    "n1: Test CUDA failure common.cu:941 '{text}'",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: {name}: {text}",
    'CUDA error at a.cu:44 code={number}({name}) "cudaDeviceSynchronize()"',
    "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:346 '{text}'",
    "OSError: (External) CUDA error({number}), {text}.",
    "GPUassert: {text} kernel.cu 22",
    "thrust::system::system_error: parallel_for failed: {name}: {text}",
)
GPU_CODES = [
    (1, "cudaErrorInvalidValue", "invalid argument", "gpu-arguments-wrong"),
    (3, "cudaErrorInitializationError", "initialization error", "gpu-call-failed"),
    (35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version", "cuda-driver-too-old"),  # noqa: E501
    (46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable", "cuda-device-busy"),
    (98, "cudaErrorInvalidDeviceFunction", "invalid device function", "cuda-no-kernel-image"),
    (101, "cudaErrorInvalidDevice", "invalid device ordinal", "cuda-invalid-ordinal"),
    (214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered", "cuda-ecc"),
    (222, "cudaErrorUnsupportedPtxVersion", "the provided PTX was compiled with an unsupported toolchain.", "cuda-driver-too-old"),  # noqa: E501
    (701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch", "gpu-launch-too-large"),
    (711, "cudaErrorTooManyPeers", "peer mapping resources exhausted", "gpu-peers-exhausted"),
    (716, "cudaErrorMisalignedAddress", "misaligned address", "cuda-illegal-access"),
    (800, "cudaErrorNotPermitted", "operation not permitted", "gpu-not-permitted"),
    (805, "cudaErrorMpsConnectionFailed", "MPS client failed to connect to the MPS control daemon or the MPS server", "gpu-mps-failed"),  # noqa: E501
    (900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing", "graph-capture-failed"),  # noqa: E501
]  # fmt: skip
"""As cudaGetErrorName and cudaGetErrorString of CUDA 12.9 print them."""


@pytest.mark.parametrize(("number", "name", "text", "signature"), GPU_CODES)
def test_a_code_of_cuda_is_one_cause_in_each_form_that_programs_print(
    number: int, name: str, text: str, signature: str
) -> None:
    for form in GPU_FORMS:
        line = form.format(number=number, name=name, text=text)
        causes = [cause.signature for cause in logs(main=f"loading\n{line}\n").causes]
        of_nccl = "NCCL WARN" in line and signature.startswith(("gpu-arguments", "gpu-not-permitted", "gpu-call"))
        assert causes == ["nccl-cuda-failure" if of_nccl else signature], line


def test_an_xid_of_a_program_takes_no_host_out_of_use_and_the_two_lists_are_those_of_the_facts() -> None:
    forms = (
        "[74889.644138] NVRM: Xid (PCI:0000:02:00): {}, pid=1122, name=python, Ch 00000008",
        "I1120 12:00:00.123456 1 health.go:158] XidCriticalError: Xid={} on Device=GPU-2c4c0b1e, it goes unhealthy.",
        'DCGM_FI_DEV_XID_ERRORS{{gpu="3",device="nvidia3",Hostname="n1"}} {}',
    )
    of_record = {code for code in catalog().xid["IGNORE"] if code not in (43, *CATALOG)} | {152, 153, 154, 159, 160}
    for code in range(1, 176):
        expected = "cuda-ecc" if code in CATALOG else "" if code in of_record else "gpu-program-xid"
        for form in forms:
            causes = [cause.signature for cause in logs(main=f"{form.format(code)}\n").causes]
            assert causes == [name for name in (expected,) if name], form.format(code)
    assert not logs(main='DCGM_FI_DEV_XID_ERRORS{gpu="3",device="nvidia3"} 0\n').failed


@pytest.mark.parametrize("code", [code for code in _names_by_table()["ibv"] if code != "0"])
def test_each_status_of_a_work_completion_is_a_failure_in_each_form(code: str) -> None:
    name = _names_by_table()["ibv"][code]
    for form in (
        "n1:47:90 [2] NCCL WARN NET/IB : Got completion with error {code}, opcode 0, len 0, vendor err 129",
        "n1:47:90 [2] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<41> with status={code} opcode=0 len=0",
        "n1:47:90 [2] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<41> with status={name}({code}) opcode=0",
        " Failed status {code}: wr_id 0 syndrom 0x81",
        "nvshmem: ibrc.cpp:123 progress_send: poll cq failed: status: {code}",
        "[0->1] Got completion with error: {name}, vendor code=0x81, dest rank=1",
    ):
        diagnosis = logs(main=f"loading\n{form.format(code=code, name=name)}\n")
        seen = {cause.signature for cause in diagnosis.causes} | {item.signature for item in diagnosis.waiting}
        assert diagnosis.failed and not seen & {"nccl-call-failed", "error-unknown"}, form.format(code=code, name=name)


def test_a_call_that_succeeded_is_no_failure() -> None:
    text = "n1: init of the runtime returned cudaSuccess\nif (error != cudaErrorNotReady) continue\n"
    text += "cublasCreate: CUBLAS_STATUS_SUCCESS\nmiopenStatusSuccess rocblas_status_success\n"
    assert not logs(main=f"{text}training finished\n").failed


def test_of_a_process_that_uses_several_devices_the_one_with_the_fault_is_named() -> None:
    head = "n1:100:100 [0] NCCL INFO Bootstrap : Using eno2:10.33.48.72<0>\n"
    fault = "n1:100:121 [{}] enqueue.cc:47 NCCL WARN Cuda failure 'named symbol not found'\n"
    (cause,) = logs(main=head + fault.format(1)).causes
    assert (cause.signature, cause.culprits[0].host, cause.culprits[0].device) == ("cuda-no-kernel-image", "n1", 1)
    (cause,) = logs(main=head + fault.format(1) + fault.format(2)).causes
    assert [culprit.device for culprit in cause.culprits] == [None]


def test_a_worker_that_torchrun_reports_as_failed_is_a_failure_without_a_cause() -> None:
    line = '{"name": "torchelastic.worker.status.FAILED", "metadata": {"global_rank": 0, "state": "FAILED"}}\n'
    diagnosis = logs(main=line)
    assert diagnosis.failed and not diagnosis.causes and diagnosis.undecidable
    assert not logs(main=line.replace("FAILED", "SUCCEEDED")).failed

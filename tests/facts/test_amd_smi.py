"""What amd-smi prints: the forms of ROCm 6.1 to 7, as AMD's own programs read and write them.

Sources: amdsmi_cli of github.com/ROCm/amdsmi, the tests of github.com/amd/node-scraper (c3934162), and
github.com/ROCm/legacy-rocm-build issue 4374.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import AmdGpus
from tests.checks.run_check import messages, run_check, skipped
from tests.facts.answers import answered, read_outputs

ECC = {"total_correctable_count": 0, "total_uncorrectable_count": 0, "total_deferred_count": 0}
LIST = [{"gpu": n, "bdf": f"0000:{n}5:00.0", "uuid": f"GPU-{n}", "kfd_id": 7 + n, "partition_id": 0} for n in range(4)]


def printed(
    listed: Any = LIST,
    ecc: Any = ECC,
    name: str = "AMD Instinct MI300X",
    codes: tuple[int, ...] = (0, 0, 0, 0),
    wrap: bool = True,
    mode: str = "SPX",
    before: str = "",
) -> Output:
    """All four documents, for as many GPUs as are listed; ``wrap``: under gpu_data, as newer releases do."""
    count = len(listed) if isinstance(listed, list) else 0
    static = {
        "asic": {"market_name": name},
        "bus": {"bdf": "N/A", "max_pcie_width": 16},
        "driver": {"version": "6.10.5"},
    }
    modes = {"partition": {"accelerator_partition": mode, "memory_partition": "NPS1", "partition_id": 0}}
    eccs = ecc if isinstance(ecc, list) else [ecc] * count
    rows = [
        [{"gpu": n, "ecc": eccs[n]} for n in range(count)],
        *([{"gpu": n, **part} for n in range(count)] for part in (static, modes)),
    ]
    documents = [listed, *({"gpu_data": part} if wrap else part for part in rows)]
    queries = ("list", "metric --ecc", "static --asic --bus --driver", "static --partition")
    texts = [document if isinstance(document, str) else json.dumps(document, indent=4) for document in documents]
    return Output(
        out="".join(f"-- {q} --\n{before}{t}\n-- exit {c} --\n" for q, t, c in zip(queries, texts, codes, strict=True))
    )


def bus(*slots: str) -> Any:
    return answered(
        OtherAccelerators, {"devices": [[slot, "1002", "74a1", "1200", "amdgpu"] for slot in slots], "files": []}
    )


ON_BUS = bus(*(row["bdf"] for row in LIST))


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("before", ["", "WARNING: User is missing the following required groups: render\n"])
def test_healthy_hosts(wrap: bool, before: str) -> None:
    amd = read_outputs(AmdGpus, one=printed(wrap=wrap, before=before))
    assert isinstance(amd, AmdGpus)
    assert [gpu.bus for gpu in amd.gpus] == [row["bdf"] for row in LIST]
    assert (amd.gpus[0].name, amd.gpus[0].driver, amd.gpus[0].pcie_width_max) == ("AMD Instinct MI300X", "6.10.5", 16)
    for check in ("amd-gpu-ecc-errors", "amd-gpu-missing", "accelerator-without-driver"):
        outcome = run_check(check, {"w1": [amd, ON_BUS]})
        assert not outcome.findings and not outcome.unknown, check
    assert not run_check("amd-gpu-settings-differ", {"w1": [amd], "w2": [amd]}).findings


@pytest.mark.parametrize(
    ("ecc", "found"),
    [
        # Public files 61446801560 and 66342936307
        ({**ECC, "cache_correctable_count": 0, "cache_uncorrectable_count": 0}, []),
        ({**ECC, "cache_correctable_count": "N/A", "cache_uncorrectable_count": "N/A"}, []),
        ({**ECC, "total_uncorrectable_count": 7}, [False]),
        ({**ECC, "total_deferred_count": 1}, [True]),
        ({**ECC, "total_correctable_count": 70000}, []),
        ({**ECC, "total_uncorrectable_count": {"value": 2, "unit": "N/A"}}, [False]),
    ],
)
def test_errors_are_found_on_their_gpu(ecc: dict[str, Any], found: list[bool]) -> None:
    amd = read_outputs(AmdGpus, one=printed(ecc=[ECC, ECC, ecc, ECC]))
    findings = run_check("amd-gpu-ecc-errors", {"w1": [amd]}).findings
    assert [finding.is_warning for finding in findings] == found
    assert all(finding.values["gpu"] == 2 for finding in findings)


@pytest.mark.parametrize("value", ["N/A", "AMDSMI_STATUS_FILE_ERROR", "ERR!", "Unknown Error", {"value": "N/A"}])
def test_counts_that_could_not_be_read_are_never_healthy(value: Any) -> None:
    amd = read_outputs(AmdGpus, one=printed(ecc=[ECC, {**ECC, "total_uncorrectable_count": value}, ECC, ECC]))
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [amd]})
    assert not outcome.findings
    assert outcome.unknown["w1"].text.startswith("GPU 1: ")


def test_a_desktop_gpu_has_no_counts() -> None:
    amd = read_outputs(AmdGpus, one=printed(ecc=dict.fromkeys(ECC, "N/A"), name="Radeon RX 7900 XTX"))
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [amd]})
    assert not outcome.findings and not outcome.unknown


def test_a_gpu_that_is_on_the_bus_and_not_listed() -> None:
    amd = read_outputs(AmdGpus, one=printed(listed=LIST[:3]))
    assert messages(run_check("amd-gpu-missing", {"w1": [amd, ON_BUS]})) == [
        ("w1", "amd-smi does not list the GPU at 0000:35:00.0; expected 4 GPUs, as on the PCI bus")
    ]


def test_partitions_count_as_their_gpu() -> None:
    parts = [{"gpu": n, "bdf": f"0000:05:00.{n}", "uuid": f"GPU-{n}"} for n in range(4)]
    amd = read_outputs(AmdGpus, one=printed(listed=parts, mode="CPX"))
    assert messages(run_check("amd-gpu-missing", {"w1": [amd, bus("0000:05:00.0")]})) == []
    assert skipped(run_check("amd-gpu-missing", {"w1": [amd]}))


def test_a_host_in_another_mode() -> None:
    usual, other = (read_outputs(AmdGpus, one=printed(mode=mode)) for mode in ("SPX", "CPX"))
    ((host, text),) = messages(run_check("amd-gpu-settings-differ", {"w1": [usual], "w2": [usual], "w3": [other]}))
    assert host == "w3"
    assert text.startswith("its AMD GPUs differ in compute partition: CPX; 2 of 3 hosts have SPX")


BROKEN = [
    printed(codes=(255, 255, 0, 0)),
    printed(listed="AmdSmiLibraryException: Error code: 43 | AMDSMI_STATUS_DRIVER_NOT_LOADED", codes=(255, 0, 0, 0)),
    printed(listed="[{"),
    printed(listed=[{"bdf": "0000:05:00.0"}], codes=(0, 255, 0, 0)),
    printed(codes=(0, 124, 0, 0)),
    Output(out="-- list --\n[]\n"),
    Output(out=""),
    Output(out="hello"),
    Output(ended="timeout", seconds=70),
]


@pytest.mark.parametrize("output", BROKEN)
def test_an_answer_that_is_not_whole_is_unknown_and_so_are_the_accelerators(output: Output) -> None:
    amd = read_outputs(AmdGpus, one=output)
    assert isinstance(amd, Unreadable)
    assert "w1" in run_check("accelerator-without-driver", {"w1": [ON_BUS]}).unknown


@pytest.mark.parametrize("failed", [0, 2])
@pytest.mark.parametrize("errors", [0, 5])
def test_a_gpu_with_errors_is_named_although_another_query_failed(failed: int, errors: int) -> None:
    codes = [255 if place == failed else 0 for place in range(4)]
    ecc = [ECC, ECC, {**ECC, "total_uncorrectable_count": errors}, ECC]
    amd = read_outputs(AmdGpus, one=printed(ecc=ecc, codes=(codes[0], codes[1], codes[2], codes[3])))
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [amd, ON_BUS]})
    address = LIST[2]["bdf"] if failed else "?"
    sick = [("w1", f"AMD GPU 2 ({address}) has 5 uncorrected and 0 deferred errors; expected 0")]
    texts = sick if errors else []
    assert (messages(outcome), set(outcome.unknown)) == (texts, {"w1"})
    assert not run_check("amd-gpu-missing", {"w1": [amd, ON_BUS]}).findings


def test_the_newest_releases_have_the_modes_elsewhere() -> None:
    amd = read_outputs(AmdGpus, one=printed(codes=(0, 0, 0, 255)))
    assert isinstance(amd, Fact)
    assert amd.gpus[0].compute_partition == ""


def test_a_host_without_gpus() -> None:
    why = read_outputs(AmdGpus, one=printed(listed=[]))
    assert isinstance(why, Absent) and not isinstance(why, Unreadable)


DENIED = """\
Permission needed to access required GPU device node(s):
  • /dev/kfd: Permission denied
  • /dev/dri/renderD*: 64 device(s) denied

To resolve this issue, try the following:
  • Add your user to the required group(s)

"""
"""Before the JSON, where the user is in no group of the device files (public file 62989035379)."""
REAL = (
    (  # MI355X, AMD SMI 26.2.0 (public file 67107590716): static is a plain list, metric is not
        [{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "75ff75a3-0000-1000-80e3-fd74aab3f72c", "partition_id": 0}],
        {"gpu_data": [{"gpu": 0, "ecc": ECC, "power": {"socket_power": {"value": 239, "unit": "W"}}}]},
        [
            {
                "gpu": 0,
                "bus": {"bdf": "0000:05:00.0"},
                "asic": {"market_name": "AMD Instinct MI355X"},
                "driver": {"version": "6.16.6"},
            }
        ],
        ("AMD Instinct MI355X", "6.16.6", 0),
    ),
    (  # MI300X, ROCm 10.1 (public file 71509062593)
        [{"gpu": 0, "bdf": "0000:83:00.0"}],
        {"gpu_data": [{"gpu": 0, "ecc": ECC, "xgmi_err": "N/A"}]},  # ROCm/rocm-systems issue 11468: N/A on all MI300
        {
            "gpu_data": [
                {
                    "gpu": 0,
                    "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"},
                    "bus": {"bdf": "0000:83:00.0"},
                    "driver": {"name": "amdgpu", "version": "6.19.14"},
                }
            ]
        },
        ("AMD Instinct MI300X", "6.19.14", 0),
    ),
    (  # MI210 (public file 4970983622, its static; 71006360916: the older name of the driver's version)
        [{"gpu": 0, "bdf": "0000:43:00.0"}],
        [{"gpu": 0, "ecc": ECC}],
        [
            {
                "gpu": 0,
                "asic": {"market_name": "AMD Instinct MI210", "oam_id": "N/A", "num_compute_units": 104},
                "bus": {"max_pcie_width": 16, "max_pcie_speed": {"value": 16, "unit": "GT/s"}, "slot_type": "OAM"},
                "driver": {"driver_version": "6.4.1"},
            }
        ],
        ("AMD Instinct MI210", "6.4.1", 0),
    ),
    (  # two Radeon cards (public file 61446801560): counts of a desktop GPU, of which most other values are N/A
        [{"gpu": 0, "bdf": "0000:03:00.0"}],
        {"gpu_data": [{"gpu": 0, "ecc": {**ECC, "cache_correctable_count": 0}, "xgmi_err": "N/A", "overdrive": "N/A"}]},
        {"gpu_data": [{"gpu": 0, "asic": {"market_name": "N/A"}, "bus": {"bdf": "0000:03:00.0"}}]},
        ("", "", 0),
    ),
)


def in_blocks(*documents: object, before: str = "", twice: bool = False) -> Output:
    queries = ("list", "metric --ecc", "static --asic --bus --driver")
    texts = [before + (json.dumps(document) + "\n") * (2 if twice else 1) for document in documents]
    return Output(out="".join(f"-- {q} --\n{t}-- exit 0 --\n" for q, t in zip(queries, texts, strict=True)))


@pytest.mark.parametrize(("listed", "metric", "static", "expected"), REAL, ids=lambda value: str(value)[:24])
@pytest.mark.parametrize("before", ["", DENIED, "[Errno 13] Permission denied: '/dev/kfd'\n"])
@pytest.mark.parametrize("twice", [False, True])
def test_documents_of_real_releases(
    listed: Any, metric: Any, static: Any, expected: tuple[str, str, int], before: str, twice: bool
) -> None:
    """``twice``: a release printed each document of metric two times (ROCm/rocm-systems pull 3067)."""
    amd = read_outputs(AmdGpus, one=in_blocks(listed, metric, static, before=before, twice=twice))
    (gpu,) = amd.gpus
    assert (gpu.name, gpu.driver, gpu.uncorrectable) == expected and gpu.bus == listed[0]["bdf"]
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [amd]})
    assert not outcome.findings and not outcome.unknown


def test_text_without_a_document_is_unknown() -> None:
    broken = in_blocks([], {}, {}).out.replace("[]", DENIED).replace("{}", DENIED)
    assert isinstance(read_outputs(AmdGpus, one=Output(out=broken)), Unreadable)


@pytest.mark.parametrize("number", [0, -1, True, "1", None])
def test_a_gpu_whose_number_another_one_has_or_that_is_none_makes_the_list_unread(number: object) -> None:
    """Two rows of one number would be one GPU less."""
    rows = [LIST[0], {**LIST[1], "gpu": number}]
    answer = Output(out=f"-- list --\n{json.dumps(rows)}\n-- exit 0 --\n-- metric --ecc --\n[]\n-- exit 0 --\n")
    assert isinstance(read_outputs(AmdGpus, one=answer), Unreadable)

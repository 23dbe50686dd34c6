from typing import Any

from doctor import Finding, PerHost
from doctor.engine.fact import Output
from doctor.facts.hccn.optics import OpticalModule, Optics
from doctor.facts.reported_value import OpticalReading
from tests.checks.device_network import fleet, links, per, run_check
from tests.facts.answers import learned

PAIR = ("h1", "h2")


def module(rx: float = 1.0, temperature: float = 47, **flags: int) -> OpticalModule:
    return OpticalModule(
        readings={
            "temperature": OpticalReading(temperature, 0, 70, "C"),
            "Rx Power0": OpticalReading(rx, 0.1445, 3.5481, "mW"),
            "Rx Power1": OpticalReading(rx, 0.1445, 3.5481, "mW"),
        },
        flags={"Rx Los": 0, **flags},
    )


def list_findings(
    family: str = "A2", outlier: OpticalModule | None = None, empty: tuple[int, ...] = (), **more: Any
) -> list[Finding]:
    """``outlier`` is in NPU 3 of h2; those in ``empty`` there have no module."""
    usual = dict.fromkeys(range(8), module())
    optical_modules = {**usual, **({3: outlier} if outlier else {})}
    optical_modules = {npu: optical_module for npu, optical_module in optical_modules.items() if npu not in empty}
    optics = PerHost({"h1": Optics(by_npu=usual), "h2": Optics(by_npu=optical_modules, empty=empty)})
    parameters = {**fleet(family, PAIR), "optics": optics, "links": per(PAIR, links())}
    return run_check("optics_out_of_range", **{**parameters, **more})


def test_within_limits() -> None:
    assert list_findings() == []


def test_weak_light_on_all_lanes_is_one_finding() -> None:
    [finding] = list_findings(outlier=module(rx=0.05))
    assert finding.hosts == ("h2",)
    expected = "the optical module of NPU 3 has Rx Power0: 0.05, Rx Power1: 0.05 mW; expected 0.1445 to 3.5481 mW"
    assert str(finding) == expected


def test_too_much_noise_on_one_lane() -> None:
    """Of a lane without a signal (0 dB) nothing is said: its light is judged."""
    text = "optical info:\npresent : present\ntemperature : 47 C\nTemp High Thres : 70 C\nTemp Low Thres : 0 C\n"
    lanes = ("Host SNR Lane0 : not supported", "Media SNR Lane0 : 23.1211 dB", "Media SNR Lane1 : 10.5000 dB")
    read = learned(Optics, {"3": Output(out=text + "\n".join((*lanes, "Media SNR Lane2 : 0.0000 dB")))}).by_npu[3]
    [finding] = list_findings(outlier=read)
    assert str(finding) == ("the optical module of NPU 3 has Media SNR Lane1: 10.5 dB; expected 18.0 dB or more")


def test_each_kind_of_reading_is_a_finding() -> None:
    assert [finding.values["what"] for finding in list_findings(outlier=module(rx=4.0, temperature=71))] == [
        "temperature",
        "Rx Power",
    ]


def test_flags() -> None:
    [finding] = list_findings(outlier=module(**{"Rx LoL": 255}))
    assert finding.values["observed"] == {"Rx LoL": "0xff"}


def test_limits_that_the_module_leaves_open_are_none() -> None:
    assert list_findings(outlier=OpticalModule(readings={"Vcc": OpticalReading(3300, 0, 0, "mV")})) == []


def test_a_module_that_does_not_answer() -> None:
    [finding] = list_findings(outlier=OpticalModule(reachable=False))
    assert finding.values["npu"] == 3


def test_a_missing_module_where_most_have_one() -> None:
    [finding] = list_findings(empty=(2, 6))
    assert str(finding) == "no optical module in NPU 2 and 6; 14 NPUs of A2 have one"


def test_boards_without_modules() -> None:
    bare = per(PAIR, Optics(by_npu={}, empty=tuple(range(8))))
    assert list_findings(optics=bare) == []


def test_dies_that_share_a_module_by_halves() -> None:
    optics = Optics(by_npu=dict.fromkeys(range(0, 16, 2), module()), empty=tuple(range(1, 16, 2)))
    assert list_findings("A3", optics=per(PAIR, optics)) == []


def test_a_dark_module_counts_where_the_job_uses_the_port() -> None:
    down = per(PAIR, links(down=(3,)))
    assert len(list_findings(outlier=module(rx=0.0), links=down)) == 1
    assert list_findings("A3", outlier=module(rx=0.0), links=down) == []

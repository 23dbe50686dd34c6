from typing import Any

from doctor import Finding, PerHost
from doctor.facts.hccn import OpticalModule, OpticalReading, Optics
from tests.checks.device_network import fleet, judged, links, per

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


def found(
    family: str = "A2", odd: OpticalModule | None = None, empty: tuple[int, ...] = (), **more: Any
) -> list[Finding]:
    """``odd`` is in NPU 3 of h2; those in ``empty`` there have no module."""
    usual = dict.fromkeys(range(8), module())
    own = {**usual, **({3: odd} if odd else {})}
    own = {npu: one for npu, one in own.items() if npu not in empty}
    optics = PerHost({"h1": Optics(by_npu=usual), "h2": Optics(by_npu=own, empty=empty)})
    given = {**fleet(family, PAIR), "optics": optics, "links": per(PAIR, links())}
    return judged("optics_out_of_range", **{**given, **more})


def test_within_limits() -> None:
    assert found() == []


def test_weak_light_on_all_lanes_is_one_finding() -> None:
    [one] = found(odd=module(rx=0.05))
    assert one.hosts == ("h2",)
    expected = "the optical module of NPU 3 has Rx Power0: 0.05, Rx Power1: 0.05 mW; expected 0.1445 to 3.5481 mW"
    assert str(one) == expected


def test_each_kind_of_reading_is_a_finding() -> None:
    assert [one.values["what"] for one in found(odd=module(rx=4.0, temperature=71))] == ["temperature", "Rx Power"]


def test_flags() -> None:
    [one] = found(odd=module(**{"Rx LoL": 255}))
    assert one.values["observed"] == {"Rx LoL": "0xff"}


def test_limits_that_the_module_leaves_open_are_none() -> None:
    assert found(odd=OpticalModule(readings={"Vcc": OpticalReading(3300, 0, 0, "mV")})) == []


def test_a_module_that_does_not_answer() -> None:
    [one] = found(odd=OpticalModule(reachable=False))
    assert one.values["npu"] == 3


def test_a_missing_module_where_most_have_one() -> None:
    [one] = found(empty=(2, 6))
    assert str(one) == "no optical module in NPU 2 and 6; 14 NPUs of A2 have one"


def test_boards_without_modules() -> None:
    bare = per(PAIR, Optics(by_npu={}, empty=tuple(range(8))))
    assert found(optics=bare) == []


def test_dies_that_share_a_module_by_halves() -> None:
    own = Optics(by_npu=dict.fromkeys(range(0, 16, 2), module()), empty=tuple(range(1, 16, 2)))
    assert found("A3", optics=per(PAIR, own)) == []


def test_a_dark_module_counts_where_the_job_uses_the_port() -> None:
    down = per(PAIR, links(down=(3,)))
    assert len(found(odd=module(rx=0.0), links=down)) == 1
    assert found("A3", odd=module(rx=0.0), links=down) == []

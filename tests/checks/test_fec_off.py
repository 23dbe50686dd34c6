import re

import pytest

from doctor import Skip
from doctor.facts.hccn.link_state import DeviceFec
from doctor.report.layout.failures import filled_fix, fix_template
from doctor.report.layout.host_names import Fleet
from tests.checks.device_network import links, product, run_check
from tests.checks.run_check import check
from tests.hosts.npu import HCCN_TOOL

MIXED = DeviceFec(by_npu={0: "rs", 1: "no", 2: "base"})


def test_on() -> None:
    assert run_check("fec_off", fec=DeviceFec(by_npu={0: "rs", 1: "base"}), links=links()) == []


def test_off() -> None:
    for device_links in (links(), None):
        [finding] = run_check("fec_off", fec=MIXED, links=device_links)
        assert finding.values["npus"] == [1]


def test_off_on_a_link_that_is_down() -> None:
    assert run_check("fec_off", fec=MIXED, links=links(down=(1,))) == []


def test_no_link_is_up() -> None:
    with pytest.raises(Skip):
        run_check("fec_off", fec=MIXED, links=links(down=tuple(range(8))))


@pytest.mark.parametrize(("family", "command"), [("A1", "-fec -s encoding rs"), ("A2", "-lldp -g"), ("A3", "-lldp -g")])
def test_the_remedy_is_that_of_the_product(family: str, command: str) -> None:
    [finding] = run_check("fec_off", fec=MIXED, links=links(), product=product(family))
    lines = filled_fix(fix_template(check("fec_off"), [finding]), finding, ["node1"], Fleet(["node1"]))
    assert re.findall("`.*?`", " ".join(lines)) == [f"`{HCCN_TOOL} -i 1 {command}`"]

"""A rank table made from what hosts say: whole and healthy, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_interface
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from doctor.cli.rank_table import _report_problems
from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.super_pod import SuperDevice, SuperDevices, SuperPodId
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.job import LaunchConfig, RankTable
from doctor.rank_table.build import REQUIRED_FACTS, BuiltRankTable, build_verified
from doctor.rank_table.build_parts import BuildProblem, RankTableBuildError
from tests.checks import tables

Facts = dict[type[Fact], Fact | Absent]
COUNTS = {"A1": 8, "A2": 8, "A3": 16}
LOST = Unreadable("not reached: port 22 refuses connections", "host-unreachable")


def inventory(devices: Sequence[int], on_bus: int | None = None) -> NpuInventory:
    observed = len(devices) if on_bus is None else on_bus
    return NpuInventory(
        devices=tuple(devices),
        pci_count=observed,
        manager=True,
        denied_files=(),
        tools=("hccn_tool", "npu-smi"),
        newer_than_boot=(),
    )


def addresses(*ips: str) -> HostAddresses:
    return HostAddresses(interfaces=tuple(InterfaceAddress(f"eth{n}", ip, 24) for n, ip in enumerate(ips)))


def device_ip(family: str, host: int, npu: int) -> str:
    return f"10.0.{npu % 4}.{2 * host + npu // 4 + 1}/24" if family == "A1" else f"29.1.{host + 101}.{npu + 200}/16"


def ports(family: str, host: int, without: Sequence[int] = (), **more: Any) -> DeviceAddresses:
    has = {npu: ip_interface(device_ip(family, host, npu)) for npu in range(COUNTS[family]) if npu not in without}
    return DeviceAddresses(by_npu=has, unset=tuple(without), **more)


def healthy(family: str, host: int = 0, pod: int = 0) -> Facts:
    """What a healthy host says; on A3 it has no device addresses."""
    npus = range(COUNTS[family])
    none = Absent("this product has no super pods")
    sdids = {npu: SuperDevice(tables.sdid(host, npu), pod) for npu in npus}
    a3 = family == "A3"
    return {
        NpuInventory: inventory(npus),
        NpuProduct: NpuProduct(family=family, evidence=""),  # type: ignore[arg-type]
        DeviceAddresses: ports(family, host, without=npus if a3 else ()),
        HostAddresses: addresses("127.0.0.1", f"172.16.0.{host + 10}", "172.17.0.1"),
        SuperPodId: SuperPodId(id=pod, server_index=host, size=384) if a3 else none,
        SuperDevices: SuperDevices(by_npu=sdids) if a3 else none,
    }


def fleet(family: str, hosts: int = 2, pods: int = 1) -> dict[str, Facts]:
    return {f"node{n + 1}": healthy(family, n, n * pods // hosts) for n in range(hosts)}


def built_table(
    facts_by_host: dict[str, Facts], devices: Sequence[int] = (), product: str = "", **env: str
) -> BuiltRankTable:
    launch = LaunchConfig.from_environment(env, product=product)
    return build_verified(
        tuple(facts_by_host), lambda host, fact: facts_by_host[host][fact], "/job/table.json", launch, devices, {}
    )


def refused(facts_by_host: dict[str, Facts], devices: Sequence[int] = (), **env: str) -> tuple[bool, list[str]]:
    """Whether something is known to be wrong, and the lines."""
    with pytest.raises(RankTableBuildError) as why:
        built_table(facts_by_host, devices, **env)
    return why.value.wrong, [problem.text for problem in why.value.problems]


def table(built_rank_table: BuiltRankTable) -> RankTable:
    return tables.table(built_rank_table.text)


class TestWhatIsMade:
    def test_a1(self) -> None:
        built_rank_table = built_table(fleet("A1"))
        assert (built_rank_table.version, built_rank_table.family, built_rank_table.hosts, built_rank_table.npus) == (
            "1.0",
            "A1",
            2,
            16,
        )
        rank_table = table(built_rank_table)
        assert [server.server_id for server in rank_table.servers] == ["node1", "node2"]
        assert [rank.rank_id for rank in rank_table.ranks] == list(range(16))
        assert [rank.device_id for rank in rank_table.ranks] == [*range(8), *range(8)]
        assert rank_table.ranks[12].device_ips == ("10.0.0.4",)
        assert (
            not rank_table.problems and "host_ip" not in built_rank_table.text and "super" not in built_rank_table.text
        )

    def test_a2(self) -> None:
        rank_table = table(built_table(fleet("A2", 3)))
        assert rank_table.form == "1.0" and rank_table.status == "completed"
        assert [rank.device_ips for rank in rank_table.ranks[8:10]] == [("29.1.102.200",), ("29.1.102.201",)]

    def test_a3_in_one_super_pod_needs_no_addresses(self) -> None:
        rank_table = table(built_table(fleet("A3")))
        assert rank_table.form == "1.2"
        assert [(pod.super_pod_id, pod.servers) for pod in rank_table.super_pods or ()] == [("0", ("node1", "node2"))]
        assert [rank.super_device_id for rank in rank_table.ranks[16:19]] == [
            str(tables.sdid(1, npu)) for npu in range(3)
        ]
        assert {rank.device_ips for rank in rank_table.ranks} == {()}
        assert [server.host_ip for server in rank_table.servers] == ["172.16.0.10", "172.16.0.11"]

    def test_a3_in_two_super_pods_has_addresses(self) -> None:
        facts_by_host = fleet("A3", 4, pods=2)
        for n, facts in enumerate(facts_by_host.values()):
            facts[DeviceAddresses] = ports("A3", n)
        rank_table = table(built_table(facts_by_host))
        assert [pod.servers for pod in rank_table.super_pods or ()] == [("node1", "node2"), ("node3", "node4")]
        assert rank_table.ranks[17].device_ips == ("29.1.102.201",)

    def test_chosen_devices_in_the_order_of_their_numbers(self) -> None:
        rank_table = table(built_table(fleet("A1"), devices=(7, 4, 5, 6)))
        assert [(rank.rank_id, rank.device_id) for rank in rank_table.ranks[3:5]] == [(3, 7), (4, 4)]

    def test_the_order_of_the_inventory_is_kept(self) -> None:
        facts_by_host = fleet("A2", 3)
        turned = dict(reversed(facts_by_host.items()))
        assert [server.server_id for server in table(built_table(turned)).servers] == ["node3", "node2", "node1"]

    def test_where_not_all_have_an_address_and_none_needs_one_no_entry_has_one(self) -> None:
        facts_by_host = fleet("A3")
        facts_by_host["node1"][DeviceAddresses] = ports("A3", 0, without=(3,))
        assert "device_ip" not in built_table(facts_by_host).text

    def test_a_host_ip_is_never_a_choice_among_several(self) -> None:
        facts_by_host = fleet("A3")
        facts_by_host["node1"][HostAddresses] = addresses("172.16.0.10", "10.244.1.1", "172.17.0.1")
        assert [server.host_ip for server in table(built_table(facts_by_host)).servers] == ["", "172.16.0.11"]

    def test_this_host_alone_is_called_by_its_address_not_by_what_means_every_host(self) -> None:
        facts = healthy("A2")
        facts[HostAddresses] = addresses("127.0.0.1", "172.16.0.10")
        for host in ("localhost", "localhost.", "ip6-localhost", "::1", "127.0.1.1"):
            assert table(built_table({host: facts})).servers[0].server_id == "172.16.0.10"
        assert table(built_table({"127.example": facts})).servers[0].server_id == "127.example"


def test_what_several_hosts_have_alike_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [BuildProblem(f"{host}: not reached: no {host}", host=host) for host in ("n1", "n2", "n10")]
    with pytest.raises(typer.Exit):
        _report_problems(RankTableBuildError([*problems, BuildProblem("n2: no npu-smi", host="n2")]), 4)
    assert capsys.readouterr().err.splitlines() == [
        "doctor: n1: not reached: no n1 (likewise on n[2,10])",
        "doctor: n2: no npu-smi",
        "doctor: no rank table was written: something is unknown on 3 of 4 hosts",
    ]


class TestNoTable:
    def test_a_host_that_was_not_reached(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node2"] = dict.fromkeys(REQUIRED_FACTS, LOST)
        assert refused(facts_by_host) == (False, [f"node2: {LOST}"])

    @pytest.mark.parametrize("family", COUNTS)
    def test_an_npu_without_an_address_that_it_needs(self, family: str) -> None:
        facts_by_host = fleet(family, pods=2)
        facts_by_host["node1"][DeviceAddresses] = ports(family, 0)
        facts_by_host["node2"][DeviceAddresses] = ports(family, 1, without=(3,))
        line = "node2: NPU 3 has no device IP; expected one (device-ip-unset)"
        assert refused(facts_by_host) == (True, [line])

    def test_hccs_that_is_switched_off_makes_a3_need_them(self) -> None:
        wrong, lines = refused(fleet("A3"), HCCL_INTER_HCCS_DISABLE="TRUE")
        assert wrong and len(lines) == 32

    def test_an_address_that_could_not_be_read(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node1"][DeviceAddresses] = DeviceAddresses(
            by_npu={npu: ip_interface(device_ip("A2", 0, npu)) for npu in range(7)},
            unread={"NPU 7": "no answer in 4 s"},
        )
        assert refused(facts_by_host) == (False, ["node1: NPU 7: no answer in 4 s"])

    def test_what_is_wrong_outweighs_what_is_not_known_and_both_are_said(self) -> None:
        facts_by_host = fleet("A2", 3)
        facts_by_host["node1"] = dict.fromkeys(REQUIRED_FACTS, LOST)
        facts_by_host["node3"][DeviceAddresses] = ports("A2", 2, without=(0,))
        wrong, lines = refused(facts_by_host)
        assert wrong and [line.partition(":")[0] for line in lines] == ["node1", "node3"]

    def test_an_address_that_two_npus_have_is_told_by_our_own_checks(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node2"][DeviceAddresses] = ports("A2", 0)
        wrong, lines = refused(facts_by_host)
        assert wrong and lines[0].startswith("rank-table-address-repeated: device_ip 29.1.101.200 belongs to")

    @pytest.mark.parametrize(("claimed", "block"), [("8.8.8.8/24", "8.8.0.0/16"), ("10.66.6.6/8", "10.0.0.0/8")])
    def test_an_address_in_nobodys_plan(self, claimed: str, block: str) -> None:
        """All ranks would connect to what one host says, whose ever it is."""
        facts_by_host = fleet("A2", 3)
        fact = facts_by_host["node2"][DeviceAddresses]
        assert isinstance(fact, DeviceAddresses)
        facts_by_host["node2"][DeviceAddresses] = DeviceAddresses(by_npu={**fact.by_npu, 3: ip_interface(claimed)})
        expected = f"expected one of the other hosts' ranges (no other has one in {block})"
        assert refused(facts_by_host) == (
            True,
            [f"node2: NPU 3 says device IP {claimed.partition('/')[0]}; {expected}"],
        )

    def test_devices_that_a_family_cannot_run_on(self) -> None:
        wrong, lines = refused(fleet("A1"), devices=(2, 3, 4, 5))
        assert wrong and lines[0].startswith("rank-table-a1-layout: ")

    def test_a_device_that_is_not_there(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node2"][NpuInventory] = inventory([0, 1, 2, 4, 5, 6, 7], on_bus=8)
        wrong, lines = refused(facts_by_host)
        assert wrong and lines[0].startswith("node2: NPU 3 has no device file (npu-missing)")
        assert refused(facts_by_host, devices=(2, 3)) == (True, ["node2: NPU 3 has no device file"])
        assert built_table(facts_by_host, devices=(0, 1)).npus == 4

    def test_hosts_with_different_npus(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node2"][NpuInventory] = inventory(range(7))
        wrong, lines = refused(facts_by_host)
        assert wrong and lines[0].startswith("the hosts have different NPUs (node2: NPU 0, 1, 2, 3, 4, 5, 6; node1: ")

    def test_a_host_without_npus(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node2"] = dict.fromkeys(REQUIRED_FACTS, Absent("the host has no NPU"))
        assert refused(facts_by_host)[0]

    def test_several_families(self) -> None:
        wrong, lines = refused({"node1": healthy("A1", 0), "node2": healthy("A2", 1)})
        assert wrong and "several product families" in lines[0]

    def test_a_family_that_has_another_form(self) -> None:
        facts_by_host = fleet("A2")
        for facts in facts_by_host.values():
            facts[NpuProduct] = NpuProduct(family="A5", evidence="")
        assert refused(facts_by_host) == (True, ["the NPUs are of the family A5; expected A1, A2 or A3"])

    def test_a3_without_its_super_pod(self) -> None:
        facts_by_host = fleet("A3")
        facts_by_host["node2"][SuperPodId] = facts_by_host["node2"][SuperDevices] = Absent(
            "this product has no super pods"
        )
        assert refused(facts_by_host) == (False, ["node2: this product has no super pods"])

    def test_an_sdid_that_was_not_told_or_is_another_devices(self) -> None:
        facts_by_host = fleet("A3")
        sdids = {npu: SuperDevice(tables.sdid(0, npu), 0) for npu in range(1, 16)}
        sdids[5] = SuperDevice(tables.sdid(0, 6), 0)
        facts_by_host["node1"][SuperDevices] = SuperDevices(by_npu=sdids, unread={"NPU 0": "no answer"})
        wrong, lines = refused(facts_by_host)
        assert not wrong and lines[0] == "node1: NPU 0: no answer"
        assert lines[1] == f"node1: NPU 5: its SDID {tables.sdid(0, 6)} is that of another device"

    def test_a_host_whose_npus_are_in_several_super_pods(self) -> None:
        facts_by_host = fleet("A3")
        facts_by_host["node1"][SuperPodId] = SuperPodId(id=4, server_index=0, size=384)
        assert refused(facts_by_host) == (False, ["node1: npu-smi names several super pods: 0, 4; expected one a host"])

    def test_super_pods_whose_hosts_do_not_stand_together(self) -> None:
        facts_by_host = fleet("A3", 3)
        for n, pod in enumerate((0, 1, 0)):
            facts_by_host[f"node{n + 1}"] = {**healthy("A3", n, pod), DeviceAddresses: ports("A3", n)}
        wrong, lines = refused(facts_by_host)
        assert wrong and lines[0].startswith("rank-table-super-pod-wrong: ")

    def test_a_path_that_hccl_refuses(self) -> None:
        facts_by_host = fleet("A2")
        with pytest.raises(RankTableBuildError, match="rank-table-path-refused"):
            build_verified(
                tuple(facts_by_host),
                lambda host, fact: facts_by_host[host][fact],
                "/job/table.txt",
                LaunchConfig(),
                (),
                {},
            )

    def test_what_a_host_says_is_shown_without_its_control_characters(self) -> None:
        facts_by_host = fleet("A2")
        facts_by_host["node1"][DeviceAddresses] = Unreadable("\x1b[31mred\x1b[0m\nalert")
        assert refused(facts_by_host) == (False, ["node1: red alert"])


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Facts]:
    """Hosts of which any fact may be missing, unread, or another than it should be."""
    family = draw(st.sampled_from(sorted(COUNTS)))
    result = {}
    for n in range(draw(st.integers(1, 3))):
        facts = healthy(draw(st.sampled_from([family] * 9 + ["A2"])), n, draw(st.integers(0, 1)))
        removed = draw(st.sets(st.integers(0, 7), max_size=1))
        outlier: st.SearchStrategy[tuple[type[Fact], Fact | Absent]] = st.sampled_from(
            [
                (NpuInventory, inventory(range(8), on_bus=9)),
                (NpuInventory, inventory([0, 1, 3])),
                (DeviceAddresses, ports(family, n, without=tuple(removed))),
                (DeviceAddresses, ports(family, 0)),
                (DeviceAddresses, DeviceAddresses(by_npu={0: ip_interface("fd00::1/64")}, unset=(1, 2, 3))),
                (HostAddresses, addresses("172.16.0.10", "fe80::1")),
                (SuperPodId, SuperPodId(id=0, server_index=n, size=2)),
                (
                    SuperDevices,
                    SuperDevices(by_npu={npu: SuperDevice(npu, 0) for npu in range(16) if npu not in removed}),
                ),
                *((fact, why) for fact in REQUIRED_FACTS for why in (Absent("none"), LOST)),
            ]
        )
        facts.update(draw(st.lists(outlier, max_size=2)))
        result[
            draw(st.sampled_from([f"node{n}", f"10.1.1.{n}"])) if n else draw(st.sampled_from(["a", "localhost"]))
        ] = facts
    return result


@given(hosts(), st.sampled_from([(), (0,), (0, 1, 2, 3)]), st.sampled_from(["", "A1", "A2", "A3"]))
def test_whatever_hosts_say_there_is_no_table_or_one_that_holds_it_all_and_nothing_else(
    facts_by_host: dict[str, Facts], devices: tuple[int, ...], product: str
) -> None:
    try:
        rank_table = table(built_table(facts_by_host, devices, product))
    except RankTableBuildError as why:
        assert why.problems and all(problem.text.isprintable() for problem in why.problems)
        return
    assert not rank_table.problems and len(rank_table.servers) == len(facts_by_host)
    assert [rank.rank_id for rank in rank_table.ranks] == list(range(len(rank_table.ranks)))
    for facts, server in zip(facts_by_host.values(), rank_table.servers, strict=True):
        present, ips = facts[NpuInventory], facts[DeviceAddresses]
        assert isinstance(present, NpuInventory)
        assert tuple(rank.device_id for rank in server.ranks) == (devices or present.devices)
        for rank in server.ranks:
            npu = rank.device_id
            assert npu is not None
            if rank.device_ips:
                assert isinstance(ips, DeviceAddresses) and rank.device_ips == (str(ips.by_npu[npu].ip),)
            if rank_table.form == "1.2":
                sdids = facts[SuperDevices]
                assert isinstance(sdids, SuperDevices) and rank.super_device_id == str(sdids.by_npu[npu].sdid)


COLUMNS = ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")
ROWS = (("0", "0", "0", "0", "Ascend910"), ("0", "1", "1", "1", "Ascend910"), ("0", "2", "-", "-", "Mcu"))


def npu_map(*rows: Sequence[str]) -> str:
    """What ``npu-smi info -m`` prints."""
    return "".join("\t" + "".join(f"{cell:<31}" for cell in row).rstrip() + "\n" for row in rows)


MAP = npu_map(COLUMNS, *ROWS)
SPOD = """\tSDID                           : {sdid}
\tSuper Pod Size                 : 384
\tSuper Pod ID                   : 3
"""


def read(out: str, code: int = 0) -> SuperDevices:
    return SuperDevices.read(ProbeAnswer({"": Output(out=out, code=code)}, "npu-smi"))


class TestSdids:
    def test_each_die_by_its_physical_id(self) -> None:
        output = f"{MAP}-- 0 0 --\n{SPOD.format(sdid=37748736)}-- 0 1 --\n{SPOD.format(sdid=37814273)}"
        assert read(output).by_npu == {0: SuperDevice(37748736, 3), 1: SuperDevice(37814273, 3)}

    def test_one_that_did_not_tell_hides_no_other(self) -> None:
        super_devices = read(f"{MAP}-- 0 0 --\ndcmi failed. ret is -8005\n-- 0 1 --\n{SPOD.format(sdid=37814273)}")
        assert list(super_devices.by_npu) == [1]
        assert super_devices.unread == {"NPU 0": "its SDID was not reported: dcmi failed. ret is -8005"}

    @pytest.mark.parametrize("sdid", ["-1", "4294967296", "NA", ""])
    def test_no_number_is_taken_for_one(self, sdid: str) -> None:
        assert "NPU 0" in read(f"{MAP}-- 0 0 --\n{SPOD.format(sdid=sdid)}").unread

    def test_without_physical_ids_nothing_is_guessed(self) -> None:
        bare = npu_map(*(row[:3] + row[4:] for row in (COLUMNS, *ROWS[:2])))
        with pytest.raises(Unreadable, match="physical ids"):
            read(f"{bare}-- 0 0 --\n{SPOD.format(sdid=1)}")

    def test_a_product_without_super_pods(self) -> None:
        with pytest.raises(Absent, match="no super pods") as why:
            read(f"{MAP}-- 0 0 --\nThis device does not support querying spod-info.\n")
        assert not isinstance(why.value, Unreadable)

    def test_npu_smi_that_does_not_start(self) -> None:
        with pytest.raises(Unreadable, match="-8005"):
            read("dcmi module initialize failed. ret is -8005\n", code=187)

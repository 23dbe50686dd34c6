# ruff: noqa: E501 - outputs are kept as they were printed
"""What npu-smi and hccn_tool printed on real machines, with the place where each was published.

A number is the id of a public file in the index of GitHub texts that the tests' author read; other sources are named.
Outputs are cut to one to four cards; addresses of hosts are replaced. A table is written by its cells: `table` puts
them in the formats of npu_info_print.c (github.com/hicann/driver), which the published tables have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from doctor.engine.fact import Fact
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, VnicAddresses
from doctor.facts.hccn.link_state import (
    DeviceFec,
    DeviceHealth,
    DeviceLinks,
    DeviceMtu,
    DeviceSpeed,
    LinkHistory,
    UbPorts,
)
from doctor.facts.hccn.neighbour import Neighbours
from doctor.facts.hccn.optics import Optics
from doctor.facts.hccn.traffic import PortCounters, TlsSwitches
from doctor.facts.npu import NpuChips, NpuMemoryErrors, NpuStart
from doctor.facts.npu_health import NpuHealth


class Card(NamedTuple):
    """The cells of one chip: two rows of the table."""

    npu: int
    name: str
    health: str
    power: str
    temperature: str
    bus: str
    aicore: str
    memory: str
    hbm: str = ""
    """``used / total``; empty where the table has no such column."""
    chip: int = 0
    device: int | None = None
    """In the column Phy-ID or Device; None where there is none."""
    hugepages: str = "0    / 0"


class Table(NamedTuple):
    """One published output of ``npu-smi info``."""

    source: str
    layout: str
    """The driver's generation: 20, 22p (PCIe cards), 22, 23 (to 25), a3, 26, 950."""
    cards: tuple[Card, ...]
    processes: tuple[tuple[int, int, int, str, int], ...] | None = ()
    """npu, chip, pid, name, megabytes; None where the output has no such list."""


HEADS = {
    "20": (
        "| NPU   Name           | Health        | Power(W)   Temp(C)                          |",
        "| Chip                 | Bus-Id        | AICore(%)  Memory-Usage(MB)  HBM-Usage(MB)  |",
    ),
    "20p": (
        "| NPU     Name      | Health          | Power(W)          Temp(C)              |",
        "| Chip    Device    | Bus-Id          | AICore(%)         Memory-Usage(MB)     |",
    ),
    "22p": (
        "| NPU     Name      | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |",
        "| Chip    Device    | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |",
    ),
    "23": (
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
    ),
    "a3": (
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
    ),
    "26": (
        "| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |",
        "| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |",
    ),
    "26a3": (
        "| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |",
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |",
    ),
    "950": (
        "| NPU ID | Name             | Health        | Power(W)              Temp(C)                  Hugepages-Usage(page) |",
        "|        |                  | Bus-Id        | NPU Util(%)           Memory-Usage(MB)         HBM-Usage(MB)         |",
    ),
}
PROCESSES = {
    "23": "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
    "26": "| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |",
    "950": "| NPU ID | Process id | Process name | Process memory(MB) | Process id in container |",
}
RULE = "+===========================+===============+====================================================+"


def text_of(table: Table) -> str:
    """The output as it was published."""
    layout = {"22": "23"}.get(table.layout, table.layout)
    lines = [
        "| npu-smi                          Version:                                              |",
        RULE,
        *HEADS[layout],
        RULE,
    ]
    for card in table.cards:
        pages = "" if layout.startswith("20") else card.hugepages
        device = "" if card.device is None else card.device
        hbm = f"{card.hbm:<20}" if card.hbm else ""
        if layout == "950":
            lines += [
                f"| {card.npu:<7}| {card.name:<17}| {card.health:<13} | {card.power:<21} {card.temperature:<24} {pages:<21} |",
                f"|        |                  | {card.bus:<13} | {card.aicore:<21} {card.memory:<24} {hbm} |",
                RULE,
            ]
            continue
        lines += [
            f"| {card.npu:<5} {card.name:<20}| {card.health:<13} | {card.power:<11} {card.temperature:<17} {pages:<20} |",
            f"| {card.chip:<5} {device:<20}| {card.bus:<13} | {card.aicore:<11} {card.memory:<17} {hbm} |",
            RULE,
        ]
    if table.processes is not None:
        kind = {"a3": "23", "26a3": "26"}.get(layout, layout)
        lines += [PROCESSES[kind], RULE]
        for npu in dict.fromkeys(card.npu for card in table.cards):
            rows = [row for row in table.processes if row[0] == npu]
            for _, chip, pid, name, size in rows:
                first = f"{npu:<6}" if kind == "950" else f"{npu:<7} {chip:<18}"
                last = " | NA" if kind in ("26", "950") else ""
                lines.append(f"| {first}| {pid:<13} | {name:<24} | {size:<23}{last} |")
            if not rows:
                lines.append(f"| No running processes found in NPU {npu:<61}|")
            lines.append(RULE)
    return "\n".join(lines) + "\n"


def _a2(
    source: str, name: str, power: str, heat: str, hbm: str, bus: str = "C1", npu: int = 0, use: str = "0"
) -> Table:
    total = 32768 if name == "910B4" else 65536
    card = Card(npu, name, "OK", power, heat, f"0000:{bus}:00.0", use, "0    / 0", f"{hbm:<5}/ {total}")
    return Table(source, "23", (card,))


def _p3(source: str, npu: int, power: str, heat: str, bus: str, memory: str, pages: str = "0    / 0") -> Table:
    card = Card(npu, "310P3", "OK", power, heat, f"0000:{bus}.0", "0", memory, device=0, hugepages=pages)
    return Table(source, "22p", (card,), None)


def _a3(
    source: str, npu: int, power: str, heat: tuple[str, str], buses: str, hbm: str, second_hbm: str = "2886"
) -> Table:
    first, second = buses.split()
    return Table(
        source,
        "a3",
        (
            Card(
                npu,
                "Ascend910",
                "OK",
                power,
                heat[0],
                f"0000:{first}:00.0",
                "0",
                "0    / 0",
                f"{hbm:<5}/ 65536",
                0,
                2 * npu,
            ),
            Card(
                npu,
                "Ascend910",
                "OK",
                "-",
                heat[1],
                f"0000:{second}:00.0",
                "0",
                "0    / 0",
                f"{second_hbm:<5}/ 65536",
                1,
                2 * npu + 1,
            ),
        ),
    )


def _950(source: str, cards: tuple[tuple[int, str, str, str], ...]) -> Table:
    return Table(
        source,
        "950",
        tuple(
            Card(npu, "Ascend950DT", "OK", power, heat, "NA", "0", "0     / 0", hbm) for npu, power, heat, hbm in cards
        ),
    )


GITHUB = "https://github.com"
TABLES = (
    Table(
        "23177451582",
        "20",
        (Card(1, "910A", "OK", "64.3", "56", "0000:3B:00.0", "0", "1809 / 15079", "0    / 32768"),),
        None,
    ),
    Table("35427982", "20p", (Card(0, "310", "OK", "12.8", "58", "NA", "0", "5324 / 8192", device=0),), None),
    Table(
        "16008868316",
        "20p",
        (
            Card(1, "310", "OK", "12.8", "49", "0000:01:00.0", "0", "2621 / 8192", device=0),
            Card(1, "310", "OK", "12.8", "49", "0000:02:00.0", "0", "2621 / 8192", chip=1, device=1),
        ),
        None,
    ),
    Table(
        "6840481596",
        "22",
        (
            Card(
                0,
                "910A",
                "OK",
                "70.9",
                "42",
                "0000:C1:00.0",
                "0",
                "839  / 15170",
                "1    / 32768",
                hugepages="15   / 15",
            ),
        ),
        None,
    ),
    Table(
        "19598780047",
        "22",
        (Card(0, "910B", "OK", "79.4", "82", "0000:81:00.0", "0", "1979 / 15039", "0    / 32768"),),
        None,
    ),
    _p3("33125398883", 0, "16.5", "55", "5E:00", "931  / 21534"),
    _p3("33310516247", 0, "16.3", "53", "86:00", "4060 / 21534", "1236 / 1236"),
    _p3("33175525517", 0, "16.6", "57", "3B:00", "928  / 21534"),
    _p3("30235179836", 0, "17.0", "56", "AF:00", "934  / 23054"),
    _p3("33137498260", 0, "16.2", "42", "86:00", "994  / 21534"),
    _p3("33124491508", 0, "16.6", "56", "5E:00", "935  / 21534"),
    _p3("33432935697", 0, "15.8", "42", "82:00", "1074 / 21534"),
    _p3("4750576588", 24, "NA", "29", "04:00", "1832 / 21527", "0     / 0"),
    _p3("69733643878", 8, "NA", "37", "01:00", "1700 / 21527", "0     / 0"),
    _p3("68342986727", 7, "NA", "28", "00:07", "1805 / 21527"),
    Table(
        "55765264920",
        "23",
        (Card(0, "910ProB", "OK", "78.0", "38", "0000:C1:00.0", "0", "2387 / 13553", "18   / 32768"),),
    ),
    Table(
        "55895830697",
        "23",
        (Card(2, "910ProB", "OK", "81.1", "39", "0000:41:00.0", "0", "2322 / 15137", "1    / 32768"),),
    ),
    Table(
        "19066239295",
        "23",
        (Card(0, "910ProB", "OK", "78.4", "33", "0000:C1:00.0", "0", "1198 / 15137", "30711/ 32768"),),
    ),
    Table(
        "47328205758", "23", (Card(0, "910B", "OK", "70.0", "34", "0000:C1:00.0", "0", "1197 / 13553", "1365 / 32768"),)
    ),
    Table(
        "683211123",
        "23",
        (Card(3, "910A", "OK", "62.2", "26", "0000:01:00.0", "0", "2280 / 15039", "0    / 32768"),),
        None,
    ),
    _a2("35041893655", "910B1", "88.4", "46", "4175"),
    _a2("55757354507", "910B2", "96.0", "27", "3367"),
    _a2("55713913938", "910B2", "105.8", "39", "3385"),
    _a2("54499359984", "910B2", "93.2", "47", "60185", use="75"),
    _a2("55868847182", "910B2", "94.2", "49", "3418"),
    _a2("55645963941", "910B2", "87.6", "32", "3411"),
    _a2("56340313131", "910B2", "97.1", "50", "7752", use="12"),
    _a2("66447762371", "910B2", "100.0", "39", "3396", bus="82", npu=3),
    _a2("55786539992", "910B3", "98.9", "38", "3382"),
    _a2("71242126865", "910B3", "101.9", "33", "3401"),
    _a2("61879522355", "910B3", "92.9", "37", "3379"),
    _a2("55923024144", "910B3", "96.8", "32", "54592"),
    _a2("48481759566", "910B3", "86.0", "40", "3346", bus="00"),
    _a2("4482934460", "910B3", "101.8", "43", "3318"),
    _a2("55740058012", "910B3", "98.2", "52", "3434"),
    _a2("55700688591", "910B3", "94.7", "54", "3396"),
    _a2("55679380908", "910B3", "97.6", "52", "3525"),
    _a2("55609443347", "910B4", "88.2", "36", "2825"),
    _a2("15813287092", "910B4", "84.7", "38", "2894"),
    _a2("22901721966", "910B4", "85.6", "38", "2856", bus="82", npu=6),
    _a2("53158314138", "910B4", "88.9", "39", "2858", bus="C2", npu=2),
    _a2("63164490375", "910B4", "89.9", "39", "2922", bus="41", npu=5),
    _a2("56060985908", "910B4", "89.3", "39", "2861"),
    _a2("55746573298", "910B4-1", "92.3", "31", "12566"),
    _a2("62364825216", "910B4-1", "93.6", "32", "3381"),
    _a2("55778048582", "910B4-1", "131.1", "48", "57347", bus="D8", use="27"),
    _a2("55917495226", "910B4-1", "94.5", "40", "3403"),
    _a2("57425777187", "910B4-1", "91.8", "36", "3451"),
    _a2("55754080942", "910B4-1", "78.2", "40", "61825", bus="0E"),
    _a2("55767919799", "910B2C", "89.2", "38", "3384", bus="5A"),
    _a2("55727702102", "910B2C", "89.7", "44", "60333", bus="5A"),
    _a2("55984475691", "910B2C", "87.1", "37", "3415", bus="5A"),
    _a2("56008744194", "910B2C", "90.4", "42", "3424", bus="5A"),
    _a2("7609497121", "910B2C", "88.6", "51", "20701", bus="5A"),
    _a2("53958226239", "910B2C", "87.8", "31", "3406", bus="52", npu=2),
    Table(
        "71515803684", "23", (Card(0, "910B2C", "OK", "118.6", "47", "0000:6B:02.0", "6", "0    / 0", "35738/ 65536"),)
    ),
    Table(
        "58189977989",
        "23",
        (
            Card(0, "910B2C", "OK", "92.1", "45", "0000:5A:00.0", "37", "0    / 0", "3383 / 65536"),
            Card(16, "910 B4", "Warning", "72.1", "42", "0000:15:00.0", "0", "0    / 0", "3383 / 65536"),
        ),
    ),
    Table(
        "60449313016",
        "26a3",
        (
            Card(0, "Ascend910", "OK", "161.9", "32", "0000:9D:00.0", "0", "0    / 0", "3101 / 65536", 0, 0),
            Card(0, "Ascend910", "Warning", "-", "32", "0000:9F:00.0", "0", "0    / 0", "2887 / 65536", 1, 1),
            Card(1, "Ascend910", "OK", "164.2", "32", "0000:99:00.0", "0", "0    / 0", "3101 / 65536", 0, 2),
        ),
    ),
    _a3("56066603368", 0, "160.7", ("45", "45"), "9D 9F", "3103"),
    _a3("62750761173", 4, "170.7", ("49", "51"), "8D 8F", "51255"),
    _a3("55948488721", 0, "164.0", ("29", "30"), "9D 9F", "3142"),
    _a3("55656072479", 0, "164.4", ("48", "47"), "9D 9F", "26690"),
    _a3("55603417208", 0, "166.9", ("38", "37"), "9D 9F", "46536"),
    _a3("56013052830", 0, "166.1", ("37", "36"), "9D 9F", "3160"),
    Table(
        "55519366107", "26", (Card(0, "910B4", "OK", "82.6", "32", "0000:C1:00.0", "0", "0    / 0", "2871 / 32768"),)
    ),
    Table(
        "62388240498",
        "26",
        (
            Card(0, "910B3", "OK", "97.8", "49", "0000:41:00.0", "0", "0    / 0", "8402 / 65536"),
            Card(7, "910B3", "OK", "93.3", "51", "0000:42:00.0", "0", "0    / 0", "3403 / 65536"),
        ),
        ((0, 0, 485946, "pytest", 5175),),
    ),
    Table(
        "71014905143",
        "26",
        (
            Card(0, "910B3", "OK", "90.7", "37", "0000:C1:00.0", "7", "0    / 0", "53984/ 65536"),
            Card(1, "910B3", "OK", "96.9", "36", "0000:C2:00.0", "42", "0    / 0", "52314/ 65536"),
        ),
        ((0, 0, 1712733, "sglangschedul", 48954),),
    ),
    Table(
        "58001464955",
        "26",
        (Card(0, "910B2", "OK", "90.0", "44", "0000:C1:00.0", "0", "0    / 0", "41842/ 65536"),),
        ((0, 0, 1732754, "python", 150), (0, 0, 1732755, "python", 151), (0, 0, 1732756, "python", 152)),
    ),
    Table(
        "58047478853", "26", (Card(0, "910B2", "OK", "424.0", "64", "0000:C1:00.0", "100", "0    / 0", "3396 / 65536"),)
    ),
    _a2("55997965163", "910B2", "98.4", "37", "3431"),
    _a2("55111396809", "910B3", "90.4", "32", "41697"),
    _a2("55946853436 (23.0.7)", "910B3", "102.8", "55", "3338"),
    _a2("56051235135", "910B2C", "89.1", "40", "3397", bus="5A"),
    _a2("55749987090 (part of a host)", "910B4", "94.3", "51", "2842", bus="82", npu=3),
    _a2("69458785966", "910B2C", "93.7", "52", "32446", bus="DA", npu=4),
    _a2("66144030120 (second card)", "910B2", "93.7", "43", "3400", bus="01", npu=1),
    _a2("55849260511", "910B3", "93.7", "32", "3389"),
    _a2("https://github.com/vllm-project/vllm-ascend/issues/5680", "910B2C", "94.8", "40", "3407", bus="18", npu=9),
    _a3("56074866481", 0, "174.3", ("37", "36"), "9D 9F", "3440"),
    _a3("https://github.com/vllm-project/vllm-ascend/issues/2534", 0, "178.5", ("36", "36"), "9D 9F", "3416"),
    _a3("https://github.com/vllm-project/vllm-ascend/issues/2658", 0, "178.8", ("36", "36"), "9D 9F", "3414"),
    _a3("https://github.com/vllm-project/vllm-ascend/issues/5588", 0, "163.6", ("30", "30"), "9D 9F", "3180"),
    _a3("https://github.com/vllm-project/vllm-ascend/issues/4989", 0, "165.3", ("36", "36"), "9D 9F", "3143"),
    Table(
        "https://github.com/vllm-project/vllm-ascend/issues/12980",
        "26a3",
        (
            Card(0, "Ascend910", "OK", "162.6", "34", "0000:9D:00.0", "0", "0    / 0", "3419 / 65536", device=0),
            Card(0, "Ascend910", "OK", "-", "34", "0000:9F:00.0", "0", "0    / 0", "2874 / 65536", chip=1, device=1),
        ),
    ),
    Table(
        "https://github.com/Syllo/nvtop/issues/421",
        "22p",
        (
            Card(2, "310P3", "OK", "NA", "45", "0000:01:00.0", "0", "1529 / 44280", device=0),
            Card(2, "310P3", "OK", "NA", "43", "0000:01:00.0", "0", "1412 / 43693", chip=1, device=1),
        ),
        None,
    ),
    Table(
        "https://github.com/ollama/ollama/issues/5315",
        "22p",
        (
            Card(1, "310P3", "OK", "NA", "59", "0000:01:00.0", "0", "1397 / 44280", device=0),
            Card(1, "310P3", "OK", "NA", "58", "0000:01:00.0", "0", "1520 / 43693", chip=1, device=1),
        ),
        None,
    ),
    Table(
        "https://www.hiascend.com/forum/thread-02114177666655790005-1-1.html (six cards in Alarm)",
        "22p",
        tuple(
            Card(
                npu,
                "310B1",
                "Alarm",
                "0.0",
                heat,
                f"0000:{11 + npu}:00.0",
                "0",
                f"{used} / 7578",
                device=npu,
                hugepages="15    / 15",
            )
            for npu, heat, used in ((0, "49", 600), (1, "54", 597), (2, "54", 570), (3, "52", 570))
        ),
        None,
    ),
    Table(
        "29234661060 (310B1, on the board)",
        "22p",
        (Card(0, "310B1", "OK", "9.2", "53", "NA", "0", "3841 / 11577", device=0, hugepages="15    / 15"),),
        None,
    ),
    Table(
        "17119126156 (310B4, on the board)",
        "22p",
        (Card(0, "310B4", "OK", "7.7", "54", "NA", "0", "2166 / 3513", device=0, hugepages="15    / 15"),),
        None,
    ),
    Table(
        "32263206914 (the documentation's own)",
        "23",
        (Card(0, "xxx", "OK", "0.0", "40", "0000:C1:00.0", "0", "882  / 15169", "0    / 32768"),),
    ),
    _a3(f"{GITHUB}/ModelEngine-Group/unified-cache-management/issues/748", 0, "166.5", ("38", "37"), "9D 9F", "3131"),
    _a3(f"{GITHUB}/vllm-project/vllm-ascend/issues/2035", 0, "178.8", ("36", "36"), "9D 9F", "3397", "3186"),
    _a3(f"{GITHUB}/vllm-project/vllm-ascend/issues/2526", 0, "178.9", ("36", "36"), "9D 9F", "57784", "57831"),
    _a3(f"{GITHUB}/vllm-project/vllm-ascend/issues/2082", 1, "188.5", ("36", "36"), "99 9B", "3414", "3193"),
    Table(
        f"{GITHUB}/1Panel-dev/1Panel/issues/9472",
        "23",
        (
            Card(0, "910B4", "OK", "88.2", "30", "0000:C1:00.0", "0", "0    / 0", "26838/ 32768"),
            Card(1, "910B4", "OK", "87.0", "30", "0000:C2:00.0", "0", "0    / 0", "29356/ 32768"),
        ),
    ),
    _a3(f"{GITHUB}/vllm-project/vllm-ascend/issues/2971", 0, "178.7", ("37", "36"), "9D 9F", "3419", "3196"),
    _a3(f"{GITHUB}/vllm-project/vllm-ascend/issues/6245", 0, "166.4", ("43", "43"), "9D 9F", "3158", "2882"),
    Table(
        f"{GITHUB}/vllm-project/vllm-ascend/issues/7225",
        "a3",
        (
            Card(0, "Ascend910", "OK", "226.8", "53", "0000:9D:00.0", "13", "0    / 0", "63503/ 65536", device=0),
            Card(0, "Ascend910", "OK", "-", "53", "0000:9F:00.0", "14", "0    / 0", "62149/ 65536", 1, 1),
        ),
    ),
    Table(
        f"{GITHUB}/vllm-project/vllm-ascend/issues/676",
        "23",
        (
            Card(0, "910B2C", "OK", "97.2", "46", "0000:5A:00.0", "0", "0    / 0", "3373 / 65536"),
            Card(1, "910B2C", "OK", "102.0", "48", "0000:19:00.0", "0", "0    / 0", "3378 / 65536"),
        ),
    ),
    Table(
        f"{GITHUB}/vllm-project/vllm-ascend/issues/16983",
        "26a3",
        (
            Card(0, "Ascend910", "OK", "167.2", "39", "0000:9D:00.0", "0", "0    / 0", "3136 / 65536", device=0),
            Card(0, "Ascend910", "OK", "-", "41", "0000:9F:00.0", "0", "0    / 0", "2874 / 65536", 1, 1),
        ),
    ),
    _950("57425777187 (950)", ((0, "398.6", "46", "4765  / 98304"),)),
    _950("57815710624", ((0, "380.7", "44", "6632  / 86016"),)),
    _950("61879522355 (950)", ((0, "377.2", "48", "4857  / 98304"),)),
)


class Printed(NamedTuple):
    """One published output of another command, and what a fact must make of it."""

    source: str
    fact: type[Fact]
    text: str
    expected: Any
    """The value of `summary`, or the start of the reason why there is none."""
    code: int = 0


M4 = "        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
M5 = "        NPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID                    Chip Name\n"
MC = "github.com/Ascend/mind-cluster, ascend-faultdiag, npu_info_before.txt"
AFTER = "github.com/Ascend/mind-cluster, ascend-faultdiag, npu_info_after.txt, "
DOC = "github.com/Ascend/mind-cluster, docs"
DRIVER = "github.com/hicann/driver, cmd.c"
NO_IP = "Get ipconf failed, because no ip was preset there!\n"
DCMI = "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n"
HEALTHY = "        Health Status                  : OK\n        Error Code                     : NA\n        Error Information              : NA\n"

OTHERS = (
    Printed(
        "51937753831",
        NpuStart,
        "dcmi model initialized failed, because the device is used. ret is -8020\nnpu get board type failed. ret is -9005\n",
        "busy",
        187,
    ),
    Printed(
        "53777317832 (link_stat)",
        LinkHistory,
        "[device 0]current time        : Wed Jun  7 10:08:28 2023\n[device 0]link up count       : 2\n[device 0]link change records :\n[device 0]    Tue Jun  6 16:32:12 2023    LINK UP\n[device 0]    Tue Jun  6 16:32:10 2023    LINK DOWN\n[device 0]    Tue Jun  6 16:31:55 2023    LINK UP\n",
        ("UP", "DOWN", "UP"),
    ),
    Printed(
        "59536816552 (link_stat)",
        LinkHistory,
        "[devid 0]current time        : Tue Oct 28 21:46:46 2025\n[devid 0]link up count       : 2\n[devid 0]link down count     : 1\n[devid 0]link change records :\n[devid 0]    Sun Oct  5 10:13:51 2025    LINK UP\n[devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN\n[devid 0]    Sun Oct  5 10:13:35 2025    LINK UP\n",
        ("UP", "DOWN", "UP"),
    ),
    Printed(
        "56688913900 (optical)",
        Optics,
        "optical info:\npresent              : not present\nTx Power             : 4.4035 mW\nRx Power             : 1.0189 mW\nTxPower High Thres   : 3.5481 mW\nRx Los Flag          : 0xff\n",
        "unset",
    ),
    Printed(
        MC,
        NpuChips,
        M4.replace("        NPU", "\tNPU")
        + "\t0                              0                              0                              Ascend 910A\n",
        [(0, 0, 0, "Ascend 910A")],
    ),
    Printed(
        "44432403459",
        NpuChips,
        M4
        + "        0                              0                              0                              Ascend 910B4\n        0                              1                              -                              Mcu\n",
        [(0, 0, 0, "Ascend 910B4")],
    ),
    Printed(
        "npu_info_print.c:657",
        NpuChips,
        M5
        + "        0                              0                              0                              0                              Ascend910\n        0                              1                              1                              1                              Ascend910\n        0                              2                              -                              -                              Mcu\n",
        [(0, 0, 0, "Ascend910"), (0, 1, 1, "Ascend910")],
    ),
    Printed(
        "npu_info_print.c:708",
        NpuChips,
        "\tNPU ID                         Slot ID                        Chip ID                        Chip Phy-ID                    Chip Name\n\t3                              4                              0                              3                              Ascend950DT\n",
        [(3, 0, 3, "Ascend950DT")],
    ),
    Printed(
        "https://github.com/Ascend/cann-container-image/issues/46",
        NpuStart,
        "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi model initialized failed, because the device is used. ret is -8020\n",
        "busy",
        1,
    ),
    Printed(
        "https://github.com/vllm-project/vllm-ascend/issues/2698",
        NpuStart,
        "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005\n",
        "driver",
        187,
    ),
    Printed("22356890441", NpuStart, "dcmi module initialize failed. ret is -8005\n", "driver", 187),
    Printed("67071018501", NpuChips, DCMI, "npu-smi does not start", 187),
    Printed("67071018501 (-l)", NpuStart, DCMI, "driver", 187),
    Printed("npu_info_print.c:653", NpuStart, "There is no NPU card on this server.\n", 0),
    Printed(
        "40330509255",
        NpuStart,
        "        Total Count                    : 8\n\n        NPU ID                         : 0\n        Chip Count                     : 2\n",
        8,
    ),
    Printed(
        "npu_info_print.c:731",
        NpuStart,
        "\tNPU ID                         : 5\n\tProduct Name                   : IT21DMDC\n\tSerial Number                  : 033\n\tChip Count                     : 4\n",
        1,
    ),
    Printed(
        "npu_info_print.c:744",
        NpuStart,
        "\tCard Count                     : 1\n\n\tNPU ID                         : 0\n\tChip Count                     : 1\n",
        1,
    ),
    Printed("53777317832 (health)", NpuHealth, HEALTHY, [("OK", ())]),
    Printed(
        "54502256982",
        NpuHealth,
        "        NPU ID                         : 0\n        Health                         : OK\n        Error Code                     : NA\n        Error Information              : NA\n",
        [("OK", ())],
    ),
    Printed(
        "70433195142",
        NpuHealth,
        "        Health Status                  : Warning\n        Error Code                     : 80E01801\n        Error Information              : node type=SOC, sensor type=Temperature\n",
        [("Warning", ("80E01801",))],
    ),
    Printed(
        "71007819012 (two chips in Alarm, MCU OK)",
        NpuHealth,
        "        NPU ID                         : 7\n        Chip Count                     : 2\n\n"
        + "".join(HEALTHY.replace("OK", "Alarm") + f"        Chip ID                        : {n}\n\n" for n in (0, 1))
        + HEALTHY
        + "        Chip Name                      : MCU\n",
        [("Alarm", ()), ("Alarm", ())],
    ),
    Printed(
        "npu_info_print.c:1766",
        NpuHealth,
        "\tHealth Status                  : Alarm\n\tError Code                     : 80E18402 80E01801\n\tError Information              : multi bit\n\n\t                               : over temperature\n",
        [("Alarm", ("80E18402", "80E01801"))],
    ),
    Printed(
        "54972459463",
        NpuMemoryErrors,
        "        NPU ID                                   : 0\n        HBM Single Bit Error Count               : 0\n        HBM Double Bit Error Count               : 0\n        HBM Single Bit Aggregate Total Err Cnt   : 0\n        HBM Double Bit Aggregate Total Err Cnt   : 0\n        HBM Single Bit Isolated Pages Count      : 0\n        HBM Double Bit Isolated Pages Count      : 0\n        HBM Single Bit Next-Isolated Pages Count : 0\n        HBM Double Bit Next-Isolated Pages Count : 0\n",
        (0, 0),
    ),
    Printed(
        "54267743870",
        NpuMemoryErrors,
        "        DDR Double Bit Error Count               : 0\n        DDR Double Bit Isolated Pages Count      : 0\n        HBM Single Bit Error Count               : 0\n        HBM Double Bit Error Count               : 0\n        HBM Double Bit Isolated Pages Count      : 0\n        Chip ID                                  : 0\n",
        (0, 0),
    ),
    Printed(
        "npu_info_print.c:1676",
        NpuMemoryErrors,
        "\tSingle-bit Error Count                   : 1\n\tDouble-bit Error Count                   : 2\n",
        (2, 0),
    ),
    Printed(
        "55599165151, the labels of Ascend 950",
        NpuMemoryErrors,
        "\tNPU ID                                   : 0\n\tHBM Single Bit Error Count               : 4\n"
        "\tHBM Double Bit Error Count               : 0\n\tHBM Single Bit Aggregate Total Err Cnt   : 4\n"
        "\tHBM Double Bit Aggregate Total Err Cnt   : 1\n\tHBM Pending Retire Page Count            : 0\n"
        "\tHBM Isolated Page Count                  : 17\n",
        (0, 17),
    ),
    Printed("35041893655 (ip)", DeviceAddresses, "ipaddr:29.1.112.213\nnetmask:255.255.0.0\n", "29.1.112.213/16"),
    Printed("66446349410 (ip)", DeviceAddresses, "ipaddr:10.86.1.80\nnetmask:255.255.255.0\n", "10.86.1.80/24"),
    Printed(MC + " (ip)", DeviceAddresses, "ipaddr:192.161.200.10\nnetmask:255.255.255.0\n", "192.161.200.10/24"),
    Printed("57397663065", DeviceAddresses, f"{NO_IP}-- inet6 --\n{NO_IP}", "unset", 13),
    Printed(DRIVER + " (gateway)", DeviceGateways, "default gateway:11.12.165.1, Iface:eth0\n", "11.12.165.1"),
    Printed("MindIE DeepSeek documentation (gateway)", DeviceGateways, "default gateway:11.12.165.1\n", "11.12.165.1"),
    Printed(DRIVER + " (netdetect)", DetectAddresses, "netdetect addr: 11.12.165.1\n", "11.12.165.1"),
    Printed(
        "MindIE DeepSeek documentation (netdetect)", DetectAddresses, "netdetect address: 11.12.165.1\n", "11.12.165.1"
    ),
    Printed("35041893655 (link)", DeviceLinks, "link status: UP\n", "UP"),
    Printed(DRIVER + " (link)", DeviceLinks, "link status: DOWN\n", "DOWN"),
    Printed(DRIVER + " (950)", DeviceLinks, "Please specify a valid mode.\n", "hccn_tool of the 950 family", 1),
    Printed(
        DRIVER + " (VM)",
        DeviceLinks,
        "The VM does not support this command.\n",
        "hccn_tool does not answer this in a virtual",
        21,
    ),
    Printed(DRIVER + " (busy)", DeviceLinks, "hccn_tool is busy, please try again.\n", "hccn_tool stayed busy", 11),
    Printed(
        DRIVER + " (product)",
        DeviceLinks,
        "The command is not supported on this product.\n",
        "hccn_tool does not support this",
        13,
    ),
    Printed("4829747145", DeviceHealth, "net health status: Success\n", "Success"),
    Printed("4570644142", DeviceHealth, "net health status: Fault\n", "Fault"),
    Printed("53777317832 (net health)", DeviceHealth, "net health status: Init\n", "Init"),
    Printed(MC + " (net health)", DeviceHealth, "net health status: Socket failed\n", "Socket fail"),
    Printed(DRIVER + " (speed)", DeviceSpeed, "Speed: 100000 Mb/s\n", 100000),
    Printed(DRIVER + " (no speed)", DeviceSpeed, "Speed: Unknown!\n", "unset"),
    Printed(DRIVER + " (mtu)", DeviceMtu, "mtu:1500\n", 1500),
    Printed(MC + " (fec)", DeviceFec, "fec mode: rs FEC mode\n", "rs"),
    Printed(DRIVER + " (no fec)", DeviceFec, "fec mode: no FEC mode\n", "no"),
    Printed(
        DRIVER + " (vnic)",
        VnicAddresses,
        "vnic link status: UP\nvnic ipaddr: 192.168.2.199\nvnic netmask: 255.255.255.0\n",
        "192.168.2.199",
    ),
    Printed(
        DOC + " (tls)",
        TlsSwitches,
        "dev_id:0, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset), tls alarm time threshold[60]days\n",
        False,
    ),
    Printed(
        MC + " (link_stat)",
        LinkHistory,
        "[devid 0]current time        : Wed Aug  2 03:09:26 2022\n[devid 0]link up count       : 2\n[devid 0]link change records :\n[devid 0]    Tue Aug  1 14:43:40 2022    LINK UP\n[devid 0]    Tue Aug  1 14:43:40 2022    LINK DOWN\n[devid 0]    Tue Aug  1 14:43:26 2022    LINK UP\n",
        ("UP", "DOWN", "UP"),
    ),
    Printed(
        "35041893655 (lldp)",
        Neighbours,
        "Chassis ID TLV\n        MAC: 00:e0:fc:00:00:01\nPort ID TLV\n        Ifname: 400GE1/1/20:2\nSystem Description TLV\n        Versatile Routing Platform Software\nVRP (R) software, Version 8.211 (DX511 V200R021C10SPC600)\n\nHuarong DX511\n\nSystem Capabilities TLV\n        Enabled capabilities: Bridge, Router\nManagement Address TLV\n        IPv4: 26.0.0.1\nMaximum Frame Size TLV\n        9216\nEnd of LLDPDU TLV\n",
        ("switch", "400GE1/1/20:2"),
    ),
    Printed(
        MC + " (optical)",
        Optics,
        "optical info:\npresent              : not present\ntemperature          : 47 C\n",
        "unset",
    ),
    Printed(DRIVER + " (optical)", Optics, "Optical module is not present.\n", "unset", 20),
    Printed(
        "hicann/driver, docs/en/Ascend_950_HCCN_Tool, querying-the-npu-device-information.md",
        UbPorts,
        "+---------+---------+---------------------+-----------+-------------+------------+\n| UDie ID | Port ID | Speed Ability(Gbps) | Port Type | Link Status | Media Type |\n+---------+---------+---------------------+-----------+-------------+------------+\n| 0       | 4       | 400                 | UB        | UP          | Electrical |\n| 0       | 5       | 400                 | UB        | UP          | Electrical |\n| 0       | 6       | 400                 | UB        | UP          | Electrical |\n+---------+---------+---------------------+-----------+-------------+------------+\n+-----------------+--------------------------------------------+--------------------------------------------+-----------+-----------------+\n| Interface Name  | IP Address                                 | Netmask                                    | Bond Mode | Slaves          |\n+-----------------+--------------------------------------------+--------------------------------------------+-----------+-----------------+\n| end0v0          | 192.168.2.199                              | 255.255.255.0                              | NA        | NA              |\n| ipourma0        | ::10:0:dfdf:51                             | ffff:ffff:ffff:ffff::                      | NA        | NA              |\n|                 | ::10:0:dfdf:30                             | ffff:ffff:ffff:ffff::                      |           |                 |\n+-----------------+-----------+-----------------------------------------+\n| Name            | EID Index | EID                                     |\n| udma1           | 0         | 0000:0000:0000:0000:0010:0000:dfdf:0020 |\n",
        "{'0/4': 'UP', '0/5': 'UP', '0/6': 'UP'}",
    ),
    Printed(
        "the same, a single card of Atlas 350: no valid port",
        UbPorts,
        "| Interface Name  | IP Address                                 | Netmask                                    | Bond Mode | Slaves          |\n| end0v0          | 192.168.2.199                              | 255.255.255.0                              | NA        | NA              |\n",
        "the NPU has no UB port",
    ),
    Printed(
        AFTER + "kg_parse",
        NpuHealth,
        "\tHealth Status                  : Alarm\n\tError Code                     : A4025021 8C03A000 8C084E00\n"
        "\tError Information              : ascend_monitor adda heart beat lost error\n\n"
        "\t                               : node type=process-manager, sensor type=General Software, "
        "event state=The process start failed or exit abnormally\n\n"
        "\t                               : node type=adda, sensor type=Heartbeat Sensor, event state=Heartbeat Lost.\n",
        [("Alarm", ("A4025021", "8C03A000", "8C084E00"))],
    ),
    Printed(
        AFTER + "kg_parse (link_stat)",
        LinkHistory,
        "[devid 0]current time        : Wed Aug  2 03:36:43 2022\n[devid 0]link up count       : 2\n"
        "[devid 0]link change records :\n[devid 0]    Tue Aug  1 14:44:40 2022    LINK DOWN\n"
        "[devid 0]    Tue Aug  1 14:43:40 2022    LINK UP\n[devid 0]    Tue Aug  1 14:43:40 2022    LINK DOWN\n"
        "[devid 0]    Tue Aug  1 14:43:26 2022    LINK UP\n",
        ("DOWN", "UP", "DOWN", "UP"),
    ),
    Printed(
        AFTER + "st_cqe_testcase (ip)", DeviceAddresses, "ipaddr:192.1.45.172\nnetmask:255.255.0.0\n", "192.1.45.172/16"
    ),
    Printed(
        AFTER + "kg_parse (stat: two counters of all)",
        PortCounters,
        2 * "packet statistics:\nroce_rx_err_pkt_num:0\nroce_tx_err_pkt_num:0\n-- again --\n",
        "PortGrowth(errors={}, pauses={})",
    ),
    Printed(
        "github.com/Ascend/mind-cluster, hccn_tool_test.go: columns without blanks, two dies",
        UbPorts,
        "+--------+--------+--------+----------+-------------+------------+\n"
        "| UdieID | PortID | Speed  | PortType | Link Status | Media Type |\n"
        "+--------+--------+--------+----------+-------------+------------+\n"
        "| 0      | 4      | 200    | ETH      | DOWN        | Electrical |\n"
        "| 0      | 5      | 200    | ETH      | UP          | Electrical |\n"
        "| 1      | 8      | 200    | UB       | DOWN        | Optical    |\n"
        "| 1      | 9      | 200    | UB       | UP          | Optical    |\n"
        "+--------+--------+--------+----------+-------------+------------+\n",
        "{'0/4': 'DOWN', '0/5': 'UP', '1/8': 'DOWN', '1/9': 'UP'}",
    ),
)

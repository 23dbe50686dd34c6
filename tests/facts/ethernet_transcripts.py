# ruff: noqa: E501 - outputs are kept as they were printed
"""What ethtool -m and -S printed on real machines, each with the public page that shows it; rows that nobody reads are left out.

Rows that a mail had broken in two are joined. Two files of the collection go-ethtool-metrics were changed by its authors,
who needed values that differ; they are here as what no module says.
"""

from __future__ import annotations

NETDEV = "https://lore.kernel.org/netdev"
COLLECTION = "https://github.com/newrushbolt/go-ethtool-metrics commit b7c6c517, testdata"


def _rows(text: str) -> str:
    """In ethtool's columns: ``name | value`` a line."""
    pairs = (line.split(" | ") for line in text.strip().splitlines())
    return "".join(f"\t{name:<41} : {value}\n" for name, value in pairs)


def _limits(name: str, *values: str) -> str:
    edges = ("high alarm", "low alarm", "high warning", "low warning")
    return "".join(f"{name} {edge} threshold | {value}\n" for edge, value in zip(edges, values, strict=True))


def _celsius(*values: float) -> tuple[str, ...]:
    return tuple(f"{value:.2f} degrees C / {value * 1.8 + 32:.2f} degrees F" for value in values)


AVAGO = (
    _rows(  # NETDEV/1bee73de-d4c3-456d-8cee-f76eee7194b0@ans.pl: 40GBASE-SR4 in a ConnectX-3, one lane of four in use
        """
Identifier | 0x0d (QSFP+)
Connector | 0x0c (MPO Parallel Optic)
Module temperature | 42.17 degrees C / 107.90 degrees F
Module voltage | 3.2917 V
Alarm/warning flags implemented | Yes
Laser tx bias current (Channel 1) | 6.662 mA
Laser tx bias current (Channel 2) | 0.000 mA
Laser tx bias current (Channel 3) | 0.000 mA
Laser tx bias current (Channel 4) | 0.000 mA
Transmit avg optical power (Channel 1) | 0.7119 mW / -1.48 dBm
Transmit avg optical power (Channel 2) | 0.0000 mW / -inf dBm
Transmit avg optical power (Channel 3) | 0.0000 mW / -inf dBm
Transmit avg optical power (Channel 4) | 0.0000 mW / -inf dBm
Rcvr signal avg optical power(Channel 1) | 0.7682 mW / -1.15 dBm
Rcvr signal avg optical power(Channel 2) | 0.0000 mW / -inf dBm
Rcvr signal avg optical power(Channel 3) | 0.0000 mW / -inf dBm
Rcvr signal avg optical power(Channel 4) | 0.0000 mW / -inf dBm
Laser rx power low alarm    (Channel 2) | Off
"""
        + _limits("Laser bias current", "10.000 mA", "0.500 mA", "9.500 mA", "1.000 mA")
        + _limits("Laser output power", *["0.0000 mW / -inf dBm"] * 4)
        + _limits("Module temperature", *_celsius(75, -5, 70, 0))
        + _limits("Module voltage", "3.6300 V", "2.9700 V", "3.4650 V", "3.1349 V")
        + _limits(
            "Laser rx power",
            *("2.1878 mW / 3.40 dBm", "0.0446 mW / -13.51 dBm", "1.7378 mW / 2.40 dBm", "0.1122 mW / -9.50 dBm"),
        )
    )
)
ARISTA = _rows(  # netdev, "ethtool: JSON output for --module-info", 2024: QDD-400G-XDR4, four lanes of eight in use
    """
Identifier | 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628))
Module State | 0x03 (ModuleReady)
Module temperature | 70.49 degrees C / 158.89 degrees F
Module voltage | 3.2186 V
Laser tx bias current (Channel 1) | 83.806 mA
Laser tx bias current (Channel 4) | 110.100 mA
Laser tx bias current (Channel 5) | 0.000 mA
Transmit avg optical power (Channel 1) | 1.5975 mW / 2.03 dBm
Transmit avg optical power (Channel 4) | 1.4387 mW / 1.58 dBm
Transmit avg optical power (Channel 5) | 0.0000 mW / -inf dBm
Rcvr signal avg optical power (Channel 1) | 2.2489 mW / 3.52 dBm
Rcvr signal avg optical power (Channel 4) | 1.8215 mW / 2.60 dBm
Rcvr signal avg optical power (Channel 5) | 0.0000 mW / -inf dBm
Module temperature high alarm | Off
Module temperature high warning | On
"""
    + _limits("Laser bias current", "130.000 mA", "10.000 mA", "125.000 mA", "15.000 mA")
    + _limits(
        "Laser output power",
        *("3.5481 mW / 5.50 dBm", "0.4074 mW / -3.90 dBm", "2.8184 mW / 4.50 dBm", "0.5129 mW / -2.90 dBm"),
    )
    + _limits("Module temperature", *_celsius(75, -5, 70, 0))
    + _limits("Module voltage", "3.6300 V", "3.0500 V", "3.4650 V", "3.1350 V")
    + _limits(
        "Laser rx power",
        *("3.5481 mW / 5.50 dBm", "0.1288 mW / -8.90 dBm", "2.8184 mW / 4.50 dBm", "0.2042 mW / -6.90 dBm"),
    )
)
DELL_DARK = _rows(  # public file 53238510496: 25GBASE-SR of Dell, whose laser has no current
    """
Identifier | 0x03 (SFP)
Laser bias current | 0.000 mA
Laser output power | 0.0000 mW / -inf dBm
Receiver signal average optical power | 0.0000 mW / -inf dBm
Module temperature | 29.90 degrees C / 85.82 degrees F
Module voltage | 3.3528 V
Alarm/warning flags implemented | Yes
Laser bias current low alarm | On
Laser rx power low alarm | On
"""
    + _limits("Laser bias current", "13.000 mA", "0.500 mA", "11.000 mA", "1.000 mA")
    + _limits(
        "Laser output power",
        *("2.1878 mW / 3.40 dBm", "0.1148 mW / -9.40 dBm", "1.7378 mW / 2.40 dBm", "0.1445 mW / -8.40 dBm"),
    )
    + _limits("Module temperature", *_celsius(90, -5, 88, 0))
    + _limits("Module voltage", "3.5000 V", "3.0800 V", "3.4800 V", "3.1000 V")
    + _limits(
        "Laser rx power",
        *("2.1878 mW / 3.40 dBm", "0.0741 mW / -11.30 dBm", "1.7378 mW / 2.40 dBm", "0.0933 mW / -10.30 dBm"),
    )
)
WEAK_LASER = _rows(  # public file 17454850552: an SFP+ module of 2016
    """
Identifier | 0x03 (SFP)
Laser bias current | 0.394 mA
Laser output power | 0.0251 mW / -16.00 dBm
Receiver signal average optical power | 0.0000 mW / -inf dBm
Module temperature | 29.54 degrees C / 85.16 degrees F
Module voltage | 3.3194 V
Alarm/warning flags implemented | Yes
"""
    + _limits("Laser bias current", "13.200 mA", "2.000 mA", "12.600 mA", "3.000 mA")
    + _limits(
        "Laser output power",
        *("1.0000 mW / 0.00 dBm", "0.1585 mW / -8.00 dBm", "0.7943 mW / -1.00 dBm", "0.1995 mW / -7.00 dBm"),
    )
    + _limits("Module temperature", *_celsius(78, -13, 73, -8))
    + _limits("Module voltage", "3.7000 V", "2.9000 V", "3.6000 V", "3.0000 V")
    + _limits(
        "Laser rx power",
        *("1.0000 mW / 0.00 dBm", "0.0100 mW / -20.00 dBm", "0.7943 mW / -1.00 dBm", "0.0158 mW / -18.01 dBm"),
    )
)
OEM_DARK = _rows(  # public file 40523657666: an SFP+ module into which no light comes
    """
Identifier | 0x03 (SFP)
Laser bias current | 6.000 mA
Laser output power | 0.5000 mW / -3.01 dBm
Receiver signal average optical power | 0.0000 mW / -inf dBm
Module temperature | 54.22 degrees C / 129.59 degrees F
Module voltage | 3.3368 V
Alarm/warning flags implemented | Yes
"""
    + _limits("Laser bias current", "15.000 mA", "1.000 mA", "13.000 mA", "2.000 mA")
    + _limits(
        "Laser output power",
        *("1.9952 mW / 3.00 dBm", "0.1584 mW / -8.00 dBm", "1.5848 mW / 2.00 dBm", "0.1778 mW / -7.50 dBm"),
    )
    + _limits("Module temperature", *_celsius(80, -10, 75, -5))
    + _limits("Module voltage", "3.6000 V", "3.0000 V", "3.5000 V", "3.1000 V")
    + _limits(
        "Laser rx power",
        *("1.1220 mW / 0.50 dBm", "0.0199 mW / -17.01 dBm", "1.0000 mW / 0.00 dBm", "0.0223 mW / -16.52 dBm"),
    )
)
OEM_T8 = _rows(  # the same host: a sound module for a copper cable, with values like those of light
    """
Identifier | 0x03 (SFP)
Laser bias current | 6.000 mA
Laser output power | 0.5010 mW / -3.00 dBm
Receiver signal average optical power | 0.5010 mW / -3.00 dBm
Module temperature | 67.64 degrees C / 153.75 degrees F
Module voltage | 3.2538 V
Alarm/warning flags implemented | Yes
"""
    + _limits("Laser bias current", "15.000 mA", "1.000 mA", "13.000 mA", "2.000 mA")
    + _limits(
        "Laser output power",
        *("1.1220 mW / 0.50 dBm", "0.1862 mW / -7.30 dBm", "1.0000 mW / 0.00 dBm", "0.2344 mW / -6.30 dBm"),
    )
    + _limits("Module temperature", *_celsius(80, -10, 75, -5))
    + _limits("Module voltage", "3.5999 V", "2.9000 V", "3.5000 V", "3.0000 V")
    + _limits(
        "Laser rx power",
        *("1.1220 mW / 0.50 dBm", "0.0645 mW / -11.90 dBm", "1.0000 mW / 0.00 dBm", "0.0812 mW / -10.90 dBm"),
    )
)
CUMULUS_ONES = _rows(  # public file 6753360411: a guide of Cumulus Linux; the memory of the module reads as ones
    """
Identifier | 0xff (reserved or unknown)
Optical diagnostics support | Yes
Laser bias current | 130.046 mA
Laser output power | 6.5025 mW / 8.13 dBm
Receiver signal average optical power | 6.5535 mW / 8.16 dBm
Module temperature | 0.00 degrees C / 32.00 degrees F
Module voltage | 6.5282 V
Alarm/warning flags implemented | Yes
Laser rx power high alarm threshold | 6.5535 mW / 8.16 dBm
Laser rx power low alarm threshold | 6.5535 mW / 8.16 dBm
"""
)
TRANSITION = _rows(  # NETDEV/CAM0+VB-Zwr2Z+s1SS_rqokWcku43dwbZcRRFHZRdZJLFpkxXdQ@mail.gmail.com: ixgbe, 10GBASE-LR
    """
Identifier | 0x03 (SFP)
Optical diagnostics support | Yes
Laser bias current | 32.066 mA
Laser output power | 0.5547 mW / -2.56 dBm
Receiver signal average optical power | 0.0001 mW / -40.00 dBm
Module temperature | 41.05 degrees C / 105.90 degrees F
Module voltage | 3.2768 V
Laser rx power low alarm | On
Laser rx power low warning | On
"""
    + _limits("Laser bias current", "100.000 mA", "6.000 mA", "90.000 mA", "7.000 mA")
    + _limits(
        "Laser output power",
        *("1.2589 mW / 1.00 dBm", "0.1349 mW / -8.70 dBm", "1.1220 mW / 0.50 dBm", "0.1514 mW / -8.20 dBm"),
    )
    + _limits("Module temperature", *_celsius(75, -5, 70, 0))
    + _limits("Module voltage", "3.6300 V", "2.9700 V", "3.4650 V", "3.1350 V")
    + _limits(
        "Laser rx power",
        *("1.2589 mW / 1.00 dBm", "0.0490 mW / -13.10 dBm", "1.1220 mW / 0.50 dBm", "0.0550 mW / -12.60 dBm"),
    )
)
INTEL_SR = _rows(  # COLLECTION/intel/i40e/02_sfp_10_or_25g_sr/src/module_info
    """
Identifier | 0x03 (SFP)
Laser bias current | 6.762 mA
Laser output power | 0.5155 mW / -2.88 dBm
Receiver signal average optical power | 0.5964 mW / -2.24 dBm
Module temperature | 40.01 degrees C / 104.02 degrees F
Module voltage | 3.3081 V
"""
    + _limits(
        "Laser output power",
        *("1.2589 mW / 1.00 dBm", "0.1995 mW / -7.00 dBm", "1.0000 mW / 0.00 dBm", "0.2512 mW / -6.00 dBm"),
    )
    + _limits("Module temperature", *_celsius(75, -5, 70, 0))
    + _limits(
        "Laser rx power",
        *("1.2589 mW / 1.00 dBm", "0.0282 mW / -15.50 dBm", "1.0000 mW / 0.00 dBm", "0.0355 mW / -14.50 dBm"),
    )
)
COPPER_RJ45 = _rows(  # the same mail as TRANSITION: a 10GBASE-T module in an ixgbe, which measures nothing
    """
Identifier | 0x03 (SFP)
Connector | 0x22 (RJ45)
Transceiver type | 10G Ethernet: 10G Base-SR
Laser wavelength | 0nm
"""
)
PASSIVE = _rows(  # https://github.com/fedora-python/python-ethtool/issues/36
    """
Identifier | 0x03 (SFP)
Connector | 0x21 (Copper pigtail)
Transceiver type | Passive Cable
Passive Cu cmplnce. | 0x00 (unspecified) [SFF-8472 rev10.4 only]
"""
)
ALL_ONES = _rows(  # Cumulus RMP 3.2.1, "Monitoring Interfaces and Transceivers Using ethtool": the EEPROM reads as 0xff
    """
Identifier | 0xff (reserved or unknown)
Optical diagnostics support | Yes
Laser bias current | 130.046 mA
Receiver signal average optical power | 6.5535 mW / 8.16 dBm
Module temperature | 0.00 degrees C / 32.00 degrees F
Module voltage | 6.5282 V
Module temperature high alarm | On
"""
    + _limits("Module temperature", *_celsius(-1, 0, 0, 0))
)
ALL_ZEROS = (
    _rows(  # the form that sonic-net/sonic-buildimage's reports have of a module whose diagnostics cannot be read
        """
Identifier | 0x03 (SFP)
Laser bias current | 0.000 mA
Laser output power | 0.0000 mW / -inf dBm
Receiver signal average optical power | 0.0000 mW / -inf dBm
Module temperature | 0.00 degrees C / 32.00 degrees F
Module voltage | 0.0000 V
"""
    )
)
CONTRADICTING = _rows(  # COLLECTION/broadcom/bnxt_en/00_sfp_10gsr85/src/module_info, changed by its authors
    """
Identifier | 0x03 (SFP)
Laser bias current | 99.168 mA
Receiver signal average optical power | 2.7310 mW / 4.36 dBm
Module temperature | 0.00 degrees C / 32.00 degrees F
Module temperature low alarm | On
"""
    + _limits("Module temperature", *_celsius(3.02, 7.06, 0, 0.25))
)
FAILURES = (
    (  # a ConnectX whose firmware gets no answer from the cable
        "netlink error: mlx5_core: Query module eeprom by page failed, read 0 bytes, err -5, status 3\nnetlink error: Input/output error\n",
        1,
    ),
    ("netlink error: Input/output error\n", 1),  # netdev, "ice: retry of AQ commands": E810, EBUSY of the firmware
    (  # netdev, mlx4 with ethtool 5.13 and later: page A0h is printed, page A2h fails
        PASSIVE + "netlink error: Input/output error\nFailed to read Page A2h.\n",
        1,
    ),
    ("Cannot get module EEPROM information: Input/output error\n", 1),  # Mellanox/mstflint issue 33
)
WITHOUT_MODULE = (
    "Cannot get module EEPROM information: Operation not supported\n",  # r8169, virtio_net: no function for it
    "netlink error: Operation not supported\n",
    "Cannot get module EEPROM information: Invalid argument\n",  # netdev 2019, i40e X722; mlxsw: port module type
    "netlink error: mlxsw_core: EEPROM is not equipped on port module type\nnetlink error: Invalid argument\n",
    "Cannot get Module EEPROM data: Invalid argument\n",
)
MLX5_SICK = """NIC statistics:
     rx_crc_errors_phy: 13147323
     rx_symbol_err_phy: 13115284
     rx_err_lane_0_phy: 13115284
     rx_err_lane_1_phy: 13115284
"""
"""A ConnectX-6 DX whose optics draw too much power: wirt.ee, "100G AIOM: Power budget exceeded", 2023."""
MLX5_SMALL = """NIC statistics:
     rx_packets_phy: 15005729
     rx_crc_errors_phy: 386
     rx_symbol_err_phy: 386
     rx_discards_phy: 0
     tx_discards_phy: 0
     link_down_events_phy: 0
     rx_pcs_symbol_err_phy: 386
     rx_corrected_bits_phy: 17750739
     rx_err_lane_3_phy: 17722623
     tx_pci_signal_integrity: 2
     rx_prio0_discards: 0
     tx_pause_storm_warning_events: 0
     tx_pause_storm_error_events: 0
     module_high_temp: 0
"""
"""An operator's annotated statistics of an mlx5 card: "if rx_crc_errors_phy goes on growing, replace the card"."""
I40E_SICK = """NIC statistics:
     rx_errors: 13551
     rx_crc_errors: 13551
     port.rx_crc_errors: 13551
     port.rx_length_errors: 0
"""
"""An operator's page about ethtool, "Show interface error count by type"."""
I40E_HEALTHY = """NIC statistics:
     rx_unicast: 33003654827
     rx_dropped: 3
     rx_unicast.nic: 33003654962
     rx_csum_bad.nic: 4757
     rx_crc_errors.nic: 1
     fdir_sb_status.nic: 1
"""
"""COLLECTION/intel/i40e/02_sfp_10_or_25g_sr/src/statistics."""
MLX5_DISCARDS = "NIC statistics:\n     rx_prio3_discards: 12478561\n     rx_discards_phy: 0\n"
"""A page about jobs that hang in NCCL: the switch port's buffer was too small."""
MLX5_PAUSES = """NIC statistics:
     rx_discards_phy: 0
     tx_pause_ctrl_phy: 1266552
     tx_global_pause_duration: 555665182
     tx_pause_storm_warning_events: 0
     tx_pause_storm_error_events: 0
"""
"""A ConnectX-4 Lx whose host takes packets too slowly: an operator's page about its pauses."""
R8169 = """NIC statistics:
     tx_packets: 0
     rx_errors: 0
     rx_missed: 0
     align_errors: 0
     tx_underrun: 0
"""
"""https://github.com/isc-projects/ethq/issues/3"""
VIRTIO = "NIC statistics:\n     rx_queue_0_packets: 77805\n     rx_queue_0_drops: 0\n"
"""https://github.com/netdata/netdata/issues/17015"""

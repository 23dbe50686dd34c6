"""The state of every NPU's network port from hccn_tool, and its settings in /etc/hccn.conf."""

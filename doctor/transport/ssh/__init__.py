"""SSH by paramiko, with the settings of the ssh configuration."""

"""SSH by the OpenSSH client."""

"""From the id of a job to its hosts and its logs, whatever started it."""

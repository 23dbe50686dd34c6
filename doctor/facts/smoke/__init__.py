"""The events of the smoke run's ranks, host by host; one module a stage."""

"""Reports: the findings of a run as text, JSON and other formats, explained and compared."""

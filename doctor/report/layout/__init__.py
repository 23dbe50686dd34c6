"""Building blocks that every report format shares."""

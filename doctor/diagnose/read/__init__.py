"""Files to events: open, split into lines, match signatures."""

"""A diagnosis as text: for a terminal, as Markdown, as JSON."""

"""Reports as one HTML file that needs nothing else: values, charts, templates, style and script."""

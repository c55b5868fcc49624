"""What is drawn: the timeline, its dialects for other tools, the panels of the page, plots, graphs of ops."""

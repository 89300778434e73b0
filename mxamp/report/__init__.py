"""The report: what happened to each node and why."""

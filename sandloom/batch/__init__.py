"""Batches: a file of jobs over a fleet, each run once, from wherever an earlier run of the batch stopped.

``jobs graph retries plan progress junit`` decide and do no I/O; ``journal ways rest celery attempts runner`` act.
"""

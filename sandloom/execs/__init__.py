"""Execs: commands from admission to their receipt, and their events."""

"""What is taken back: leases that lapsed, sandboxes that idle, commands that wait too long, rows that are old."""

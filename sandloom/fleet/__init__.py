"""Workers: leases, epochs, and the slots they have."""

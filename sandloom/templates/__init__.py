"""Templates: trees that one sandbox publishes and others mount read-only."""

"""Files of a sandbox as the control plane sees them."""

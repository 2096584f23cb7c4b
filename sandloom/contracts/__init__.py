"""What the parts promise each other: ports (protocols) and the wire models of REST and tasks."""

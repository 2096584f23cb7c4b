"""Messages to workers: signed envelopes, queues, publishing, replies. Submodules are imported by name."""

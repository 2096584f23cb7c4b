"""The execution engine: one frozen ``Spec`` in, one ``Verdict`` out. Linux and the standard library only.

Nothing is imported here on purpose: a caller names the module it needs, and the spawner process loads only its own.
"""

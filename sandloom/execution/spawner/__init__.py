"""The spawner: a small single-threaded process that owns every process of every command.

It is started as ``python -I -S`` and imports only the standard library and this package, so that a fork is cheap and
nothing of the worker (settings, secrets, descriptors) is in the address space that forks.
"""

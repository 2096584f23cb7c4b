"""The meter: a small process that counts what sandboxes have on the disk.

Counting a large tree takes seconds of Python; here no command and no call waits for it. Like the spawner it is started
as ``python -I -S`` and imports only the standard library and this package.
"""

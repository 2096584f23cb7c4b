"""What is in C: the steps between fork and exec, and the writing of archives.

It is built where the project is installed, if a compiler is there; ``spawner/child.py`` and ``archive_out.py`` do the
same and take over where no library is found.
"""

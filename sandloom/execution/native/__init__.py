"""The steps between fork and exec in C, for a spawner without the cost of a fork of Python.

``start.c`` is built where the project is installed, if a compiler is there; ``spawner/child.py`` does the same and
takes over where no library is found.
"""

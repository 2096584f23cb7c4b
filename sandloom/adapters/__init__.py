"""Sandboxes under the interfaces of agent frameworks: one module and one extra of the same name for each.

Importing this package loads none of them.
"""

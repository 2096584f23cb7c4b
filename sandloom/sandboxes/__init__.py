"""Sandboxes: who owns which, since when, and what may happen to them next."""

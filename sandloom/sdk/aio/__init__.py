"""The client for ``asyncio``. The synchronous one beside it is made from these modules by
``scripts/sync_sdk.py``: change these, then run it. ``waiting`` is the one module that exists twice."""

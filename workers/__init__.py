"""The worker node: a Celery worker that owns the workspaces, uids and processes of its sandboxes."""

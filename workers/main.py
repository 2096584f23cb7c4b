"""One worker of a fleet, as a process."""

from __future__ import annotations

from sandloom.settings import Settings
from workers.node import Node
from workers.services import open_services
from workers.stopping import StopSignals, wait

EXIT_SUPERSEDED = 1


def run(settings: Settings) -> int:
    """Until TERM (0) or until another life of this worker has begun (1). Raises what stops a start."""
    services = open_services(settings)
    node = Node(settings, services)
    StopSignals(node.ended, node.hurry).install()
    try:
        node.start()
        try:
            wait(node.ended)
        finally:
            node.stop()
    finally:
        services.close()
    return EXIT_SUPERSEDED if node.superseded.is_set() else 0

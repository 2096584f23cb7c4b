"""Removes from the broker what no row needs any more."""

from __future__ import annotations

from sandloom.broker.cleaning import Cleaner
from sandloom.reclaim.queues import UnusedQueues
from sandloom.telemetry import get_logger

log = get_logger("sandloom.workers.broker_cleaning")


class BrokerCleaning:
    """Remembers what it removed, so that workers that are dead for ever cost the broker nothing."""

    def __init__(self, queues: UnusedQueues, cleaner: Cleaner) -> None:
        self._queues = queues
        self._cleaner = cleaner
        self._after = ""
        self._done: dict[str, int] = {}

    def remove_queues(self) -> int:
        """One batch; the next call goes on behind it. A broker that is down is asked again then."""
        found = self._queues.after(self._after)
        due = {worker_id: epoch for worker_id, epoch in found if self._done.get(worker_id) != epoch}
        removed = 0
        if due:
            try:
                removed = self._cleaner.remove_workers(list(due))
            except Exception as error:  # clients raise what they like
                log.warning("queues of dead workers stay for now", reason=type(error).__name__)
                return 0
            self._done |= due
        self._after = found[-1][0] if len(found) == self._queues.batch_size else ""
        if removed:
            log.info("queues of dead workers removed", number=removed, workers=list(due))
        return removed

    def expire_replies(self) -> None:
        try:
            ended = self._cleaner.expire_replies()
        except Exception as error:
            log.warning("replies of remote control stay for now", reason=type(error).__name__)
            return
        if ended:
            log.info("replies that nobody fetched will end", number=ended)

"""Every Celery setting that is set, with its reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kombu import Queue

from sandloom.broker.consuming import CONSUMING_TRANSPORT
from sandloom.broker.queues import (
    MAINTENANCE_QUEUE,
    broker_url,
    is_amqp,
    is_redis,
    queue,
    tls_options,
    transport_options,
)  # fmt: skip
from sandloom.direct.routing import foreign_router, task_router
from sandloom.settings import Settings

#: Direct clients collect a result within this; the record itself stays readable for HISTORY_RETENTION_DAYS.
RESULT_EXPIRES_SECONDS = 86_400
RING_AGAIN_SECONDS = 15
PRUNE_SECONDS = 3_600


def celery_settings(settings: Settings, queues: list[Queue]) -> dict[str, Any]:
    """The configuration of a process that consumes ``queues``."""
    return {
        **_messages(),
        **_broker(settings),
        **_results(settings),
        **_worker(settings),
        # What each kind of process hears is its own affair.
        "task_queues": queues,
        # A queue that nobody consumes would swallow messages: a name that is not declared is an error.
        "task_create_missing_queues": False,
        # Nothing is bound: a queue is reached under its own name, and what names none is maintenance.
        "task_default_queue": MAINTENANCE_QUEUE,
        "task_default_exchange": "",
        "task_default_routing_key": MAINTENANCE_QUEUE,
        # Few, since the rows say what is due; see below.
        "beat_schedule": beat_schedule(settings),
        # The longest sleep of the scheduler, and so of its stop.
        "beat_max_loop_interval": 1,
        # Logs are set up once, by sandloom.telemetry; Celery's own set-up would double and reformat them.
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # Workers of a fleet may live in several zones.
        "timezone": "UTC",
        "enable_utc": True,
    }


def _messages() -> dict[str, Any]:
    return {
        # Only JSON is decoded: a pickled message would run code of whoever reaches the broker.
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        # Headers, and with them the redacted reprs, exist in protocol 2 only.
        "task_protocol": 2,
        # The row decides what runs, so a message is done when it was read: redelivery could only ring again.
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        # A doorbell that nobody hears is rung again from its row; a message needs to survive no restart of a worker.
        "task_track_started": False,
        # What follows in a chain or chord goes to the owner, or to whoever consumes the tasks of others.
        "task_routes": (task_router, foreign_router),
        # Retrying is for rows to decide, never for a publisher that holds a thread.
        "task_publish_retry": False,
    }


def _broker(settings: Settings) -> dict[str, Any]:
    return {
        # ``memory://`` is kombu's own transport, which polls; ours does not.
        "broker_url": broker_url(settings.broker_url),
        # kombu keeps each message that was taken in Redis until it is acknowledged; a doorbell is in its row.
        "broker_transport": CONSUMING_TRANSPORT if is_redis(settings.broker_url) else None,
        # Redis: the prefix, and sockets that notice a dead peer. RabbitMQ: what is passed on is confirmed.
        "broker_transport_options": transport_options(settings.broker_url, settings.broker_namespace, consume=True),
        # By default kombu checks no certificate.
        "broker_use_ssl": tls_options(settings.broker_url),
        # None would open a connection per message.
        "broker_pool_limit": 10,
        # An outage of the broker ends no command: reconnect for ever, also when it comes up after the worker.
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # What a broker refuses on a channel is repaired like a lost connection.
        "broker_channel_error_retry": True,
        # AMQP: a peer that vanished without closing is noticed within two of these.
        "broker_heartbeat": 20,
        # The consumer's loop stands still while it connects.
        "broker_connection_timeout": 5,
    }


def _results(settings: Settings) -> dict[str, Any]:
    """Results exist for direct clients; messages of the API carry ``ignore_result``."""
    redis = is_redis(settings.result_backend or "")
    return {
        # Redis also beside RabbitMQ: a result in a queue can be read once, and by one process.
        "result_backend": settings.result_backend,
        # Nobody else removes what a client never fetched.
        "result_expires": timedelta(seconds=RESULT_EXPIRES_SECONDS),
        # Only written here, never read: one client with its pool serves all threads instead of one for each.
        "result_backend_thread_safe": True,
        # Deployments that share a Redis server do not share results either.
        "result_backend_transport_options": {"global_keyprefix": f"{settings.broker_namespace}:"} if redis else {},
        # Celery refuses rediss:// without a word on certificates.
        "redis_backend_use_ssl": tls_options(settings.result_backend or ""),
        # A lane's thread must not wait for long to store a result; the record has it in any case.
        "redis_socket_timeout": 5.0,
        "redis_socket_connect_timeout": 2.0,
        "redis_retry_on_timeout": True,
    }


def _worker(settings: Settings) -> dict[str, Any]:
    rabbitmq = is_amqp(settings.broker_url)
    return {
        # Celery's pools are first in, first out: long commands would hold up cancels and file calls.
        "worker_pool": "workers.pool:LanePool",
        # Drops what cannot be used, and takes doorbells without making tasks of them.
        "worker_consumer": "workers.consumer:Consumer",
        # Lanes have their own threads; the number only shows in Flower.
        "worker_concurrency": 1,
        # Unlimited: a message that waits unacknowledged would keep cancels and file calls behind it in the broker.
        # The lanes are bounded instead, and so is the queue.
        "worker_prefetch_multiplier": 0,
        # Commands that run hold no message, so after a reconnect nothing is to be taken more slowly.
        "worker_enable_prefetch_count_reduction": False,
        # Commands outlive a lost broker connection: their rows say what they do.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # Rate limits would put a token bucket before every message.
        "worker_disable_rate_limits": True,
        # Flower asks workers by remote control; workers/consumer.py keeps the part of it that only looks.
        "worker_enable_remote_control": True,
        # Replies that nobody collects must not stay in the broker.
        "control_queue_expires": 30.0,
        "control_queue_ttl": 30.0,
        # RabbitMQ: an exclusive mailbox locks out a worker that is back before its broken connection was noticed, and a
        # second beat on the same host. One that is neither exclusive nor durable ends with RabbitMQ 4.
        "control_queue_exclusive": not rabbitmq,
        "control_queue_durable": rabbitmq,
        # Whoever watches wants what is new.
        "event_queue_ttl": 5.0,
        "event_queue_expires": 60.0,
        # Task events cost a tenth of the throughput: off until someone watches (Flower's -E switches them on).
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        # A second worker with this name is told apart by its lease; waiting for other workers only delays the start.
        "worker_detect_quorum_queues": False,
    }


def beat_schedule(settings: Settings) -> dict[str, Any]:
    """What beat sends. Each message expires with its period: after an outage there is one, not a backlog."""
    return {
        name: {
            "task": f"sandloom.maintenance.{name}",
            "schedule": timedelta(seconds=seconds),
            "options": {"queue": MAINTENANCE_QUEUE, "expires": seconds, "ignore_result": True},
        }
        for name, seconds in (
            ("reclaim", settings.maintenance_interval_seconds),
            ("ring_again", min(RING_AGAIN_SECONDS, settings.maintenance_interval_seconds)),
            ("prune", PRUNE_SECONDS),
        )
    }


def maintenance_queues() -> list[Queue]:
    """What beat itself consumes, so that reclaiming goes on while every worker is dead."""
    return [queue(MAINTENANCE_QUEUE)]

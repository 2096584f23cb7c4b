"""``Fleet``: a client of the workers themselves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import redis
from celery import Celery
from celery.canvas import Signature
from kombu.exceptions import OperationalError

from sandloom.broker.api_keys import parse
from sandloom.broker.envelope import operator_key, seal
from sandloom.broker.message import REDACTED
from sandloom.broker.publisher import KombuPublisher
from sandloom.broker.queues import (
    DISPATCH_QUEUE,
    broker_url,
    is_memory,
    is_redis,
    queue,
    tls_options,
    transport_options,
)
from sandloom.contracts.rest import RouteAnswer
from sandloom.contracts.templates import TemplateAnswer, TemplateList
from sandloom.direct.applications import add_tasks
from sandloom.direct.results import await_result
from sandloom.direct.routing import QUEUE_HEADER, task_router
from sandloom.direct.sandbox import FleetSandbox
from sandloom.direct.tasks import CALL_SECONDS, LIST_TEMPLATES, RESOLVE, UNPUBLISH_TEMPLATE, checked_arguments
from sandloom.errors import DirectTasksOff, EnvelopeRefused, SettingsInvalid, Unavailable
from sandloom.ids import DEFAULT_TENANT

#: The default of SANDBOX_BROKER_NAMESPACE.
DEFAULT_NAMESPACE: Final = "sandloom"
#: A client may be far away from the broker; a worker's publisher is not.
SOCKET_TIMEOUT_SECONDS: Final = 5.0


class Fleet:
    """Requests are signed with ``api_key``: a tenant's key, which names its tenant, or the operator's token, for which
    ``tenant_id`` may be given. ``result_backend`` is the deployment's; for a Redis broker it is the broker unless
    given. Nothing is contacted before the first call.

    Thread-safe. The embedded mode has its broker inside its own process: ``DirectTasksOff``; use ``sandloom.Client``.
    """

    def __init__(
        self,
        broker_url: str,
        *,
        api_key: str,
        result_backend: str | None = None,
        tenant_id: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        if is_memory(broker_url):
            raise DirectTasksOff("The embedded mode's broker lives inside its process; use sandloom.Client instead.")
        given = parse(api_key)
        self._key = operator_key(api_key) if given is None else given.signing_key
        self._tenant_id = self._key.tenant_id or tenant_id or DEFAULT_TENANT
        if tenant_id not in (None, self._tenant_id):
            raise EnvelopeRefused("the key may not speak for this tenant")
        self._settings = _settings(broker_url, result_backend, namespace)
        self._publisher = KombuPublisher(broker_url, namespace=namespace, timeout_seconds=SOCKET_TIMEOUT_SECONDS)
        self._lock = threading.Lock()
        self._app: Celery | None = None

    @property
    def app(self) -> Celery:
        """The Celery application, for canvas primitives that want one."""
        with self._lock:
            if self._app is None:
                app = Celery("sandloom-client", set_as_current=False, loader="app", fixups=[])
                app.conf.update(self._settings)
                self._app = app
            return self._app

    def sandbox(self, sandbox_id: str, *, scope: str, profile: str = "coding-default") -> FleetSandbox:
        """Resolve a sandbox. Raises NoWorkerAvailable, ScopeMismatch; WorkerLost when no worker answers."""
        args = {"sandbox_id": sandbox_id, "workspace_scope_id": scope, "profile": profile}
        return FleetSandbox(self, RouteAnswer.model_validate(self.call(RESOLVE, args)))

    def templates(self) -> list[TemplateAnswer]:
        """What can be attached: the tenant's own templates and the operator's."""
        return TemplateList.model_validate(self.call(LIST_TEMPLATES, {})).templates

    def unpublish_template(self, name: str) -> TemplateAnswer:
        """Take a name out of the catalog; sandboxes that have it mounted keep it."""
        return TemplateAnswer.model_validate(self.call(UNPUBLISH_TEMPLATE, {"name": name}))

    def add_tasks(self, app: Celery) -> None:
        """Give a Celery application of yours the workers' tasks, signed by this fleet's key when they are sent:
        ``app.tasks["sandloom.exec"].delay(sandbox_id=…, generation=…, exec_id=…, argv=[…])``.

        Its broker, result backend and their namespace become the deployment's, so that what follows in a chain or
        chord reaches its own workers. Call it where the application is made, before anything is sent or consumed.
        """
        add_tasks(app, self.app.conf, self.signature)

    def signature(
        self,
        task: str,
        args: Mapping[str, Any],
        *,
        owner_queue: str | None = None,
        valid_seconds: float = CALL_SECONDS,
    ) -> Signature[Any]:
        """A signed call of ``task`` as a Celery signature: immutable, and refused when it begins after
        ``valid_seconds``. Repeating one is repeating one operation, which is carried out once."""
        envelope = self._seal(task, args, valid_seconds)
        options: dict[str, Any] = {"argsrepr": REDACTED, "kwargsrepr": REDACTED}
        if owner_queue is not None:
            options["headers"] = {QUEUE_HEADER: owner_queue}
        return self.app.signature(task, kwargs={"envelope": envelope}, immutable=True, **options)

    def call(
        self,
        task: str,
        args: Mapping[str, Any],
        *,
        owner_queue: str | None = None,
        valid_seconds: float = CALL_SECONDS,
        wait_seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        """The result of ``task``. Raises the error that the worker met, ``WorkerLost`` without an answer within
        ``wait_seconds``, ``Unavailable`` when broker or result backend cannot be reached."""
        request = {"envelope": self._seal(task, args, valid_seconds)}
        try:
            backend = self._backend()
            task_id = self._publisher.send(owner_queue or DISPATCH_QUEUE, task, request, ignore_result=False)
            answer = await_result(backend, task_id, wait_seconds)
        except (redis.RedisError, OperationalError, OSError) as error:
            raise Unavailable(f"the result backend does not answer ({type(error).__name__})") from None
        return dict(answer or {})

    def close(self) -> None:
        """Close the connections."""
        self._publisher.close()
        with self._lock:
            app, self._app = self._app, None
        if app is not None:
            app.close()

    def _seal(self, task: str, args: Mapping[str, Any], valid_seconds: float) -> dict[str, Any]:
        return seal(
            self._key,
            tenant_id=self._tenant_id,
            task=task,
            args=checked_arguments(task, args),
            deadline_seconds_from_now=valid_seconds,
        )

    def _backend(self) -> Any:
        if self._settings["result_backend"] is None:
            raise SettingsInvalid("results need a result backend: pass result_backend to Fleet")
        return self.app.backend


def _settings(url: str, result_backend: str | None, namespace: str) -> dict[str, Any]:
    """Celery's settings of a client."""
    broker = transport_options(url, namespace, consume=False, timeout_seconds=SOCKET_TIMEOUT_SECONDS)
    if is_redis(url):
        # kombu would try again for as long as it may take, with pauses of seconds.
        broker.update(max_retries=1, interval_start=0, interval_step=0.2, interval_max=0.2)
    backend = result_backend or (url if is_redis(url) else None)
    return {
        "broker_url": broker_url(url),
        "broker_transport_options": broker,
        "broker_use_ssl": tls_options(url),
        "broker_connection_timeout": SOCKET_TIMEOUT_SECONDS,
        "result_backend": backend,
        "redis_backend_use_ssl": tls_options(backend or ""),
        "result_backend_transport_options": {"global_keyprefix": f"{namespace}:"} if is_redis(backend or "") else {},
        # Results are read by key alone (see sandloom.direct.results), which every thread may do with one client.
        "result_backend_thread_safe": True,
        "redis_socket_timeout": SOCKET_TIMEOUT_SECONDS,
        "redis_socket_connect_timeout": SOCKET_TIMEOUT_SECONDS,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_protocol": 2,
        "task_queues": [queue(DISPATCH_QUEUE)],
        "task_default_queue": DISPATCH_QUEUE,
        "task_default_exchange": "",
        "task_routes": (task_router,),
        "task_publish_retry": False,
        "timezone": "UTC",
    }

"""The direct client: what it signs, where it sends it, and that its tasks are those of the workers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from celery import Celery, chain, group

from sandloom.broker.api_keys import KeyMint
from sandloom.broker.envelope import OPERATOR_KEY_ID, Verifier, operator_key
from sandloom.broker.message import REDACTED
from sandloom.broker.queues import worker_queues
from sandloom.contracts.rest import RouteAnswer
from sandloom.direct import Fleet, FleetSandbox, task_router
from sandloom.direct.routing import QUEUE_HEADER, foreign_router
from sandloom.direct.tasks import ARGUMENTS, EXEC, RESOLVE, checked_arguments
from sandloom.errors import DirectTasksOff, EnvelopeRefused, SettingsInvalid, ValidationFailed

TOKEN = "the operator's token"
OWNER = "sandloom.worker.w-1"
ROUTE = RouteAnswer(
    sandbox_id="my-agent",
    workspace_scope_id="team/a",
    worker_id="w-1",
    worker_epoch=1,
    worker_endpoint=OWNER,
    expires_at=None,
    generation=3,
    sandbox_uid=20000,
    status="READY",
    storage_mode="local",
    profile_id="coding-default",
    profile_hash="0" * 16,
    workspace="new",
)
VERIFIER = Verifier({OPERATOR_KEY_ID: operator_key(TOKEN)})


@pytest.fixture
def fleet() -> Fleet:
    return Fleet("redis://:hunter2@127.0.0.1:1/0", api_key=TOKEN, tenant_id="acme")


@pytest.fixture
def box(fleet: Fleet) -> FleetSandbox:
    return FleetSandbox(fleet, ROUTE)


def test_the_tasks_and_their_arguments_are_those_of_the_workers() -> None:
    from workers.tasks import execs
    from workers.tasks.requests import PUBLIC

    theirs = {name: task.model for name, task in PUBLIC.items()} | {EXEC: execs.ExecArgs}
    assert set(ARGUMENTS) == set(theirs)
    for name, model in ARGUMENTS.items():
        assert {field: str(info) for field, info in model.model_fields.items()} == {
            field: str(info) for field, info in theirs[name].model_fields.items()
        }, name


def test_a_signature_carries_one_signed_request(box: FleetSandbox) -> None:
    signature = box.exec_signature(["make"], timeout=60, env={"A": "1"})
    envelope = VERIFIER.open(signature.kwargs["envelope"], task=EXEC)
    exec_id = envelope.args.pop("exec_id")
    assert len(exec_id) == 32
    assert envelope.args == {
        "sandbox_id": "my-agent",
        "generation": 3,
        "argv": ["make"],
        "timeout_seconds": 60,
        "env": {"A": "1"},
    }
    assert (envelope.tenant_id, envelope.reply_to) == ("acme", None)
    assert envelope.remaining_seconds > 80_000


def test_a_signature_for_one_task_is_refused_by_another(box: FleetSandbox) -> None:
    with pytest.raises(EnvelopeRefused):
        VERIFIER.open(box.exec_signature(["make"]).kwargs["envelope"], task=RESOLVE)


def test_a_signature_shows_no_arguments_to_flower_and_survives_json(box: FleetSandbox) -> None:
    signature = box.exec_signature(["make"])
    assert signature.immutable
    assert signature.options["argsrepr"] == signature.options["kwargsrepr"] == REDACTED
    assert json.loads(json.dumps(signature)) == json.loads(json.dumps(dict(signature)))


def test_signatures_work_in_chains_and_groups(box: FleetSandbox) -> None:
    one, two = box.exec_signature(["one"]), box.exec_signature(["two"])
    assert len(chain(one, two).tasks) == 2
    assert len(group(one, two).tasks) == 2


def routed(app: Celery, signature: Any) -> str:
    options = {**signature.options}
    route = app.amqp.router.route(options, signature.task, (), signature.kwargs)
    return str(route["queue"].name)


def test_a_request_goes_to_the_owner_and_without_one_to_dispatch(fleet: Fleet, box: FleetSandbox) -> None:
    assert routed(fleet.app, box.exec_signature(["make"])) == OWNER
    args = {"sandbox_id": "my-agent", "workspace_scope_id": "team/a"}
    assert routed(fleet.app, fleet.signature(RESOLVE, args)) == "sandloom.dispatch"


def test_a_worker_that_creates_no_queues_routes_the_rest_of_a_chain(box: FleetSandbox) -> None:
    app = Celery("worker", broker="memory://", set_as_current=False)
    app.conf.update(task_create_missing_queues=False, task_routes=("sandloom.direct.routing:task_router",))
    assert routed(app, box.exec_signature(["make"])) == OWNER


@pytest.mark.parametrize("owner", [None, "", "other", "sandloom.worker.", "sandloom.worker.../x", 7, ["x"]])
def test_a_header_that_names_no_worker_is_not_followed(owner: Any) -> None:
    route = task_router(EXEC, [], {}, {"headers": {QUEUE_HEADER: owner}})
    assert route is not None
    assert route["queue"].name == "sandloom.dispatch"


def test_tasks_of_others_are_left_to_other_routers() -> None:
    assert task_router("my.task", [], {}, {}) is None


def test_tasks_of_other_applications_go_to_their_queue_and_ours_do_not() -> None:
    theirs = foreign_router("their.task", [], {}, {})
    assert theirs is not None
    assert (theirs["queue"].name, theirs["queue"].no_declare) == ("celery", True)
    for name in (EXEC, "sandloom.maintenance.prune", "celery.backend_cleanup"):
        assert foreign_router(name, [], {}, {}) is None


def test_a_worker_routes_what_follows_to_the_owner_or_to_another_application(box: FleetSandbox) -> None:
    from sandloom.settings import Settings
    from workers.app import create_celery

    environ = {
        "SANDBOX_INTERNAL_TOKEN": "t",
        "SANDBOX_SECRET_KEY": "s",
        "SANDBOX_BROKER_URL": "redis://127.0.0.1:1/0",
    }
    app = create_celery(Settings.load(environ), worker_queues("w-1"))
    assert routed(app, box.exec_signature(["make"])) == OWNER
    assert routed(app, app.signature("their.task")) == "celery"
    assert routed(app, app.signature("sandloom.maintenance.prune")) == "sandloom.maintenance"


def test_an_application_s_tasks_are_sealed_when_they_are_sent(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery("theirs", set_as_current=False)
    app.conf.task_routes = {"their.task": {"queue": "theirs"}}
    fleet.add_tasks(app)
    assert set(ARGUMENTS) <= set(app.tasks)
    assert app.conf.broker_transport_options["global_keyprefix"] == "sandloom:"
    assert app.conf.result_backend == fleet.app.conf.result_backend
    sent: list[tuple[str, Any, dict[str, Any]]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args, kwargs, **options: sent.append((name, kwargs, options)))
    arguments = {"sandbox_id": "my-agent", "generation": 3, "exec_id": "the-exec", "argv": ["make"]}
    app.tasks[EXEC].delay(**arguments)
    (name, kwargs, options) = sent[0]
    envelope = VERIFIER.open(kwargs["envelope"], task=name)
    assert (envelope.args, envelope.tenant_id, options["kwargsrepr"]) == (arguments, "acme", REDACTED)
    assert routed(app, app.signature("their.task")) == "theirs"
    later = app.tasks[EXEC].s(**arguments)
    assert (VERIFIER.open(later.kwargs["envelope"], task=EXEC).args, later.immutable) == (arguments, True)
    with pytest.raises(ValidationFailed):
        app.tasks[EXEC].delay(sandbox_id="my-agent")
    with pytest.raises(TypeError):
        app.tasks[EXEC].delay("my-agent")


def test_wrong_arguments_name_the_field_and_never_the_value(box: FleetSandbox) -> None:
    with pytest.raises(ValidationFailed) as caught:
        box.exec_signature(["make"], env={"A": "hunter2\x00"})
    assert caught.value.extra["errors"][0]["field"] == "env.A"
    assert "hunter2" not in str(caught.value.to_problem())
    with pytest.raises(ValidationFailed):
        checked_arguments(EXEC, {"unknown": 1})


def test_the_embedded_mode_is_told_apart() -> None:
    for url in ("memory://", "sandloom-memory://"):
        with pytest.raises(DirectTasksOff):
            Fleet(url, api_key=TOKEN)


def test_an_unknown_broker_is_a_setting_error() -> None:
    with pytest.raises(SettingsInvalid):
        Fleet("http://broker", api_key=TOKEN)


def test_neither_token_nor_password_shows(fleet: Fleet, box: FleetSandbox) -> None:
    shown = repr(fleet) + repr(box) + repr(box.exec_signature(["make"]))
    assert TOKEN not in shown
    assert "hunter2" not in shown


def test_names_and_arguments_load_without_celery() -> None:
    code = "import sys, sandloom.direct.tasks; sys.exit('celery' in sys.modules or 'kombu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_key_of_a_tenant_signs_for_it_and_for_nobody_else() -> None:
    text = str(KeyMint("secret").new("acme"))
    fleet = Fleet("redis://127.0.0.1:1/0", api_key=text)
    (envelope,) = fleet.signature(RESOLVE, {"sandbox_id": "box", "workspace_scope_id": "x"}).kwargs.values()
    assert (envelope["tenant_id"], envelope["key_id"]) == ("acme", text[4:].rpartition(":")[0])
    assert text.rpartition(":")[2] not in str(envelope)
    assert Verifier(KeyMint("secret").signing_key).open(envelope, task=RESOLVE).tenant_id == "acme"
    with pytest.raises(EnvelopeRefused):
        Verifier(KeyMint("another").signing_key).open(envelope, task=RESOLVE)
    with pytest.raises(EnvelopeRefused):
        Verifier(KeyMint("secret").signing_key).open({**envelope, "tenant_id": "other"}, task=RESOLVE)
    with pytest.raises(EnvelopeRefused):
        Fleet("redis://127.0.0.1:1/0", api_key=text, tenant_id="other")
    fleet.close()

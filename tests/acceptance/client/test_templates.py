"""Templates through a client: names, revisions, mounts, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sandloom import Client
from sandloom.errors import (
    FileExists,
    PathInvalid,
    SandboxBusy,
    TemplateConflict,
    TemplateNotFound,
    ValidationFailed,
)
from sandloom.sdk.sandbox import Sandbox
from tests.acceptance.client.conftest import Run

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def builder(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(scope="templates") as box:
        yield box


@pytest.fixture
def user(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(scope="templates") as box:
        yield box
    for template in client.templates():
        client.unpublish_template(template.name)


def publish(box: Sandbox, name: str, content: str) -> str:
    assert box.run(f"mkdir -p /envs/made && printf %s {content} > /envs/made/file").ok
    return box.publish_template(name, "/envs/made").digest


def content(box: Sandbox, name: str) -> str:
    return box.run(["cat", f"/envs/{name}/file"]).stdout


def test_revisions_pins_and_sets(client: Client, builder: Sandbox, user: Sandbox) -> None:
    first, second = publish(builder, "tool", "one"), publish(builder, "tool", "two")
    assert first != second
    assert publish(builder, "same", "two") == second
    user.attach_templates("tool", "tool", f"tool@{second}", "same")
    assert [content(user, "tool"), content(user, "same")] == ["two", "two"]
    with pytest.raises(TemplateConflict) as refused:
        user.attach_templates("tool", f"tool@{first}")
    assert first in refused.value.detail
    assert second in refused.value.detail
    assert content(user, "tool") == "two"
    [attached] = user.attach_templates(f"tool@{first}")
    assert (attached.digest, attached.mount_target, attached.shared) == (first, "/envs/tool", False)
    assert content(user, "tool") == "one"
    assert user.run("ls -A /envs").stdout.split() == ["tool"]


def test_a_name_that_was_unpublished_cannot_be_attached_pinned_or_not(
    client: Client, builder: Sandbox, user: Sandbox
) -> None:
    digest = publish(builder, "gone", "x")
    user.attach_templates("gone")
    client.unpublish_template("gone")
    for reference in ("gone", f"gone@{digest}", "never"):
        with pytest.raises(TemplateNotFound):
            user.attach_templates(reference)
    with pytest.raises(TemplateNotFound):
        client.unpublish_template("gone")
    assert content(user, "gone") == "x"
    assert "gone" not in [template.name for template in client.templates()]


def test_commands_can_change_neither_a_template_nor_its_place(builder: Sandbox, user: Sandbox) -> None:
    publish(builder, "fixed", "x")
    user.attach_templates("fixed")
    for change in ("touch /envs/fixed/new", "rm -rf /envs/fixed/file", "rmdir /envs/fixed", "mv /envs/fixed /envs/away",
                   "chmod 777 /envs/fixed", "ln -sfn /tmp /envs/fixed && touch /tmp/file"):  # fmt: skip
        user.run(change)
        assert content(user, "fixed") == "x"
    made = user.run("mkdir /envs/own && echo mine > /envs/own/file && mv /envs/own /envs/mine && cat /envs/mine/file")
    assert made.stdout == "mine\n"
    publish(builder, "other", "y")
    user.attach_templates("other")
    assert user.run("ls -A /envs").stdout.split() == ["mine", "other"]


def test_what_the_sandbox_has_itself_is_left_alone(builder: Sandbox, user: Sandbox) -> None:
    publish(builder, "taken", "x")
    user.run("mkdir /envs/taken && echo mine > /envs/taken/file")
    with pytest.raises(FileExists, match="/envs/taken"):
        user.attach_templates("taken")
    assert content(user, "taken") == "mine\n"
    user.run("rm -r /envs/taken; ln -s /workspace /envs/taken")
    with pytest.raises(FileExists):
        user.attach_templates("taken")


def test_building_takes_a_quiet_sandbox_and_leaves_the_others_alone(builder: Sandbox, user: Sandbox) -> None:
    publish(user, "busy", "x")
    process = builder.start(["sleep", "60"], scope="long")
    with pytest.raises(SandboxBusy):
        builder.publish_template("busy", "/workspace")
    with pytest.raises(SandboxBusy):
        builder.attach_templates("busy")
    process.cancel()
    process.wait()
    assert builder.publish_template("busy", "/workspace").name == "busy"
    assert builder.run(["true"]).ok
    builder.files.write("/workspace/after", "x")


def test_bad_input_is_refused_by_name(builder: Sandbox) -> None:
    for name in ("", "Upper", "-a", "a/b", "x" * 65, "a\n"):
        with pytest.raises(ValidationFailed):
            builder.publish_template(name)
    for source in ("/home", "/workspace/../etc", "/etc"):
        with pytest.raises(PathInvalid):
            builder.publish_template("name", source)
    for reference in ("a@sha256:12", "a@", "@sha256:" + "0" * 64):
        with pytest.raises(ValidationFailed):
            builder.attach_templates(reference)
    with pytest.raises(ValidationFailed):
        builder.attach_templates(*(f"t{number}" for number in range(17)))


def test_the_commands(sandloom: Run, client: Client, builder: Sandbox, user: Sandbox) -> None:
    builder.run("echo x > /workspace/file")
    built = json.loads(sandloom("template", "build", builder.id, "cli", "--from", "/workspace", "--json").stdout)
    assert json.loads(sandloom("template", "list", "--json").stdout)[0]["digest"] == built["digest"]
    assert "/envs/cli" in sandloom("template", "attach", user.id, "cli").stdout
    assert content(user, "cli") == "x\n"
    assert sandloom("template", "rm", "cli").returncode == 0
    refused = sandloom("template", "rm", "cli")
    assert (refused.returncode, "SANDBOX_TEMPLATE_NOT_FOUND" in refused.stderr) == (1, True)

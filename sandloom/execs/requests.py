"""Request models as what the domain takes, and refusals of what this deployment does not have."""

from __future__ import annotations

from sandloom.contracts.rest import ExecBody
from sandloom.errors import (
    CredentialBrokerUnavailable,
    EgressPolicyUnsupported,
    EnvironmentRefused,
    LimitsExceeded,
    ModelAccessUnavailable,
)
from sandloom.execs.owned_names import owned_names
from sandloom.execs.records import ExecRequest


def exec_request(body: ExecBody) -> ExecRequest:
    """The command to admit. Raises for names in env that the runtime owns, and for sensitive_env, model_access,
    egress and limits, which nothing here can serve."""
    if owned := owned_names(body.env):
        raise EnvironmentRefused(f"The runtime owns these names, so env must not set them: {', '.join(owned)}")
    if body.sensitive_env:
        names = ", ".join(sorted(body.sensitive_env))
        raise CredentialBrokerUnavailable(f"sensitive_env needs a credential broker, and there is none: {names}")
    if body.model_access is not None:
        raise ModelAccessUnavailable
    if body.egress is not None:
        raise EgressPolicyUnsupported
    if body.limits is not None and body.limits.model_dump(exclude_none=True):
        raise LimitsExceeded("This deployment enforces no budgets, so 'limits' cannot be kept; leave it out.")
    return ExecRequest(
        exec_id=body.exec_id,
        argv=tuple(body.argv),
        cwd=body.cwd,
        env=body.env,
        timeout_seconds=body.timeout_seconds,
        exec_scope=body.exec_scope,
        stdin=body.stdin_bytes(),
        labels=body.labels,
    )

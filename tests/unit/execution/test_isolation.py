"""Choosing what works: never weaker than asked, never silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution import isolation
from sandloom.execution.isolation import (
    CGROUP_LIMITS,
    CGROUP_NAMESPACE,
    PID_NAMESPACE,
    SECCOMP,
    UID_SEPARATION,
    Shape,
)
from sandloom.execution.spec import IsolationUnavailable, Level

BASIC, STANDARD, STRICT = (isolation.LEVELS[level] for level in Level)


def choose(level=None, required=(), optional=(), *, uid_separation=True, working=(BASIC, STANDARD, STRICT)):
    return isolation.choose(
        level, required, optional, uid_separation=uid_separation, works=lambda shape: shape in set(working)
    )


@pytest.mark.parametrize(
    ("working", "chosen"), [((BASIC,), BASIC), ((BASIC, STANDARD), STANDARD), ((BASIC, STANDARD, STRICT), STRICT)]
)
def test_auto_is_the_strongest_that_works(working, chosen):
    assert choose(working=working).shape == chosen


@pytest.mark.parametrize("level", list(Level))
def test_an_explicit_level_is_that_or_nothing(level):
    assert choose(level).shape.level is level
    others = [shape for shape in (BASIC, STANDARD, STRICT) if shape.level is not level]
    with pytest.raises(IsolationUnavailable, match=level.value):
        choose(level, working=others)


def test_nothing_works():
    with pytest.raises(IsolationUnavailable, match="no isolation level"):
        choose(working=())


def test_additions_extend_a_level():
    with_pids = Shape(Level.BASIC, pid_namespace=True, cgroup_namespace=False)
    assert choose(Level.BASIC, [PID_NAMESPACE], working=(BASIC, with_pids)).shape == with_pids
    with pytest.raises(IsolationUnavailable, match="pid_namespace"):
        choose(Level.BASIC, [PID_NAMESPACE], working=(BASIC,))


def test_optional_additions_are_taken_or_reported():
    with_cgroups = STANDARD.adding([CGROUP_NAMESPACE])
    taken = choose(Level.STANDARD, (), [CGROUP_NAMESPACE], working=(STANDARD, with_cgroups))
    assert (taken.shape, taken.skipped) == (with_cgroups, ())
    left = choose(Level.STANDARD, (), [CGROUP_NAMESPACE], working=(STANDARD,))
    assert (left.shape, left.skipped) == (STANDARD, (CGROUP_NAMESPACE,))


def test_the_filter_is_an_addition_like_a_namespace():
    filtered = STRICT.adding([SECCOMP])
    assert filtered.seccomp
    assert choose(None, (), [SECCOMP], working=(STRICT, filtered)).shape == filtered
    assert choose(None, (), [SECCOMP], working=(STRICT,)).skipped == (SECCOMP,)
    with pytest.raises(IsolationUnavailable, match="seccomp"):
        choose(None, [SECCOMP], working=(STRICT,))


@pytest.mark.parametrize("held", [True, False])
def test_budgets_are_had_or_not_whatever_the_level(held):
    def chosen(required, optional):
        return isolation.choose(
            None, required, optional, uid_separation=True, works=lambda shape: shape == STRICT, cgroup_limits=held
        )

    assert chosen((), [CGROUP_LIMITS]).skipped == (() if held else (CGROUP_LIMITS,))
    if held:
        assert chosen([CGROUP_LIMITS], ()).shape == STRICT
    else:
        with pytest.raises(IsolationUnavailable, match="cgroup_limits"):
            chosen([CGROUP_LIMITS], ())


def test_uid_separation_cannot_be_had_without_root():
    with pytest.raises(IsolationUnavailable, match="root"):
        choose(None, [UID_SEPARATION], uid_separation=False)
    assert choose(None, (), [UID_SEPARATION], uid_separation=False).skipped == (UID_SEPARATION,)
    assert choose(None, (), [UID_SEPARATION]).skipped == ()


def test_unknown_features_are_named():
    with pytest.raises(IsolationUnavailable, match="teleport"):
        choose(None, ["teleport"])


SHAPES = [
    Shape(level, pid_namespace=pids, cgroup_namespace=cgroups)
    for level in Level
    for pids in (False, True)
    for cgroups in (False, True)
]


@given(
    level=st.none() | st.sampled_from(Level),
    required=st.sets(st.sampled_from([PID_NAMESPACE, CGROUP_NAMESPACE])),
    optional=st.sets(st.sampled_from([PID_NAMESPACE, CGROUP_NAMESPACE])),
    working=st.sets(st.sampled_from(SHAPES)),
)
def test_the_choice_always_ran_and_has_all_that_is_required(level, required, optional, working):
    try:
        choice = choose(level, required, optional, working=working)
    except IsolationUnavailable:
        candidates = list(Level) if level is None else [level]
        assert not any(isolation.LEVELS[candidate].adding(required) in working for candidate in candidates)
        return
    assert choice.shape in working
    assert level in (None, choice.shape.level)
    assert choice.shape == choice.shape.adding(required)
    for feature in optional:
        assert (choice.shape == choice.shape.adding([feature])) != (feature in choice.skipped)


@pytest.mark.parametrize(
    ("message", "sysctls", "advice"),
    [
        ("bwrap: No permissions to creating new namespace", {"kernel/unprivileged_userns_clone": "0"}, "_clone=1"),
        ("bwrap: setting up uid map: Permission denied", {"kernel/apparmor_restrict_unprivileged_userns": "1"}, "App"),
        ("bwrap: Creating new namespace failed: max_", {"user/max_user_namespaces": "0"}, "max_user_namespaces=15000"),
        ("bwrap: Creating new namespace failed: Operation not permitted", {}, "seccomp=unconfined"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", {}, "systempaths=unconfined"),
        ("bwrap: Can't find source path /root/x: Permission denied", {}, "chmod o+x"),
        ("PermissionError: [Errno 1] setresuid", {}, "CAP_SETUID"),
        ("bwrap: Unknown option --disable-userns", {}, "0.8 or later"),
        ("something else", {}, ""),
    ],
)
def test_a_fix_is_named(message, sysctls, advice):
    assert advice in isolation.fix_for(message, sysctls)
    assert bool(advice) == bool(isolation.fix_for(message, sysctls))

"""Names of runs and actions: which are accepted when they are made, and the one that is made when none is given.
What is stored already is read under any name."""

from __future__ import annotations

import re
import secrets

from wingbeat.control.errors import InvalidRequest, Missing
from wingbeat.resources import ActionId, RunId

MAX_RUN_NAME = 30
_RUN_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ACTION_NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,29}")
"""Names of children come from the SDK, and become parts of paths."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""That of Kubernetes' generated names: no vowels, so no words, and nothing that looks like something else."""


def check_run_name(name: str) -> None:
    """Raises InvalidRequest unless `name` is a DNS-1035 label of at most 30 characters."""
    if len(name) > MAX_RUN_NAME:
        raise InvalidRequest(
            f"the run name {name[:60]!r} has {len(name)} characters; at most {MAX_RUN_NAME} are allowed, so for "
            f"example: flyte run --name {_mended(name)} ..."
        )
    if not _RUN_NAME.fullmatch(name):
        raise InvalidRequest(
            f"the run name {name!r} is not valid: use lowercase letters, digits and '-', start with a letter and end "
            f"with a letter or digit, so for example: flyte run --name {_mended(name)} ..."
        )


def _mended(name: str) -> str:
    """A valid name that is like this one."""
    like = re.sub(r"[^a-z0-9]+", "-", name[:60].lower()).strip("-")
    if not like[:1].isalpha():
        like = f"run-{like}"
    return like[:MAX_RUN_NAME].rstrip("-")


def check_action_name(name: str) -> None:
    """Raises InvalidRequest unless `name` can be a part of a path, of at most 30 characters."""
    if not _ACTION_NAME.fullmatch(name):
        raise InvalidRequest(
            f"the action name {name[:60]!r} is not valid: use letters, digits, '-', '_' and '.', at most 30 in all, "
            "and start with a letter or digit"
        )


def missing_run(run: RunId) -> Missing:
    return Missing(f"there is no run {run.run!r} in {run.project}/{run.domain}; see what there is: flyte get run")


def missing_action(id: ActionId) -> Missing:
    return Missing(
        f"there is no action {id.action!r} in run {id.run!r} of {id.project}/{id.domain}; see what there is: "
        f"flyte get action {id.run}"
    )


def new_run_name() -> str:
    """`r` and 19 random characters."""
    return "r" + "".join(secrets.choice(_ALPHABET) for _ in range(19))

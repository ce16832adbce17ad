"""Who one is: whoever may call is the user that owns the server."""

from __future__ import annotations

import getpass
import os
from typing import Any

from flyteidl2.auth.identity_connect import IdentityService
from flyteidl2.auth.identity_pb2 import UserInfoResponse


def process_user() -> str:
    """The name of the user who owns this process; its uid where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "user"


class IdentityApi(IdentityService):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        self._user = user

    async def user_info(self, request: Any, ctx: Any) -> Any:
        return UserInfoResponse(subject=self._user, name=self._user, preferred_username=self._user)

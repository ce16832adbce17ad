"""Which cluster to talk to: there is one, this server."""

from __future__ import annotations

from typing import Any

from flyteidl2.cluster.payload_pb2 import SelectClusterResponse
from flyteidl2.cluster.service_connect import ClusterService


class ClusterApi(ClusterService):  # type: ignore[misc]
    async def select_cluster(self, request: Any, ctx: Any) -> Any:
        """Always this server: an empty endpoint makes clients stay on the connection that they have."""
        return SelectClusterResponse()

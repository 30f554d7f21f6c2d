"""Whether the server is alive, and whether it can serve."""

from __future__ import annotations

import asyncio

from fastapi import HTTPException

from tracklog.consumers.api.routes import Has, resource

__all__ = ["router"]

router = resource("health")


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(has: Has) -> dict[str, str]:
    """Log and Redis answer, what Redis shows is not too far behind the log (`health.projection_age_s_max`), and the
    tokens file can be read. 503 when not, with all that is wrong."""
    problems = await asyncio.to_thread(has.health.why_not_ready)
    if problems:
        raise HTTPException(503, "; ".join(problems))
    return {"status": "ready"}

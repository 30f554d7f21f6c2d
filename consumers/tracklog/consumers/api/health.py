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
    """Log and Redis answer, and the tokens file can be read. 503 when one does not."""
    if has.tokens is not None and has.tokens.problem:
        raise HTTPException(503, f"tokens are as they were before: {has.tokens.problem}")
    await asyncio.to_thread(has.log.ping, 2.0)
    await has.reader.as_of()
    return {"status": "ready"}

"""Whether the server is alive, and whether it can serve."""

from __future__ import annotations

from fastapi import HTTPException

from tracklog.consumers.api.routes import Has, resource

__all__ = ["router"]

router = resource("health")


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(has: Has) -> dict[str, str]:
    """Log and Redis answer, and the tokens file can be read. 503 when one does not."""
    if has.tokens is not None and has.tokens.problem:
        raise HTTPException(503, f"tokens are as they were before: {has.tokens.problem}")
    has.log.ping(2.0)
    has.reader.live()
    return {"status": "ready"}

"""The booking desk that the examples call: flights are looked up, seats are booked and cannot be given back."""

from __future__ import annotations

import asyncio
import json
import os
from urllib.request import Request, urlopen

TIMEOUT_S = 10.0


async def flights(to: str) -> str:
    """Those to a city."""
    return f"TL100 to {to}, TL200 to {to}"


async def book(flight: str, key: str | None = None) -> str:
    """Books a seat at the desk of DESK_URL. A key that the desk has seen books nothing and gives the first answer."""
    return await asyncio.to_thread(_book, flight, key)


def _book(flight: str, key: str | None) -> str:
    data = json.dumps({"call_id": flight, "key": key}).encode()
    with urlopen(Request(f"{os.environ['DESK_URL']}/effect", data=data, method="POST"), timeout=TIMEOUT_S) as answer:
        return str(json.load(answer)["receipt"])

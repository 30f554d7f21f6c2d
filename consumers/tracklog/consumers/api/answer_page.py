"""The page behind an answer link, as HTML: no script, nothing from elsewhere, every text escaped. Pure."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Final

from tracklog.consumers.held_call import HeldCall

__all__ = ["HEADERS", "asking", "told"]

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #888;padding:.5rem}"
    "input{width:100%;box-sizing:border-box;font:inherit;margin:.2rem 0 1rem}button{font:inherit;margin-right:.5rem}"
)
_SEAL: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_SEAL}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def asking(trajectory_id: str, call_id: str, request_hash: str, found: HeldCall | None = None) -> str:
    """The form. `found`: the call, for somebody who has shown that they may see it."""
    shown = "" if found is None else _shown(found)
    return _page(
        "A call waits for a decision",
        f"<p>Call <b>{escape(call_id)}</b> of trajectory <b>{escape(trajectory_id)}</b>, "
        f"request {escape(request_hash[:16])}.</p>{shown}"
        '<form method="post" enctype="application/x-www-form-urlencoded">'
        '<label>Your token<input type="password" name="token" autocomplete="current-password" required></label>'
        '<label>Reason (of a refusal the model is told)<input type="text" name="reason" autocomplete="off"></label>'
        '<button name="do" value="look">Show the call</button>'
        '<button name="do" value="approve">Approve</button>'
        '<button name="do" value="deny">Deny</button></form>',
    )


def told(title: str, text: str) -> str:
    return _page(title, f"<p>{escape(text)}</p>")


def _shown(found: HeldCall) -> str:
    request = found.request
    rows = [("Held by", found.rule), ("Why", request.reason), ("May decide", found.who)]
    lines = "".join(f"<li>{name}: {escape(text)}</li>" for name, text in rows if text)
    return f"<pre>{escape(found.tool)}({escape(found.arguments)})</pre><ul>{lines}</ul>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )

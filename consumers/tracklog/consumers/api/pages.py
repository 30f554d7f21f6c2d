"""The pages behind links in messages, as HTML: no script, nothing from elsewhere, every text escaped. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final

from tracklog.consumers.doubted_call import DoubtedCall
from tracklog.consumers.held_call import HeldCall

__all__ = ["HEADERS", "asking", "finding_out", "told"]

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #888;padding:.5rem}"
    "input{width:100%;box-sizing:border-box;font:inherit;margin:.2rem 0 1rem}button{font:inherit;margin-right:.5rem}"
)
_SEAL: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_BEGIN: Final = (
    '<form method="post" enctype="application/x-www-form-urlencoded">'
    '<label>Your token<input type="password" name="token" autocomplete="current-password" required></label>'
)

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_SEAL}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def asking(trajectory_id: str, call_id: str, request_hash: str, found: HeldCall | None = None) -> str:
    """The form. `found`: the call, for somebody who has shown that they may see it."""
    rows = [] if found is None else [("Held by", found.rule), ("Why", found.request.reason), ("May decide", found.who)]
    return _page(
        "A call waits for a decision",
        f"<p>Call <b>{escape(call_id)}</b> of trajectory <b>{escape(trajectory_id)}</b>, "
        f"request {escape(request_hash[:16])}.</p>{_shown(found, rows)}"
        f"{_BEGIN}{_text('reason', 'Reason (of a refusal the model is told)')}"
        f"{_button('look', 'Show the call')}{_button('approve', 'Approve')}{_button('deny', 'Deny')}</form>",
    )


def finding_out(trajectory_id: str, call_id: str, intent_hash: str, found: DoubtedCall | None = None) -> str:
    """The form about a call that may have happened. `found`: the call, for somebody who may see it."""
    rows = [] if found is None else [("What was tried", found.tried)]
    return _page(
        "Did this call happen?",
        f"<p>Call <b>{escape(call_id)}</b> of trajectory <b>{escape(trajectory_id)}</b>, intent "
        f"{escape(intent_hash[:16])}, may have happened, and only a person can find out.</p>{_shown(found, rows)}"
        f"{_BEGIN}{_text('reason', 'How you know (it is recorded)')}"
        f"{_text('output', 'What the model is given as its result (else the reason)')}"
        f"{_button('look', 'Show the call')}{_button('happened', 'It happened')}"
        f"{_button('did_not_happen', 'It did not, and never will')}"
        f"{_button('retry', 'Do it again, whether it happened or not')}</form>",
    )


def told(title: str, text: str) -> str:
    return _page(title, f"<p>{escape(text)}</p>")


def _shown(found: HeldCall | DoubtedCall | None, rows: Sequence[tuple[str, str]]) -> str:
    if found is None:
        return ""
    lines = "".join(f"<li>{name}: {escape(text)}</li>" for name, text in rows if text)
    return f"<pre>{escape(found.tool)}({escape(found.arguments)})</pre><ul>{lines}</ul>"


def _text(name: str, label: str) -> str:
    return f'<label>{label}<input type="text" name="{name}" autocomplete="off"></label>'


def _button(value: str, label: str) -> str:
    return f'<button name="do" value="{value}">{label}</button>'


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )

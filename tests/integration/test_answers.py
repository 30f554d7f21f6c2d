"""Answer links: a page that anybody and anything may open, and that decides for nobody without a credential."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.serving import Api, serving, token
from tests.support.sessions import TRAJECTORY
from tracklog.consumers.api.limits import RateLimit
from tracklog.producers.history import read_history
from tracklog.schemas import events as ev
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.values import Choice

FORM = "application/x-www-form-urlencoded"


class Page(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


def link(api: Api, call_id: str = "call-1") -> str:
    """As the message of a webhook has it."""
    state = read_history(api.world.new_log(), "tracklog.events", TRAJECTORY)[0]
    request = state.calls[call_id].request
    assert request is not None
    return f"/answers/{TRAJECTORY}/{call_id}/{request.hash.hex()}"


def open_page(
    api: Api, path: str, form: dict[str, str] | None = None, method: str | None = None, **headers: str
) -> Page:
    data = None if form is None else urllib.parse.urlencode(form).encode()
    sent = {"Content-Type": FORM, **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"http://127.0.0.1:{api.port}{path}", data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Page(answer.status, answer.read().decode(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode(), dict(error.headers))


async def test_a_hundred_looks_decide_nothing_and_show_nothing_that_the_link_does_not(api: Api) -> None:
    await api.held()
    path = link(api)
    elsewhere = path.replace("call-1", "call-9")
    bearer = f"Bearer {token('approver')}"
    for method, query, status in (
        ("GET", "", 200),
        ("GET", "?do=approve", 422),
        ("HEAD", "", 405),
        ("OPTIONS", "", 405),
    ):
        for _ in range(25):
            assert open_page(api, path + query, method=method, Authorization=bearer).status == status
    # then it waits as before, and the page is the same for a call that there is not
    with pytest.raises(ApprovalNeeded):
        await api.go_on()
    page = open_page(api, path)
    assert page.status == 200
    assert page.text == open_page(api, elsewhere).text.replace("call-9", "call-1")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_who_has_a_token_sees_the_call_and_decides(api: Api) -> None:
    await api.held()
    path = link(api)
    # when somebody looks first
    seen = open_page(api, path, {"do": "look", "token": token("approver")})
    assert seen.status == 200
    assert "readonly(" in seen.text
    with pytest.raises(ApprovalNeeded):
        await api.go_on()
    # and then decides, in the form
    answered = open_page(api, path, {"do": "approve", "token": token("approver"), "reason": ""})
    assert answered.status == 202
    await api.go_on()
    # then it is in the record as theirs
    (resolved,) = api.world.bodies(ev.ApprovalResolved)
    assert (resolved.choice, resolved.approver) == (Choice.APPROVE, "approver")
    # and the link decides about nothing any more
    assert open_page(api, path, {"do": "deny", "token": token("approver")}).status == 409


async def test_a_bearer_token_does_as_well_as_one_in_the_form(api: Api) -> None:
    await api.held()
    bearer = f"Bearer {token('approver')}"
    assert open_page(api, link(api), {"do": "deny", "reason": "no <b>"}, Authorization=bearer).status == 202
    await api.go_on()
    (resolved,) = api.world.bodies(ev.ApprovalResolved)
    assert (resolved.choice, resolved.reason) == (Choice.DENY, "no <b>")


async def test_forged_answers_are_refused(api: Api) -> None:
    await api.held()
    path, good = link(api), token("approver")
    other = path[:-64] + "0" * 64
    for where, form, status in (
        (path, {"do": "approve"}, 401),
        (path, {"do": "approve", "token": "guess"}, 401),
        (path, {"do": "approve", "token": token("viewer")}, 403),
        (path, {"do": "look", "token": token("operator")}, 403),
        (path, {"do": "approve", "token": token("stranger-approver")}, 404),
        (other, {"do": "approve", "token": good}, 409),
        (other, {"do": "look", "token": good}, 409),
        (path.replace("call-1", "call-9"), {"do": "approve", "token": good}, 409),
        (path.replace(TRAJECTORY, "nowhere"), {"do": "approve", "token": good}, 404),
        (path, {"do": "edit", "token": good}, 422),
        (path, {"do": "approve", "token": good, "approver": "boss"}, 422),
        (path[:-1], {"do": "approve", "token": good}, 422),
    ):
        page = open_page(api, where, form)
        assert page.status == status, (where, form, page.text)
        assert good not in page.text
    # and what a page elsewhere could have a browser send
    assert open_page(api, path, {"do": "approve", "token": good}, Content_Type="text/plain").status == 415
    assert open_page(api, path, {"do": "approve", "token": "x" * 70_000}).status == 413
    api.services.rate = RateLimit(1.0, api.services.clock)
    assert [open_page(api, path, {"do": "look", "token": good}).status for _ in range(3)][-1] == 429
    with pytest.raises(ApprovalNeeded):
        await api.go_on()


async def test_what_is_in_a_link_is_text_and_never_a_page_of_its_own(api: Api) -> None:
    for name in ("<script>alert(1)</script>", '"><img src=x>'):
        page = open_page(api, f"/answers/{urllib.parse.quote(name, safe='')}/c/{'0' * 64}")
        assert page.status == 200
        assert name not in page.text
        assert "<script" not in page.text

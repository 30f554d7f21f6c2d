"""What is taken out of texts, messages and records; what stays; and that nothing is taken out twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tracklog.consumers.export.redacting import same_but_for_marks
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.redacting import redacted, redacted_body, redacted_map
from tracklog.schemas.redaction import MARK, PATTERNS, Redaction, check_field, check_pattern
from tracklog.schemas.values import Body, Choice, Driver, Effect, Place, ResultStatus, Settled, ToolCall

KEY = "sk-abcdefghijklmnopqrstuvwx"
SECRETS = {
    "AWS key": "AKIAABCDEFGHIJKLMNOP",
    "API key": KEY,
    "GitHub token": "ghp_" + "a1" * 18,
    "Slack token": "xoxb-1234567890-abcdef",
    "Google key": "AIza" + "b" * 35,
    "JSON web token": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "bearer token": "Bearer abcdefghijklmnop.qrstuvwxyz",
    "password": "postgres://ada:hunter2@",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
}


def test_each_known_form_is_found_and_counted() -> None:
    assert SECRETS.keys() == PATTERNS.keys()
    for what, secret in SECRETS.items():
        redaction = Redaction()
        assert redaction.text(f"it is {secret} so") == f"it is [{what} redacted] so"
        assert redaction.counts == {what: 1}


def test_a_text_without_secrets_is_the_very_same_text() -> None:
    for text in ("plain", '{ "a" : 1.50 }', "[1, 2", "", "[]", '{"password": 1}'):
        assert Redaction().text(text) is text


def test_json_stays_json_where_a_form_would_reach_across_its_strings() -> None:
    text = '{"a":"x://u:","b":"p@c","c":"' + KEY + '"}'
    assert json.loads(Redaction().text(text)) == {"a": "x://u:", "b": "p@c", "c": "[API key redacted]"}


def test_a_secret_that_json_writes_otherwise_is_found_too() -> None:
    assert "sk-" not in Redaction().text('{"a":"\\u0073k-abcdefghijklmnopqrstuvwx"}')


def test_fields_go_by_name_or_by_path_also_in_json_inside_of_json() -> None:
    redaction = Redaction(["Token", "customer.email"])
    inner = json.dumps({"customer": [{"email": "ada@example.org", "name": "Ada"}], "email": "ours@example.org"})
    found = json.loads(redaction.text(json.dumps({"token": {"a": 1}, "said": inner})))
    assert found["token"] == "[field token redacted]"
    said = json.loads(found["said"])
    assert said == {"customer": [{"email": "[field email redacted]", "name": "Ada"}], "email": "ours@example.org"}


CUSTOMERS = json.dumps(
    {"rows": [{"id": n, "email": "ada@x", "customer": {"phone": "030-1", "note": 'o"k \u00e9'}} for n in range(3)]}
)
NOTE = "\n[cut: the whole output has 400000 characters]"


@pytest.mark.parametrize("note", ["", NOTE])
def test_fields_go_from_json_that_was_cut_at_any_place(note: str) -> None:
    policy = ["email", "customer.phone"]
    whole = json.dumps({"said": CUSTOMERS, "email": ["ada@x", {"a": 1}]})
    redacted_whole = Redaction(policy).text(whole)
    for text in (CUSTOMERS, whole, f"\n {CUSTOMERS}", f"{CUSTOMERS}\n{CUSTOMERS}"):
        for at in range(1, len(text)):
            found = Redaction(policy).text(text[:at] + note)
            assert "ada" not in found, found
            assert "030" not in found, found
            assert found.endswith(note)
            assert Redaction(policy).text(found) == found
            assert same_but_for_marks(json.dumps(found), json.dumps(text[:at] + note))
    for at in range(1, len(redacted_whole)):
        cut = redacted_whole[:at] + note
        assert Redaction(policy).text(cut) == cut, "what was redacted before it was cut stays as it was given on"


def test_a_cut_message_keeps_its_own_fields() -> None:
    text = json.dumps({"role": "tool", "content": json.dumps({"role": "ada@x", "b": 1}) + " " * 40})[:-20]
    found = json.loads(Redaction(["role"]).text(text, message=True))
    assert found == {"role": "tool", "content": '{"role": "[field role redacted]", "b": 1}'}


@pytest.mark.parametrize(
    "text",
    [
        "{'email': 'ada@x'}",
        '{"email": "ada@x",, "b": 1}',
        '{"e\\u006dail": "ada@x",, "b": 1}',
        '{"said": "{\\"email\\": \\"ada@x\\"", }',
        "[" * 100_000 + '{"email": "ada@x"}',
        "[" * 900 + '{"email": "ada@x"}' + "]" * 900,
    ],
)
def test_what_should_be_json_and_cannot_be_read_is_withheld_where_it_names_a_field(text: str) -> None:
    redaction = Redaction(["email"])
    found = redaction.text(text)
    assert "ada@x" not in found
    assert redaction.text(found) == found
    assert Redaction(["phone"]).text(text) == text
    assert Redaction(["email"]).text(f"> {text}") == f"> {text}", "that is no JSON by its beginning"
    assert "ada@x" not in redacted_body(Body.of(f"> {text}", "application/json"), Redaction(["email"])).text


def test_half_of_a_pair_of_surrogates_stays_what_it_was() -> None:
    found = Redaction(["email"]).text('{"email": "ada@x", "a": "\\ud83d"}')
    assert found == '{"email": "[field email redacted]", "a": "\\ud83d"}'
    assert found.encode()


def test_a_messages_own_fields_are_no_fields_of_a_policy() -> None:
    redaction = Redaction(["role", "content", "name", "arguments"])
    function = {"name": "find", "arguments": '{"name": "Ada", "age": 3}'}
    message = {"role": "assistant", "content": "hello", "tool_calls": [{"id": "c", "function": function}]}
    found = redaction.message(message)
    assert (found["role"], found["content"]) == ("assistant", "hello")
    assert json.loads(found["tool_calls"][0]["function"]["arguments"]) == {"name": "[field name redacted]", "age": 3}
    assert redaction.message({"input": {"name": "Ada"}}) == {"input": {"name": "[field name redacted]"}}


@settings(deadline=None)
@example(["\n", SECRETS["AWS key"], '{"email": "'])
@given(st.lists(st.sampled_from(["a ", '{"email": "', '"}', "[", "]", "\n", "@", *SECRETS.values()]), max_size=8))
def test_taking_out_twice_is_taking_out_once(parts: list[str]) -> None:
    redaction = Redaction(["email"])
    once = redaction.text(" ".join(parts))
    counted = dict(redaction.counts)
    assert redaction.text(once) == once
    assert redaction.counts == counted
    assert not any(secret in once for secret in SECRETS.values())


def test_what_cannot_be_a_policy_is_refused() -> None:
    for name in ("", "a..b", ".a", "x" * 201):
        with pytest.raises(ValueError, match="no name of a field"):
            check_field(name)
    for what, pattern, reason in (
        ("", "x+", "cannot say"),
        ("badge", "(", "no regular expression"),
        ("badge", "x*", "nothing at all"),
        ("badge", "redacted", "stands for a secret"),
    ):
        with pytest.raises(ValueError, match=reason):
            check_pattern(what, pattern)
    badge = Redaction(secrets=False, patterns={"badge": check_pattern("badge", r"B-\d{4}")})
    assert badge.text(f"B-1234 {KEY}") == f"[badge redacted] {KEY}"
    assert MARK.search(badge.text("B-1234")) is not None


def intent(place: Place, arguments: str) -> ev.ToolIntent:
    return ev.ToolIntent(
        call_id="c1",
        tool="pay",
        arguments=Body.of(arguments),
        effect=Effect.OPAQUE,
        not_after=1,
        place=place,
    )


def edit(arguments: str) -> ev.ApprovalResolved:
    return ev.ApprovalResolved(
        call_id="c1", request_hash=bytes(32), approver="ada", choice=Choice.EDIT, arguments=Body.of(arguments)
    )


def test_the_arguments_of_a_call_are_never_changed_but_refused() -> None:
    redaction = Redaction(["email"])
    same = intent(Place.INLINE, '{"to": "ada"}')
    assert redacted(same, redaction) is same
    for place in (Place.INLINE, Place.DISPATCH):
        for arguments in (f'{{"key": "{KEY}"}}', '{"email": "a"}', '{"key": "[API key redacted]"}'):
            with pytest.raises(InvalidEvent, match="cannot be made"):
                redacted(intent(place, arguments), redaction)
    recorded = redacted(intent(Place.RECORDED, f'{{"key": "{KEY}"}}'), redaction)
    assert recorded.arguments.text == '{"key": "[API key redacted]"}'
    with pytest.raises(InvalidEvent):
        redacted(edit(KEY), redaction)


def test_records_lose_secrets_where_somebody_says_something_and_nowhere_else() -> None:
    redaction = Redaction(["email"])
    task = ev.TaskStarted(driver=Driver.LIBRARY, task=Body.of(KEY), agent=KEY, labels={"email": "a", "team": KEY})
    cleaned = redacted(task, redaction)
    assert cleaned.task == Body.of("[API key redacted]")
    assert (cleaned.agent, cleaned.labels["email"]) == (KEY, "[field email redacted]")
    assert cleaned.labels["team"] == "[API key redacted]"
    reply = ev.ModelReplied(
        reply=Body.of(json.dumps({"role": "assistant", "content": KEY}), "application/json"),
        tool_calls=(ToolCall(call_id="c", tool="t", arguments='{"email": "a"}'),),
    )
    cleaned_reply = redacted(reply, redaction)
    assert json.loads(cleaned_reply.reply.text) == {"role": "assistant", "content": "[API key redacted]"}
    assert cleaned_reply.tool_calls[0].arguments == '{"email": "[field email redacted]"}'
    ended = ev.OwnershipReleased(owner="me", nonce=bytes(16), reason=f"left with {KEY}")
    assert redacted(ended, redaction).reason == "left with [API key redacted]"
    assert redacted(ev.CancelRequested(by="me", reason="enough"), redaction).reason == "enough"


def test_of_a_body_that_is_stored_only_what_was_given_on_is_looked_through() -> None:
    body = Body(text=f"{KEY} and", hash=bytes(32), size_bytes=100_000, stored=True)
    result = ev.ToolResult(call_id="c", status=ResultStatus.OK, output=body, settled=Settled.DIRECT)
    found = redacted(result, Redaction()).output
    assert (found.text, found.hash, found.size_bytes) == ("[API key redacted] and", bytes(32), 100_000)


def test_plain_fields_of_an_event_lose_the_same() -> None:
    redaction = Redaction(["email"])
    start = ev.TaskStarted(driver=Driver.LIBRARY, task=Body.of(KEY), agent="a", labels={"email": "x"})
    for body in (start, edit(KEY), intent(Place.INLINE, KEY)):
        said = json.dumps(redacted_map(body.model_dump(), redaction), default=repr)
        assert "redacted" in said
        assert KEY not in said

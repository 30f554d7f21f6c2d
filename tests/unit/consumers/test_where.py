from __future__ import annotations

import pytest

from tracklog.consumers.where import Where
from tracklog.schemas.errors import InputError

SAMPLE = {"type": "", "turn": 0, "body": {}, "labels": {}}


def test_a_condition_is_true_or_false_of_each_map() -> None:
    where = Where("type == 'ToolIntent' && turn > 3", SAMPLE)

    assert where.matches({"type": "ToolIntent", "turn": 4, "body": {}, "labels": {}})
    assert not where.matches({"type": "ToolIntent", "turn": 3, "body": {}, "labels": {}})


def test_a_field_that_is_not_there_makes_it_false() -> None:
    where = Where("body.tool == 'book'", SAMPLE)

    assert not where.matches({**SAMPLE, "body": {"reply": "x"}})
    assert where.matches({**SAMPLE, "body": {"tool": "book"}})


def test_an_element_that_is_not_there_makes_it_false() -> None:
    assert not Where("body.calls[2] == 'book'", SAMPLE).matches({**SAMPLE, "body": {"calls": []}})


def test_names_bound_inside_the_expression_are_no_fields() -> None:
    where = Where("body.calls.exists(one, one.tool == 'book')", SAMPLE)

    assert where.matches({**SAMPLE, "body": {"calls": [{"tool": "book"}]}})


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("turn >", "Syntax error"),
        ("", "Syntax error"),
        ("nosuch == 1", "there is no field 'nosuch'"),
        ("turn > 'a'", "No such overload"),
        ("turn", "it gives 0"),
        ("nosuch(turn)", "nosuch"),
        ("type.matches('[')", "not a valid regex"),
    ],
)
def test_a_bad_expression_is_refused_and_named_before_anything_is_read(expression: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        Where(expression, SAMPLE)

    assert repr(expression) in caught.value.message
    assert reason in caught.value.message


def test_a_type_that_only_one_event_has_is_an_error_when_it_is_met() -> None:
    where = Where("body.value > 3", SAMPLE)

    with pytest.raises(InputError, match=r"body\.value > 3"):
        where.matches({**SAMPLE, "body": {"value": "three"}})

"""Running a call: bad tools, bad arguments, deadlines and time-outs all come to a result that the model can see."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import AfterValidator, BaseModel

from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.producers import tool_thread
from tracklog.producers.tool_run import Ran, check_arguments, no_such_tool, run_probe, run_tool
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet, tool
from tracklog.schemas.errors import ToolExpired, ToolOutcomeUnknown
from tracklog.schemas.values import Body, ResultStatus

LIMIT = 64 * 1024
CONTEXT = CallContext("t", "c1", "key-1", epoch=1, attempt=1, deadline_us=2**62)
FOR_EVER_S = 60.0


async def ran(one: Tool, arguments: str = "{}", limit: int = LIMIT) -> Ran:
    return await run_tool(one, CONTEXT, arguments, clock=SystemClock(), output_bytes_max=limit)


class Person(BaseModel):
    name: str


class Wordless(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


class Unreadable(BaseModel):
    def model_dump(self, **_: Any) -> NoReturn:
        raise ZeroDivisionError("in the middle of it")


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail


def knot() -> list[Any]:
    rope: list[Any] = []
    rope.append(rope)
    return rope


def nest() -> Any:
    value: Any = None
    for _ in range(100_000):
        value = [value]
    return value


def lucky(number: int) -> int:
    return number if number != 13 else number // 0


async def cancelling_itself() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        ({"é": [1.5, True, None]}, '{"é": [1.5, true, null]}'),
        ((1, 2), "[1, 2]"),
        (Person(name="A"), '{"name": "A"}'),
        ([Person(name="A")], '[{"name": "A"}]'),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        (["lone \udfff"], '["lone \ufffd"]'),
    ],
)
async def test_what_a_tool_returns_is_text_as_it_is_and_anything_else_as_json(value: Any, output: str) -> None:
    def give() -> Any:
        return value

    got = await ran(tool(give))

    assert (got.status, got.output) == (ResultStatus.OK, output)
    assert Body.of(got.output).whole


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        (raising(ValueError("no such city")), ResultStatus.ERROR, "ValueError: no such city"),
        (raising(KeyError()), ResultStatus.ERROR, "KeyError"),
        (raising(Wordless()), ResultStatus.ERROR, "Wordless: (no words: KeyError)"),
        (raising(RuntimeError("x" * 10**7)), ResultStatus.ERROR, "xxx..."),
        (raising(RuntimeError("lone \ud800")), ResultStatus.ERROR, "lone \ufffd"),
        (raising(StopIteration(3)), ResultStatus.ERROR, "StopIteration"),
        (raising(ExceptionGroup("two", [ValueError()])), ResultStatus.ERROR, "two"),
        (raising(MemoryError()), ResultStatus.ERROR, "MemoryError"),
        (lambda: sys.exit(3), ResultStatus.ERROR, "SystemExit: 3"),
        (raising(TimeoutError("read")), ResultStatus.TIMEOUT, "whether it was done is not known"),
        (raising(ToolOutcomeUnknown("lost")), ResultStatus.UNKNOWN, "whether it was done is not known"),
        (cancelling_itself, ResultStatus.UNKNOWN, "CancelledError"),
        (raising(ToolExpired("too late")), ResultStatus.EXPIRED, "too late"),
        (lambda: {1, 2}, ResultStatus.ERROR, "returned set, which is not JSON"),
        (lambda: b"bytes", ResultStatus.ERROR, "returned bytes, which is not JSON"),
        (lambda: float("nan"), ResultStatus.ERROR, "not JSON"),
        (knot, ResultStatus.ERROR, "not JSON"),
        (nest, ResultStatus.ERROR, "not JSON"),
        (lambda: Unreadable(), ResultStatus.ERROR, "ZeroDivisionError"),
    ],
)
async def test_a_bad_tool_comes_to_a_result(function: Callable[[], Any], status: ResultStatus, words: str) -> None:
    got = await ran(tool(name="bad", timeout_s=FOR_EVER_S)(function))

    assert got.status is status
    assert words in got.output
    assert len(got.output) < 5000
    assert got.known == (status not in (ResultStatus.TIMEOUT, ResultStatus.UNKNOWN))
    assert Body.of(got.output).whole


async def test_a_tool_that_is_interrupted_from_the_keyboard_is_no_result() -> None:
    """In a process of its own: an interrupt ends the loop that it meets."""
    script = (
        "import asyncio\n"
        "from tracklog.infra.clock import SystemClock\n"
        "from tracklog.producers.tool_run import run_tool\n"
        "from tracklog.producers.tools import CallContext, tool\n"
        "@tool\n"
        "async def stop() -> None:\n"
        "    raise KeyboardInterrupt\n"
        "context = CallContext('t', 'c', 'k', 1, 1, 2**62)\n"
        "asyncio.run(run_tool(stop, context, '{}', clock=SystemClock(), output_bytes_max=99))\n"
    )
    paths = {"PYTHONPATH": ":".join(sys.path)}

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, env=paths, stderr=-1)
    _, words = await asyncio.wait_for(process.communicate(), FOR_EVER_S)

    assert process.returncode != 0
    assert words.rstrip().endswith(b"KeyboardInterrupt")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "number: Field required"),
        ("{", "are not JSON"),
        ("{'number': 1}", "are not JSON"),
        ('{"number": NaN}', "are not JSON: NaN"),
        ('{"number": 1e999}', "are not JSON: 1e999"),
        (f'{{"number": {"9" * 5000}}}', "are not JSON"),
        ("[" * 100_000, "are not JSON"),
        ("[1]", "no JSON object but list"),
        ("null", "no JSON object but NoneType"),
        ('{"number": "1"}', "number: Input should be a valid integer"),
        ('{"number": 1, "other": 2}', "other"),
        ('{"number": 1, "text": "\\ud800"}', "do not fit"),
        ('{"number": 13}', "could not be checked: ZeroDivisionError"),
    ],
)
async def test_arguments_that_do_not_fit_start_nothing(arguments: str, words: str) -> None:
    started = []

    def take(number: Annotated[int, AfterValidator(lucky)], text: str = "") -> None:
        started.append(number)

    got = await ran(tool(take), arguments)

    assert got.status is ResultStatus.ERROR
    assert words in got.output
    assert len(got.output) < 5000
    assert started == []


def test_arguments_that_fit_are_given_as_they_are() -> None:
    @tool
    def take(number: int = 1) -> None: ...

    assert check_arguments(take, '{"number": 2}') == {"number": 2}
    assert check_arguments(take, "") == {}


def test_a_tool_that_is_not_there_is_a_result_that_names_those_that_are() -> None:
    @tool
    def look() -> None: ...

    got = no_such_tool("lok", ToolSet.of(look))

    assert got == Ran(ResultStatus.ERROR, "there is no tool 'lok'; there are: look")
    assert no_such_tool("x", ToolSet.of()).output.endswith("none")


async def test_a_call_past_its_deadline_is_not_started() -> None:
    started = []
    clock = ManualClock(now_us=1_000)

    @tool
    async def send() -> None:
        started.append(1)

    due = replace(CONTEXT, deadline_us=1_000)
    late = await run_tool(send, due, "{}", clock=clock, output_bytes_max=LIMIT)
    due = replace(CONTEXT, deadline_us=1_001)
    in_time = await run_tool(send, due, "{}", clock=clock, output_bytes_max=LIMIT)

    assert late.status is ResultStatus.EXPIRED
    assert late.known
    assert in_time.status is ResultStatus.OK
    assert started == [1]


async def test_how_long_a_call_took_is_told_by_the_clock() -> None:
    clock = ManualClock()

    @tool
    async def work() -> None:
        clock.advance(1.5)

    assert (await run_tool(work, CONTEXT, "{}", clock=clock, output_bytes_max=LIMIT)).duration_ms == 1500


@pytest.mark.parametrize("value", ["x" * 50_000_000, ["é" * 25_000_000], "\U0001f600" * 12_500_000])
async def test_an_output_of_50_mb_is_cut_and_says_so(value: Any) -> None:
    def flood() -> Any:
        return value

    got = await ran(tool(flood), limit=1000)

    assert got.status is ResultStatus.OK
    assert 900 < len(got.output.encode()) <= 1000
    whole = len(value) if isinstance(value, str) else 25_000_004
    assert got.output.endswith(f"\n[cut: the whole output has {whole} characters]")


@pytest.mark.parametrize(("text", "limit"), [("x" * 10, 10), ("é" * 5, 10), ("", 0)])
async def test_an_output_of_just_the_limit_is_whole(text: str, limit: int) -> None:
    def give() -> str:
        return text

    assert (await ran(tool(give), limit=limit)).output == text


@pytest.mark.parametrize("limit", [0, 1, 30, 60])
async def test_the_limit_holds_even_where_the_note_does_not_fit(limit: int) -> None:
    def give() -> str:
        return "é" * 100

    assert len((await ran(tool(give), limit=limit)).output.encode()) <= limit


async def test_an_async_tool_that_hangs_is_given_up_and_cleans_up() -> None:
    cleaned = asyncio.Event()

    @tool(timeout_s=0.05)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    got = await ran(hang)

    assert got.status is ResultStatus.TIMEOUT
    assert not got.known
    assert "within 0.05 s" in got.output
    assert cleaned.is_set()


async def test_an_async_tool_that_will_not_be_cancelled_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracklog.producers.tool_run.STOP_S", 0.05)
    free = asyncio.Event()

    @tool(timeout_s=0.05)
    async def hold_on() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                free.clear()

    try:
        assert (await asyncio.wait_for(ran(hold_on), FOR_EVER_S)).status is ResultStatus.TIMEOUT
    finally:
        free.set()


async def test_a_tool_that_gives_something_only_when_cancelled_is_still_timed_out() -> None:
    @tool(timeout_s=0.05)
    async def half() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half of it"
        return ""

    assert (await ran(half)).status is ResultStatus.TIMEOUT


async def test_a_blocking_function_stops_neither_the_loop_nor_its_caller() -> None:
    free = threading.Event()
    turns = 0

    @tool(timeout_s=0.2)
    def block() -> None:
        free.wait(FOR_EVER_S)

    try:
        running = asyncio.create_task(ran(block))
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        assert running.result().status is ResultStatus.TIMEOUT
        assert turns > 10
    finally:
        free.set()


async def test_forty_blocking_functions_run_side_by_side() -> None:
    together = threading.Barrier(40, timeout=FOR_EVER_S)

    @tool(timeout_s=FOR_EVER_S)
    def meet() -> int:
        return together.wait()

    results = await asyncio.gather(*(ran(meet) for _ in range(40)))

    assert sorted(int(one.output) for one in results) == list(range(40))


async def test_too_many_hanging_functions_are_refused_and_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_thread, "_free", threading.BoundedSemaphore(1))
    free = threading.Event()

    @tool(timeout_s=0.05)
    def block() -> None:
        free.wait(FOR_EVER_S)

    try:
        first, second = await ran(block), await ran(block)
        assert first.status is ResultStatus.TIMEOUT
        assert second.status is ResultStatus.ERROR
        assert "hang" in second.output
    finally:
        free.set()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_function_that_outlives_its_time_gives_back_the_place_that_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, other = threading.BoundedSemaphore(1), threading.BoundedSemaphore(1)
    free, ended = threading.Event(), threading.Event()

    @tool(timeout_s=0.05)
    def block() -> None:
        free.wait(FOR_EVER_S)
        ended.set()

    monkeypatch.setattr(tool_thread, "_free", taken)
    assert (await ran(block)).status is ResultStatus.TIMEOUT
    monkeypatch.setattr(tool_thread, "_free", other)
    free.set()

    assert await asyncio.to_thread(ended.wait, FOR_EVER_S)
    assert await asyncio.to_thread(taken.acquire, timeout=FOR_EVER_S)


async def test_without_a_thread_a_call_is_refused_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.BoundedSemaphore(1)
    monkeypatch.setattr(tool_thread, "_free", free)

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @tool
    def look() -> str:
        return "seen"

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        first = await ran(look)
    assert (first.status, "can't start new thread" in first.output) == (ResultStatus.ERROR, True)
    assert (await ran(look)).status is ResultStatus.OK


async def test_a_hanging_function_does_not_hold_up_the_end_of_the_process() -> None:
    script = (
        "import asyncio, threading\n"
        "from tracklog.infra.clock import SystemClock\n"
        "from tracklog.producers.tool_run import run_tool\n"
        "from tracklog.producers.tools import CallContext, tool\n"
        "@tool(timeout_s=0.05)\n"
        "def hang() -> None:\n"
        "    threading.Event().wait()\n"
        "context = CallContext('t', 'c', 'k', 1, 1, 2**62)\n"
        "got = asyncio.run(run_tool(hang, context, '{}', clock=SystemClock(), output_bytes_max=99))\n"
        "print(got.status)\n"
    )
    paths = {"PYTHONPATH": ":".join(sys.path)}

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, env=paths, stdout=-1)
    words, _ = await asyncio.wait_for(process.communicate(), FOR_EVER_S)

    assert (process.returncode, words.strip()) == (0, b"timeout")


async def test_a_function_in_a_thread_sees_the_context_variables_of_its_caller() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("caller")

    @tool
    def ask() -> str:
        return who.get()

    assert (await ran(ask)).output == "caller"


@pytest.mark.parametrize("blocking", [True, False])
async def test_cancelling_the_caller_passes_through(blocking: bool) -> None:
    started, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    def block() -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait(FOR_EVER_S)

    running = asyncio.create_task(ran(tool(timeout_s=FOR_EVER_S)(block if blocking else wait)))
    await started.wait()
    running.cancel()

    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, FOR_EVER_S)
        assert ended == ([] if blocking else ["cleaned up"])
    finally:
        free.set()


def probed(answer: Callable[[], Any], timeout_s: float = FOR_EVER_S) -> Tool:
    @tool(effect="probe", probe=answer, timeout_s=timeout_s)
    def pay() -> None: ...

    return pay


async def test_a_probe_says_what_became_of_the_call() -> None:
    happened = probed(lambda: Probed(ProbeAnswer.HAPPENED, json.dumps({"paid": True})))
    absent = probed(lambda: Probed(ProbeAnswer.ABSENT))

    assert await run_probe(happened, CONTEXT, "{}", output_bytes_max=LIMIT) == Probed(
        ProbeAnswer.HAPPENED, '{"paid": true}'
    )
    assert (await run_probe(absent, CONTEXT, "{}", output_bytes_max=LIMIT)).answer is ProbeAnswer.ABSENT


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raising(ConnectionError("refused")), "ConnectionError: refused"),
        (lambda: True, "returned bool"),
        (lambda: "happened", "returned str"),
        (lambda: Probed("perhaps"), "ValueError"),  # type: ignore[arg-type]
    ],
)
async def test_a_probe_that_does_not_answer_leaves_it_unknown(answer: Callable[[], Any], words: str) -> None:
    got = await run_probe(probed(answer), CONTEXT, "{}", output_bytes_max=LIMIT)

    assert got.answer is ProbeAnswer.UNKNOWN
    assert words in got.output


async def test_a_probe_that_hangs_is_not_there_or_cannot_be_asked_leaves_it_unknown() -> None:
    free = threading.Event()

    def hang() -> None:
        free.wait(FOR_EVER_S)

    @tool
    def pay() -> None: ...

    try:
        hanging = await run_probe(probed(hang, timeout_s=0.05), CONTEXT, "{}", output_bytes_max=LIMIT)
        missing = await run_probe(pay, CONTEXT, "{}", output_bytes_max=LIMIT)
        unfit = await run_probe(probed(lambda: Probed(ProbeAnswer.ABSENT)), CONTEXT, "{", output_bytes_max=LIMIT)
        assert {one.answer for one in (hanging, missing, unfit)} == {ProbeAnswer.UNKNOWN}
    finally:
        free.set()

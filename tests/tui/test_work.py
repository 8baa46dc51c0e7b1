"""Questions in a process of their own: answers, refusals, crashes, and what is stale."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from functools import partial

import pytest

from trnbench.errors import InputError
from trnbench.tui.work import Crash, WorkLane
from trnbench.tui.work_process import Cancelled, Failure, WorkAnswer, WorkProgress, WorkRefusal


def doubled(value, hooks):
    return 2 * value


def listening(hooks):
    for step in range(10**9):
        hooks.progress(step, 10**9, "steps")
        time.sleep(0.001)


def keeping(hooks):
    done = 0
    while not hooks.ended():
        done += 1
        hooks.note(done, 10**9, "steps")
        time.sleep(0.001)
    return "what was ready"


def deaf(hooks):
    hooks.note(0, 1, "deaf")
    time.sleep(3600)


def joined(number, text, hooks):
    return f"{number}{text}"


def refused(hooks):
    raise InputError("no such thing", hint="try another")


def broken(hooks):
    raise ValueError("a bug")


def dying(hooks):
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.fixture
def news():
    return queue.Queue()


@pytest.fixture
def lane(news):
    made = WorkLane("test", lambda lane, generation, item: news.put((generation, item)))
    yield made
    made.close()


def outcome(news):
    while True:
        generation, item = news.get(timeout=60)
        if not isinstance(item, WorkProgress):
            return generation, item


def test_a_question_is_answered_and_another_by_the_same_process(lane, news):
    assert lane.ask(partial(doubled, 21)) == 1
    assert outcome(news) == (1, WorkAnswer(42))
    first = lane.process_id
    lane.ask(partial(doubled, 4))
    assert outcome(news) == (2, WorkAnswer(8))
    assert lane.process_id == first
    assert not lane.busy


def test_the_newest_question_replaces_the_one_before_and_stale_news_is_not_told(lane, news):
    lane.ask(listening)
    news.get(timeout=60)
    first = lane.process_id
    lane.ask(partial(doubled, 1))
    assert outcome(news) == (2, WorkAnswer(2))
    assert lane.process_id == first
    assert news.empty()


def test_one_that_does_not_listen_is_replaced_with_its_process(lane, news):
    lane.ask(deaf)
    news.get(timeout=60)
    first = lane.process_id
    lane.ask(partial(doubled, 5))
    assert outcome(news) == (2, WorkAnswer(10))
    assert lane.process_id != first


def test_asking_never_waits_for_the_process(lane, news):
    lane.ask(deaf)
    news.get(timeout=60)

    def many():
        for number in range(30):
            lane.ask(partial(joined, number, "x" * 100_000))

    asking = threading.Thread(target=many, daemon=True)
    asking.start()
    asking.join(60)
    assert not asking.is_alive()
    assert outcome(news) == (31, WorkAnswer("29" + "x" * 100_000))


def test_a_cancelled_question_ends(lane, news):
    lane.ask(listening)
    news.get(timeout=60)
    lane.cancel()
    assert outcome(news) == (1, Cancelled())
    assert not lane.busy


def test_a_cancelled_question_may_answer_with_what_it_has(lane, news):
    lane.ask(keeping)
    news.get(timeout=60)
    lane.cancel()
    assert outcome(news) == (1, WorkAnswer("what was ready", in_part=True))


def test_a_deaf_question_is_cancelled_too(lane, news):
    lane.ask(deaf)
    news.get(timeout=60)
    lane.cancel()
    assert outcome(news) == (1, Cancelled())
    lane.ask(partial(doubled, 3))
    assert outcome(news) == (2, WorkAnswer(6))


def test_what_is_malformed_is_refused_and_a_bug_is_told(lane, news):
    lane.ask(refused)
    assert outcome(news)[1] == WorkRefusal("no such thing", "try another")
    lane.ask(broken)
    told = outcome(news)[1]
    assert isinstance(told, Failure)
    assert told.message == "ValueError: a bug"
    assert "in broken" in told.traceback


def test_a_process_that_dies_is_told_and_the_next_question_gets_another(lane, news):
    lane.ask(dying)
    told = outcome(news)[1]
    assert isinstance(told, Crash)
    assert told.code == -signal.SIGSEGV
    lane.ask(partial(doubled, 7))
    assert outcome(news) == (2, WorkAnswer(14))


def test_an_answer_that_comes_while_its_process_is_being_ended_stands(lane, news):
    lane.ask(partial(doubled, 21))
    assert outcome(news) == (1, WorkAnswer(42))
    first = lane.process_id
    # The timer of a question that was replaced, late: what was asked last has been answered.
    lane._replacing = True
    os.killpg(first, signal.SIGKILL)
    lane.ask(partial(doubled, 4))
    assert outcome(news) == (2, WorkAnswer(8))
    assert lane.process_id != first
    assert news.empty()


def test_a_process_ended_late_is_replaced_by_one_that_is_ready(lane, news):
    lane.ask(partial(doubled, 21))
    assert outcome(news) == (1, WorkAnswer(42))
    first = lane.process_id
    lane._replacing = True
    os.killpg(first, signal.SIGKILL)
    until = time.monotonic() + 60
    while lane.process_id in (first, None):
        assert time.monotonic() < until
        os.sched_yield()
    assert news.empty()

"""Signals and deadlines: remembered, raised where that is allowed, and given back afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from perfrun.errors import Interrupted
from perfrun.run.interruption import Interruption, taking_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def send(number: signal.Signals) -> None:
    """Send ourselves a signal, whose handler then runs before this returns."""
    os.kill(os.getpid(), number)


def wait_for_the_deadline(interruption: Interruption) -> None:
    while not interruption.asked:
        time.sleep(0.001)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_only_where_that_is_allowed(number: signal.Signals) -> None:
    with Interruption().installed() as interruption:
        assert not interruption.asked
        send(number)
        assert interruption.asked
        with pytest.raises(Interrupted, match=number.name), interruption.allowed():
            raise AssertionError("what came before is raised at once")
        with interruption.allowed():
            pass  # it has been raised
        with pytest.raises(Interrupted, match=number.name):
            interruption.check()
        with pytest.raises(Interrupted), interruption.allowed():
            send(number)


def test_handlers_are_given_back_and_an_ignored_sighup_stays_ignored() -> None:
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with taking_signals() as ours:
            send(signal.SIGTERM)
            send(signal.SIGHUP)
            assert (ours.signalled, came) == (True, [])
            with taking_signals(ours) as same:
                assert same is ours
            send(signal.SIGTERM)
            assert came == []  # still ours
        send(signal.SIGTERM)
        assert came == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) == before[signal.SIGINT]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_handlers_are_given_back_after_an_error_too() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), taking_signals():
        _ = 1 // 0
    assert signal.getsignal(signal.SIGINT) == before


def test_a_deadline_ends_what_waits_and_is_no_signal() -> None:
    interruption = Interruption()
    with pytest.raises(Interrupted, match="deadline"):  # noqa: SIM117 - the outer one sees it
        with interruption.until(time.time() + 0.05), interruption.allowed():
            threading.Event().wait()
    assert not interruption.asked  # it is over
    interruption.check()


def test_a_deadline_that_has_passed_ends_what_is_begun_after_it() -> None:
    interruption = Interruption()
    with interruption.until(time.time() - 1.0):
        assert (interruption.asked, interruption.signalled) == (True, False)
        with pytest.raises(Interrupted, match="deadline"), interruption.allowed():
            raise AssertionError("not interrupted")
    with interruption.allowed():
        pass


def test_a_deadline_waits_until_it_may_be_raised_and_is_forgotten_afterwards() -> None:
    interruption = Interruption()
    with interruption.until(time.time() + 0.02):
        wait_for_the_deadline(interruption)
    with interruption.allowed():
        pass
    with interruption.until(None):
        assert not interruption.asked


def test_a_signal_outlives_the_deadline() -> None:
    with Interruption().installed() as interruption:
        with interruption.until(time.time() + 0.02):
            wait_for_the_deadline(interruption)
            send(signal.SIGTERM)
        with pytest.raises(Interrupted, match="SIGTERM"), interruption.allowed():
            raise AssertionError("not interrupted")


def test_the_timer_of_somebody_else_goes_on() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    own = signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        with Interruption().until(time.time() + 3600):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *own)

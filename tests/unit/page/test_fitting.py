"""A page that is too large: what tells least is left out, and nothing else moves."""

from __future__ import annotations

from dataclasses import replace

from perfrun.page.document import ChangeShown, MethodShown, Page, SeriesShown
from perfrun.page.fitting import fitted, size_of
from perfrun.page.packed import packed, packed_times

METHODS, METRICS, NIGHTS = 40, 5, 100
TIMES = packed_times([86400.0 * night for night in range(NIGHTS)])


def series(method: int, metric: int) -> SeriesShown:
    values = [1.0 + (night * 7919 + method * 31 + metric) % 1000 / 1e5 for night in range(NIGHTS)]
    return SeriesShown(
        method=method,
        metric=f"metric_{metric}",
        unit="s",
        direction="lower",
        derived=metric == METRICS - 1,
        n=NIGHTS,
        time=TIMES,
        value=packed(values),
        low=packed([value * 0.99 for value in values]),
        high=packed([value * 1.01 for value in values]),
        flags=None,
        cuts=(),
        commit=None,
        baseline=None,
        noise=None,
    )


def method(number: int) -> MethodShown:
    places = tuple(range(number * METRICS, (number + 1) * METRICS))
    return MethodShown(
        name=f"pkg.Class.method_{number}",
        environment="",
        settings="",
        hardware="",
        hardware_text="",
        state="passed",
        grade="A",
        trials=1,
        failed=0,
        last=0.0,
        detail=None,
        noise=None,
        against_last_night=None,
        against_baseline=None,
        main=places[0],
        series=places,
    )


def change(at: int) -> ChangeShown:
    return ChangeShown(
        method=at // METRICS,
        metric=f"metric_{at % METRICS}",
        direction="worse",
        ratio=1.1,
        low=1.0,
        high=1.2,
        night="",
        alarm_night="",
        at=5,
        status="candidate",
        pairs=0,
        text="",
        commits=(),
        culprit=None,
        environment=(),
        machine_suspect=False,
        is_recent=True,
        series=at,
    )


def test_what_is_needed_stays_and_what_refers_to_it_still_does() -> None:
    whole = Page(
        title="",
        selection="",
        made=0.0,
        newest=0.0,
        outcomes={},
        changes=(change(7 * METRICS + 3),),
        methods=tuple(map(method, range(METHODS))),
        series=tuple(series(m, metric) for m in range(METHODS) for metric in range(METRICS)),
    )
    same, document = fitted(whole, 10**9, "1")
    assert (same, document["left_out"]) == (whole, [])
    assert [one["time"] for one in document["series"]] == [0] * len(whole.series)  # once for all
    room = size_of(document)
    least = size_of(fitted(replace(whole, series=()), 10**9, "1")[1]) + METHODS * size_of(
        document["series"][0]
    )
    for most in (room * 9 // 10, room // 2, room // 4):
        page, document = fitted(whole, most, "1")
        assert size_of(document) <= max(most, least), document["left_out"]
        assert document["left_out"]
        mains = [page.series[one.main or 0] for one in page.methods]
        assert [(one.method, one.metric) for one in mains] == [
            (number, "metric_0") for number in range(METHODS)
        ]
        (found,) = page.changes
        assert page.series[found.series or 0].metric == found.metric
        assert page.series[found.series or 0].method == found.method
    kept = {one.metric for one in fitted(whole, room * 9 // 10, "1")[0].series}
    assert kept == {f"metric_{metric}" for metric in range(METRICS - 1)} or "metric_4" in kept

"""The rule by which rank 0 suspects and reports a hang, with a simulated clock."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._supervisor.hang_watch import HangRule, HangWatch, is_hang

WAITS: dict[str, Any] = {"kind": "collective", "call": "all_reduce", "file": "/t.py", "line": 8, "function": "train"}
LOADS: dict[str, Any] = {"kind": "code", "call": "", "file": "/d.py", "line": 4, "function": "load"}


def group(*ranks: int, cpu: str = "still", **what: Any) -> dict[str, Any]:
    texts = {"text": "", "state": "S", "frames": [], "workers": []}
    return {"ranks": list(ranks), "cpu": cpu, **texts, **what}


class Simulated:
    """A run of two nodes with one rank each, whose silence and stacks the test sets."""

    def __init__(self, timeout: float = 600.0) -> None:
        self.watch = HangWatch(
            {  # type: ignore[typeddict-item]
                "stacks": True,
                "timeouts": {"hang": timeout},
                "nodes": [{"name": f"gpu{n}", "first_rank": n, "slots": 1} for n in range(2)],
            }
        )
        self.now = 1000.0
        self.printed = self.now
        self.news: list[tuple[float, str]] = []
        self.collections = 0

    def go(self, seconds: float, stacks: Any = None, prints_each: float | None = None) -> None:
        """Advance the time. stacks: the groups in a collection by number; prints_each: seconds between outputs."""
        for _second in range(int(seconds)):
            self.now += 1
            if prints_each and self.now - self.printed >= prints_each:
                self.printed = self.now
            for node in range(2):
                self.watch.note_quiet(node, self.now - self.printed, self.now)
            if self.watch.step(self.now, [0, 1], []):
                for node, groups in enumerate(stacks(self.collections)):
                    self.watch.take(node, groups)
                self.collections += 1
            text = self.watch.take_news()
            if text:
                self.news.append((self.now, text))


def hanging(number: int) -> Any:
    return [[group(0, **WAITS)], [group(1, cpu="moving", **LOADS)]]


def test_hang_is_reported_once_after_the_timeout() -> None:
    run = Simulated()
    run.go(3600, hanging)
    ((moment, text),) = run.news
    assert 1600 < moment < 1620
    assert text.endswith("rank 0 on gpu0 waits in all_reduce (t.py:8); rank 1 on gpu1 is in load (d.py:4)")
    assert run.watch.hang is not None and run.watch.hang["awaited_ranks"] == [1]


def test_timeout_adapts_to_the_output_of_the_run() -> None:
    run = Simulated()
    run.go(1000, hanging, prints_each=10)
    assert run.watch.rule.threshold() == 120
    begin = run.now
    run.go(300, hanging)
    assert [moment - begin < 140 for moment, _text in run.news] == [True]
    slow = Simulated()
    slow.go(2000, hanging, prints_each=200)
    assert slow.watch.rule.threshold() > 990
    assert not slow.news


def test_silent_jobs_that_work_are_not_reported() -> None:
    """Their stacks change, or their main threads use CPU time without any rank waiting."""
    working = Simulated()
    working.go(6 * 3600, lambda number: [[group(n, cpu="moving", **{**LOADS, "line": number})] for n in range(2)])
    assert working.collections < 20  # polled at increasing intervals
    same_line = Simulated()
    same_line.go(6 * 3600, lambda number: [[group(n, cpu="moving", **LOADS)] for n in range(2)])
    training = Simulated()
    training.go(6 * 3600, lambda number: [[group(n, cpu="moving", **WAITS)] for n in range(2)])
    stepping = Simulated()
    stepping.go(6 * 3600, lambda number: [[group(0, **{**WAITS, "line": number})], [group(1, **LOADS)]])
    assert not (working.news or same_line.news or training.news or stepping.news)


def test_ranks_that_continue_are_reported_and_a_final_error_is_not_progress() -> None:
    run = Simulated()
    run.go(700, hanging)
    run.printed = run.now  # the errors of ranks that time out
    run.go(60, hanging)  # NCCL's watchdog ends a rank up to a minute after its error
    assert run.watch.hang is not None and len(run.news) == 1
    run.go(30, lambda number: [[group(n, cpu="moving", **{**WAITS, "line": number})] for n in range(2)], prints_each=1)
    assert run.watch.hang is None
    assert run.news[1][1].startswith("the ranks are continuing after")


def test_zero_disables_hang_detection() -> None:
    run = Simulated(0)
    run.go(100_000, hanging)
    assert run.collections == 0


def test_node_that_does_not_reply_does_not_hide_the_others() -> None:
    run = Simulated()
    run.go(3600, lambda number: [[group(0, **WAITS)]])
    assert [text.endswith("rank 0 on gpu0 waits in all_reduce (t.py:8)") for _moment, text in run.news] == [True]


def test_timeout_is_kept_for_a_rule_without_progress() -> None:
    rule = HangRule(600)
    rule.note(599)
    assert not rule.is_due()
    rule.note(601)
    assert rule.is_due()
    rule.postpone()
    rule.note(1200)
    assert not rule.is_due()


def test_timeout_that_stops_the_run_is_never_shortened() -> None:
    for least, expected in ((120.0, True), (600.0, False)):
        rule = HangRule(600, least)
        for quiet in (10, 0, 300):
            rule.note(quiet)
        assert rule.is_due() is expected


def test_single_stuck_rank_counts_as_a_hang() -> None:
    stuck = [group(0, **LOADS)]
    assert is_hang(stuck, stuck, [])
    assert not is_hang(stuck, [group(0, cpu="moving", **LOADS)], [])
    assert not is_hang([], [], [])


def test_low_power_gpus_reveal_a_hang_in_which_all_ranks_wait_on_the_same_line() -> None:
    """As in loss.item() after an all_reduce with tensors of different sizes: the main threads spin."""
    spins = {**WAITS, "kind": "gpu", "call": "synchronize"}
    waits = [group(0, cpu="moving", gpu="waits", **spins), group(1, cpu="moving", gpu="waits", **spins)]
    works = [waits[0], group(1, cpu="moving", **spins)]
    assert is_hang(waits, waits, [])
    assert not is_hang(works, works, [])
    assert not is_hang(works, waits, [])

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor, which keeps one node's part of a run alive, or ends it.

One process per node, started as ``python3 -I -S supervisor.py RUN_DIRECTORY RUN_ID ADDRESS`` (see entry).
It reads ``plan.json`` in the run directory, runs the launcher's command and holds the lifeline: one TCP connection to
rank 0's supervisor, over ``node_address``, authenticated with the run's token. Rank 0 sends a heartbeat every
``heartbeat`` seconds, and the node replies. A node that fails, or is silent for ``silence`` seconds, ends the run
everywhere; an elastic run continues while ``min_nnodes`` nodes and rank 0 remain.

The supervisor signals only its own descendants. It is a child subreaper, so the kernel reparents processes that detach
to it. If the supervisor itself is killed, the unit's cgroup is the safety net with systemd, and a guard process
(``--guard``) elsewhere. Both also end a supervisor whose signs of life stop, for example because a file system hangs,
with everything it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    become_subreaper,
    reap,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.secrets import remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    BUSY_STEP_INTERVAL,
    IDLE_STEP_INTERVAL,
    NOTIFICATION_END_TIMEOUT,
    SLURM_SIGNAL_SPREAD,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import plan_of_attempt
from ansible_collections.muster.training.plugins.module_utils._supervisor.debugger import DebuggerWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.hang_watch import Progress
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.node_health import NodeHealth
from ansible_collections.muster.training.plugins.module_utils._supervisor.heartbeat_file import Pulse
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
from ansible_collections.muster.training.plugins.module_utils._supervisor.launcher import (
    LauncherEnded,
    LauncherProcess,
    Running,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    CollectStacks,
    LifelineEnd,
    NewAttempt,
    Prepare,
    RestartRanks,
    Save,
    Start,
    Stop,
    TakeOver,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.live_sampling import NodeSampler
from ansible_collections.muster.training.plugins.module_utils._supervisor.metrics_file import MetricsFile
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.node_notices import NodeNotices
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.slurm import (
    announces_preemption,
    describe_stop,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.outbox import Outbox
from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import Peer
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.node_preparation import (
    NodePreparation,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.profile_requests import (
    handle_profile_request,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import last_output, other_outputs
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_watch import RankWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import (
    shorten_groups,
    shorten_report,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_requests import handle_stack_request
from ansible_collections.muster.training.plugins.module_utils._supervisor.successor import Successor
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import Watchers

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Attempt, NodeReport, Plan


class Supervisor:
    """A node's event loop, which waits for events and passes them to the launcher, the watchers and the lifeline."""

    def __init__(self, directory: str) -> None:
        self.pulse = Pulse()
        with open(os.path.join(directory, "plan.json"), encoding="utf-8") as stream:
            self.plan: Plan = json.load(stream)
        with open(os.path.join(directory, "token"), encoding="ascii") as stream:
            token = stream.read().strip()
        self.selector = selectors.DefaultSelector()
        self.journal = Journal(directory, self.plan)
        self.launcher = LauncherProcess(self.journal, self.plan)
        self.watchers = Watchers(self.journal, self.plan)
        self.rank_watch = RankWatch(directory, self.plan)
        self.progress = Progress(directory, self.plan)
        self.notices = NodeNotices(self.journal, self.plan)
        self.health = NodeHealth(self.journal, self.plan)
        self.sampler = NodeSampler(self.journal, self.plan)
        self.metrics = MetricsFile(self.journal, self.plan)
        self.debugger = DebuggerWatch(directory, self.plan)
        self.outbox = Outbox(self.journal, self.plan)
        self.preparation = NodePreparation(self.journal, self.plan, token)
        kind = Hub if leads_run(self.plan) else Peer  # a node that joins the run may have number 0
        self.lifeline: LifelineEnd = kind(self.plan, token, self.journal, self.selector)
        self.stop_signal: int | None = None  # the signal that requested this node to stop
        self.report: NodeReport | None = None  # once this node's part has ended
        self.tend_due = 0.0  # when to tend the processes, the lifeline and the run
        self.damage_reported = False  # whether the watcher has learned what the job did to the run directory
        self.is_done = False

    def run(self) -> int:
        """Run until the run has ended here and, as far as this node knows, everywhere else; return the exit code."""
        become_subreaper()
        self.wake, wake_writer = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self.selector.register(self.wake, selectors.EVENT_READ, self.drain_wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.journal.identify()
        self.journal.reserve_space()
        self.lifeline.open()
        self.carry_out_orders()
        self.step(0.0)  # so that a peer checks in without delay
        while not self.is_done:
            self.step(self.step_interval())
        self.clean_up()
        return 0 if self.lifeline.result_state == "succeeded" else self.lifeline.failure_code

    def step_interval(self) -> float:
        """Return the seconds until the next step; messages, signals and ended processes cause one at once."""
        ending = self.report is None and self.launcher.ending() is not None
        busy = self.journal.state == "restarting" or ending or self.lifeline.is_busy()
        return BUSY_STEP_INTERVAL if busy else IDLE_STEP_INTERVAL

    def note_signal(self, number: int, frame: object) -> None:
        self.stop_signal = number

    def drain_wake(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 512)

    def step(self, timeout: float) -> None:
        """Wait for the next events, and handle them."""
        ready = self.selector.select(min(timeout, max(0.0, self.tend_due - time.monotonic())))
        now = time.monotonic()
        self.pulse.beat(now)
        only_beats = bool(ready)
        for key, mask in ready:
            only_beats = self.handle(key.data, mask, now) and only_beats
        if only_beats and now < self.tend_due:  # 64 nodes send 32 per second, and they require no action
            return
        self.tend_due = now + timeout
        for connection in self.lifeline.connections:
            if not connection.closed:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outbox else 0)
                if events != connection.events:  # this system call costs more than all other work for a peer
                    self.selector.modify(connection.sock, events, connection)
                    connection.events = events
        if self.stop_signal is not None:
            name, self.stop_signal = signal.Signals(self.stop_signal).name, None
            directory, clock = self.journal.directory, time.time()
            if not announces_preemption(directory, os.environ, clock):
                self.lifeline.on_stop_signal(describe_stop(name, directory, os.environ, clock))
        self.carry_out_orders()
        self.tend_processes(now)
        self.lifeline.step(now)
        self.carry_out_orders()
        self.is_done = self.lifeline.is_over(now)
        if now >= self.journal.status_due:
            self.write_status(now)
            if self.journal.damage and not self.damage_reported:
                self.damage_reported = True
                self.lifeline.say("files", self.journal.damage)

    def handle(self, target: Any, mask: int, now: float) -> bool:
        """Handle a ready connection, or call a ready callback; return whether only heartbeats were received."""
        if not isinstance(target, LifelineConnection):
            target(now)
            return False
        if mask & selectors.EVENT_WRITE:
            target.flush()
        only_beats = bool(mask & selectors.EVENT_READ) and self.receive_messages(target, now)
        return only_beats and mask == selectors.EVENT_READ

    def receive_messages(self, connection: LifelineConnection, now: float) -> bool:
        """Handle all messages that have arrived on a connection; return whether they were all heartbeats."""
        messages = connection.receive()
        only_beats = bool(messages)
        while messages:
            for message in messages:
                only_beats = only_beats and message.get("type") == "beat"
                self.lifeline.on_message(connection, message, now)
            messages = [] if connection.closed else connection.receive()
        return only_beats and not connection.closed

    def carry_out_orders(self) -> None:
        """Carry out the orders that come from this node's end of the lifeline."""
        for order in self.lifeline.take_orders():
            if isinstance(order, Start):
                self.lifeline.after_start(self.launcher.start(order.command))
            elif isinstance(order, CollectStacks):
                self.lifeline.send_stacks(shorten_groups(self.launcher.collect_stacks()))
            elif isinstance(order, RestartRanks):
                self.launcher.restart_ranks(order.last_heard)
            elif isinstance(order, NewAttempt):
                self.begin_attempt(order.attempt)
            elif isinstance(order, Prepare):
                self.preparation.begin(order.request, time.monotonic())
            elif isinstance(order, Save):
                self.save(order)
            elif isinstance(order, TakeOver):
                self.take_over()
            elif isinstance(order, Stop):
                if order.leaving and not self.launcher.has_failed():
                    self.launcher.rank_failed = order.reason
                    self.launcher.shutdown = order.shutdown
                self.stop(order.reason)

    def begin_attempt(self, attempt: Attempt) -> None:
        """Prepare for another attempt: its files and logs, and a launcher that has not been started yet."""
        self.preparation.close()
        self.plan = plan_of_attempt(self.plan, attempt, self.journal.directory)
        self.journal.begin_attempt(self.plan)
        self.launcher = LauncherProcess(self.journal, self.plan)
        self.rank_watch = RankWatch(self.journal.directory, self.plan)
        self.progress = Progress(self.journal.directory, self.plan)
        self.watchers.begin_attempt(self.plan)
        self.notices.begin_attempt(self.plan)
        self.health.begin_attempt(self.plan)
        self.debugger = DebuggerWatch(self.journal.directory, self.plan)
        self.report = None
        self.lifeline.after_new_attempt(self.plan)

    def take_over(self) -> None:
        """Lead the run from now on, replacing a hub that was lost."""
        peer = self.lifeline
        if isinstance(peer, Peer):
            peer.close()
            successor = Successor(peer.plan, peer.token, self.journal, self.selector)
            successor.inherit(peer, peer.current)
            self.lifeline = successor
            self.plan = successor.plan
            self.journal.replace_plan(successor.plan)
            successor.open()
            for message in peer.unsent:
                successor.say(message["type"], message["text"])
            for fields in peer.unsent_notices:
                successor.raise_notice(fields)

    def save(self, order: Save) -> None:
        """Let this node's ranks save; ranks that have ended or are being ended cannot save."""
        if isinstance(self.launcher.phase, Running):
            if order.notice["ends"]:
                self.launcher.is_saving = True
            pid = self.launcher.process.pid if self.launcher.process else 0
            self.lifeline.say("saving", self.notices.deliver(order.notice, order.number, pid))

    def stop(self, reason: str) -> None:
        """End this node's part."""
        self.launcher.stop(reason)
        if self.report is None:
            self.journal.set_state("stopping", self.launcher.stop_reason or "")

    def tend_processes(self, now: float) -> None:
        """Reap children, step the watchers and the launcher, and send a report once this node's part has ended."""
        ended = reap()
        running = isinstance(self.launcher.phase, Running)
        for fields in self.notices.step(now, ended, running):
            self.lifeline.raise_notice(fields)
        if self.notices.has_saved():
            self.lifeline.say(
                "saving", (f"{self.notices.name}: the job has removed the notice file, which means that it has saved")
            )
        self.outbox.step(now, ended)
        for reply in self.preparation.step(now, ended):
            self.lifeline.send_prepared(reply)
        notices = self.watchers.step(now, ended, self.launcher.process is not None, running)
        notices += self.health.step(now, ended, running) + self.sampler.step(now, running)
        if self.report is None and not isinstance(self.launcher.phase, LauncherEnded):
            own_pids = self.watchers.pids() + self.notices.pids() + self.outbox.pids()
            own_pids += self.health.pids() + self.preparation.pids()
            notices += self.launcher.step(now, ended, own_pids)
        if running:
            notices += self.rank_watch.step(now, self.launcher) + self.debugger.step()
            self.lifeline.quiet = self.progress.quiet(now)
            handle_stack_request(self.journal, self.launcher)
            handle_profile_request(self.journal, self.launcher)
        phase = self.launcher.phase
        ended_phase = phase if self.report is None and isinstance(phase, LauncherEnded) else None
        failed = self.launcher.has_failed()
        needs_checks = failed or self.watchers.accounts  # whether the report needs final checks
        if ended_phase and needs_checks and self.watchers.final_check is None:
            notices += self.watchers.start_final_checks(now, failed, gpus=not self.launcher.ended_by_us)
        for kind, text in notices:
            self.lifeline.say(kind, text)
        if ended_phase and failed and self.awaits_signal(now - ended_phase.ending.since):
            return
        if ended_phase and (not needs_checks or self.watchers.has_finished_checks(now)):
            self.make_report(ended_phase.stuck, ended_phase.container)

    def awaits_signal(self, seconds: float) -> bool:
        """Return whether Slurm may be ending the job: it signals this process, too, but perhaps after the ranks.

        seconds: how long ago the ranks ended.
        """
        is_told = self.launcher.is_saving or self.launcher.stop_reason
        return "SLURM_JOB_ID" in os.environ and not is_told and seconds < SLURM_SIGNAL_SPREAD

    def make_report(self, stuck: list[int], container: str = "") -> None:
        self.write_status(time.monotonic())  # records a full disk, which may be why the job failed
        report = self.launcher.make_report(stuck, container)
        report["mounts"], report["gpus"] = self.watchers.mounts, self.watchers.gpus_error
        report["shortened"] = self.watchers.shortened
        report["health"] = self.health.findings
        report["last_log"], report["last_lines"] = last_output(report)
        report["outputs"] = other_outputs(report)
        shorten_report(report)
        self.report = report
        if not self.launcher.stop_reason:
            self.journal.set_state("ended", "")
        self.lifeline.report(report)

    def write_status(self, now: float) -> None:
        process = self.launcher.process
        fields = {
            "launcher_pid": process.pid if process else None,
            "report": self.report,
            "ended_ranks": self.rank_watch.global_ranks(),
            "health": self.health.texts(),
        }
        status = {**fields, **self.lifeline.status()}
        self.journal.write_status(now, status)
        running = isinstance(self.launcher.phase, Running)
        for kind, text in self.metrics.step(
            now, running, {**status, "quiet": self.lifeline.quiet if running else None}
        ):
            self.lifeline.say(kind, text)

    def clean_up(self) -> None:
        self.lifeline.close()
        self.preparation.close()
        self.notices.close()
        self.health.close()
        remove_secrets(self.journal.directory)
        self.journal.free_reserved_space()
        message = self.journal.message or self.launcher.stop_reason or ""
        self.journal.set_state(self.lifeline.result_state or "failed", message)
        self.write_status(time.monotonic())
        self.metrics.close()
        self.outbox.end(self.lifeline.result, self.lifeline.loss_to_report(), time.monotonic() - self.journal.started)
        remover = start_in_background(["/bin/rm", "-rf", "--", self.launcher.temporary], os.devnull)  # may take long
        ended: dict[int, int] = {}
        deadline = time.monotonic() + NOTIFICATION_END_TIMEOUT
        while (remover and remover not in ended) or not (self.outbox.is_empty() or time.monotonic() > deadline):
            self.pulse.beat(time.monotonic())
            time.sleep(0.01)
            ended.update(reap())
            self.outbox.step(time.monotonic(), ended)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All fixed timeouts, intervals and grace periods of a run, in seconds unless noted.

Nodes and the controller share this file because many of these values depend on each other.

Those that the user sets (launch_start_timeout, launch_silence_timeout, launch_stop_grace) are in the plan's `timeouts`.
"""

from __future__ import annotations

# Start
START_LOCK_TIMEOUT = 120.0  # for another start by the same user on this machine to finish; includes replacing a run
START_LOCK_POLL_INTERVAL = 0.02  # between attempts to take the start lock; short, since a start usually waits for it
# age at which a secret without a supervisor is considered left over from a failed start, not part of one in progress
ABANDONED_TIMEOUT = 600.0
CONNECT_TIMEOUT = 1.0  # for one of a node's connections to rank 0; the supervisor does nothing else meanwhile
CONNECT_RETRY_INTERVAL = 0.1  # between a node's attempts to connect to rank 0, which may start later
CHECK_IN_GRACE_PERIOD = 5.0  # beyond the start timeout; rank 0's own timeout should expire first
HEAD_START_INTERVAL = 0.1  # head start of rank 0's launcher over the others; the best of the values 0.05, 0.1 and 0.2

# Lifeline
HEARTBEAT_INTERVAL = 2  # between rank 0's heartbeats; written into the plan
# in heartbeat intervals: a node that has not heard from rank 0 for this long sends a heartbeat
UNPROMPTED_BEAT_INTERVAL = 1.5
RECONNECT_TIMEOUT = 2.0  # for a broken connection to be restored before its node is considered lost
AUTHENTICATION_TIMEOUT = 5.0  # for a new connection to prove that it holds the token
FLUSH_TIMEOUT = 1.0  # for the last messages to be sent before the connections are closed

# Attempts
GPU_FREE_TIMEOUT = 50.0  # for the last attempt's processes and GPU memory to be gone before the next attempt begins
NODE_CHECK_INTERVAL = 0.5  # between two checks of these processes and of the GPU memory
NODE_CHECK_TIMEOUT = 20.0  # beyond GPU_FREE_TIMEOUT, for a node's checks before an attempt
SMI_TIMEOUT = 10.0  # for nvidia-smi to respond before an attempt
RETURN_TIMEOUT = 15.0  # for a node that has fallen silent to come back before the next attempt begins without it

# Nodes that join
# for a run to accept a node: a lost node may come back first, and the attempt must have ended
JOIN_REQUEST_TIMEOUT = 60.0
JOIN_TIMEOUT = 75.0  # for the supervisor that leads the run to reply to such a request

# Succession
CANDIDATE_TIMEOUT = 15.0  # for a candidate for leadership to respond before the others turn to the next one
SETTLE_TIMEOUT = 2.0  # how long a candidate that a majority follows waits for the others

# Supervisor
BUSY_STEP_INTERVAL = 0.05  # between two steps while a node checks in, gets ready for another attempt or ends
IDLE_STEP_INTERVAL = 0.25  # between two steps while a node waits for the others, or its job runs
PULSE_INTERVAL = 1.0  # between signs of life to systemd or the guard
HANG_GRACE_PERIOD = 5.0  # how far beyond the silence timeout a supervisor may go without a sign of life on its own node
LOG_CHECK_INTERVAL = 10.0  # between checks of the logs' sizes
RANK_CHECK_INTERVAL = 5.0  # between checks of whether ranks have exited
RANK_END_NOTICE_TIMEOUT = 60.0  # after which a rank that exited is mentioned if others are still running
GPU_SAMPLE_INTERVAL = 15  # between two GPU samples; written into the plan
GPU_SILENCE_TIMEOUT = 4 * GPU_SAMPLE_INTERVAL  # age of the last sample at which nvidia-smi is considered silent
MOUNT_CHECK_INTERVAL = 10.0  # between checks of a mount
MOUNT_CHECK_TIMEOUT = 10.0  # for a mount to respond
HEALTH_CHECK_INTERVAL = 60.0  # between two readings of GPU health
HEALTH_CHECK_TIMEOUT = 30.0  # for each query of such a check; nothing waits for it
HOST_CHECK_INTERVAL = 15.0  # between checks of RDMA ports, memory and the run's disk
PACE_WINDOW = 300.0  # time window in which the nodes' clocks and step times are compared
FINAL_CHECK_TIMEOUT = 2.0  # for the mount and GPU checks that a failed node's report waits for

# Hangs
STACK_POLL_INTERVAL = 0.004  # between checks for a process's stack; writing one takes less time than this
STACKS_TIMEOUT = 1.0  # for collecting the stacks of a run that continues; the supervisor does nothing else meanwhile
FINAL_STACKS_TIMEOUT = 0.2  # for collecting the stacks before the ranks are ended
PYTHON_STACK_TIMEOUT = 0.3  # for a running process to write its stack between two bytecode instructions
SLEEP_SAMPLE_INTERVAL = 0.01  # how long a process must have been sleeping to be considered blocked
WORKER_STACKS_TIMEOUT = 0.4  # for collecting the stacks of worker processes, such as data loaders
STACKS_REPLY_TIMEOUT = 5.0  # for all nodes to send their stacks to rank 0
PROGRESS_CHECK_INTERVAL = 2.0  # between checks of whether the job has written anything
HANG_CONFIRM_INTERVAL = 10.0  # between the two stack collections that must agree before a hang is reported
LEAST_HANG_TIMEOUT = 120.0  # the shortest hang timeout that adaptation to a run may set
HANG_GAP_FACTOR = 5  # how many times longer than the longest gap so far a period of silence must be
RAS_TIMEOUT = 2.0  # for NCCL to report which ranks differ, once per hang; rank 0 does nothing else meanwhile
FLIGHT_RECORDER_TIMEOUT = 1.5  # for reading the dumps of a node's ranks before its report
STACKS_REQUEST_TIMEOUT = 10.0  # for a supervisor to reply to stacks.yml

# Notices and notifications
METADATA_POLL_INTERVAL = 5.0  # between two requests to a provider's metadata service, as Amazon recommends
METADATA_CONNECT_TIMEOUT = 1.0  # for connecting to it
METADATA_READ_TIMEOUT = 2.0  # for each part of its reply
SIGNAL_INTERVAL = 1.0  # between searches for ranks that have only now become able to handle the signal of a notice
NOTIFICATION_TIMEOUT = 5.0  # for a server to accept a notification; nothing else waits for it until the run has ended
NOTIFICATION_END_TIMEOUT = 10.0  # for the last notifications to be sent before rank 0's supervisor ends
SAVE_WATCH_INTERVAL = 2.0  # between checks of the checkpoints after a notice that ends the run
SAVED_GRACE_PERIOD = 5.0  # for ranks that have saved to exit by themselves; at most the rest of the grace period
SAVE_REQUEST_TIMEOUT = 10.0  # for a supervisor to pick up a request to save
SAVE_REPLY_INTERVAL = 1.0  # for all nodes' reports to reach rank 0 afterwards

# for systemd to report whether the machine is shutting down; nothing else happens meanwhile
SHUTDOWN_QUERY_TIMEOUT = 2.0
LAUNCHER_EXIT_GRACE_PERIOD = 1.0  # for a launcher to exit by itself once its ranks have ended or are being ended
KILL_TIMEOUT = 5.0  # after SIGKILL, before a process is considered stuck
REPORT_GRACE_PERIOD = 2.0  # beyond the stop grace and KILL_TIMEOUT, for the last reports to reach rank 0
CONTAINER_CREATION_TIMEOUT = 120.0  # for the engine to finish creating a container whose client was killed
CONTAINER_RETRY_INTERVAL = 0.25  # between attempts to remove such a container
CONTAINER_REMOVAL_TIMEOUT = 30.0  # for the container engine to remove a container; the guard waits for it
STOP_GRACE_PERIOD = 15.0  # beyond the stop grace, for the supervisor to end the run; stop.yml waits for it
UNKNOWN_STOP_GRACE = 30.0  # stop grace assumed for a run whose plan has been removed by its job
STOP_POLL_INTERVAL = 0.05  # between checks of whether a stopped run has ended
UNIT_STOP_GRACE_PERIOD = 20  # how long after the stop grace systemd kills the unit: longer than the supervisor needs

# Checkpoints
CHECKPOINT_RESUME_TIMEOUT = 4.0  # for reading a run's checkpoints before an attempt; nothing else happens meanwhile
# silence of a node that is sending or receiving a checkpoint after which the copy is considered failed
COPY_SILENCE_TIMEOUT = 30.0
COPY_AUTHENTICATION_TIMEOUT = 5.0  # for a connection to prove that it has the key; covers all of its lines together
COPY_ACCEPT_RETRY_INTERVAL = 0.1  # after failing to accept a connection, for example because no descriptors were free
COPY_TIMEOUT = 1800.0  # for the nodes to copy the parts of a checkpoint before an attempt
SERVE_TIMEOUT = 15.0  # for a node to offer the parts that other nodes lack
CHECKPOINT_READ_TIMEOUT = 10.0  # for the newest checkpoints of a job to be read before it starts

# Calls from the controller: after these times, a node that is reachable is considered not to be responding
CALL_TIMEOUT = 300.0  # for a reply to a request that takes a node a few seconds to process
STOP_CALL_TIMEOUT = 1800.0  # for runs to be stopped, whose stop grace periods the controller may not know
MAX_STOP_GRACE = 1500  # maximum value of launch_stop_grace; less than STOP_CALL_TIMEOUT
PACK_CALL_TIMEOUT = 1800.0  # for a run's logs to be packed or its directory to be removed
HASH_CALL_TIMEOUT = 7200.0  # for comparing outputs: a node reads all of them
SIGNAL_CHECK_INTERVAL = 0.5  # between checks of whether Ctrl-C has ended the wait for replies
# beyond these timeouts, before the kernel ends whatever a call has left behind on the node
NODE_CALL_GRACE_PERIOD = 10.0

# Watch and status
LONG_POLL_TIMEOUT = 5.0  # how long the node waits for news before it replies
# beyond LONG_POLL_TIMEOUT, before a reply is considered missing: ssh may wait for many minutes
REPLY_GRACE_PERIOD = 15.0
COLLECT_INTERVAL = 0.5  # how long output is collected before a reply: each reply costs a new process
COMPILER_SILENCE = 20.0  # of silence after which we check whether the job is running compilers
WATCH_POLL_INTERVAL = 0.1  # between checks for updates
LAST_OUTPUT_GRACE_PERIOD = 0.2  # for a dead supervisor's last output to reach the disk
STATUS_POLL_INTERVAL = 0.2  # between checks of whether a run has ended
RETRY_INTERVAL = 1.0  # between the watcher's attempts to reach a node that is not responding

# Live page
PAGE_STREAM_INTERVAL = 0.5  # minimum time between two updates about a run while someone is viewing it
PAGE_STREAM_CHECK_INTERVAL = 0.1  # between checks for such updates, which take a few system calls
PAGE_STREAM_SILENCE = 5.0  # without updates before a sign of life is sent, which fails if nobody is reading it
PAGE_STREAM_TIMEOUT = 900.0  # lifetime of the process on the node that sends the updates; a new process is then started
PAGE_WAIT_TIMEOUT = 2.0  # how long a browser's request waits for updates
PAGE_POLL_INTERVAL = 2.0  # between requests for updates without a stream; each starts a process on the node
PAGE_IDLE_INTERVAL = 15.0  # between requests while nobody is viewing the run
PAGE_IDLE_TIMEOUT = 30.0  # since the browser's last request before a run is considered no longer viewed
PAGE_FEED_TIMEOUT = 3600.0  # since that request before a run is no longer read
PAGE_CALL_TIMEOUT = 20.0  # for a node to respond
# silence of the node that leads the run after which the others are asked which node is leading it
PAGE_LOST_TIMEOUT = 15.0
PAGE_SEARCH_TIMEOUT = 60.0  # for a node to search its ranks' output
PAGE_REQUEST_TIMEOUT = 10.0  # for a browser to send a request

# Profiles
PROFILE_REQUEST_TIMEOUT = 10.0  # for a supervisor to reply to profile.yml
PROFILE_POLL_INTERVAL = 0.1  # between checks of whether the ranks have finished
PROFILE_REPEAT_INTERVAL = 2.0  # between two requests to ranks that are importing torch
PROFILE_EXPORT_TIMEOUT = 60.0  # for a rank to write its trace after a request to finish
PROFILE_CALL_GRACE_PERIOD = 300.0  # beyond launch_profile_timeout, for a node to finish and to analyze the traces

# Debugger
DEBUG_COLLECTIVE_TIMEOUT = 86400.0  # timeout of collectives while a rank is being debugged

# Slurm
SLURM_COMMAND_TIMEOUT = 60.0  # for a Slurm command, which itself waits for the Slurm controller
SUBMIT_RETRY_TIMEOUT = 90.0  # for a controller that is restarting to accept a job
SUBMIT_RETRY_INTERVAL = 2.0
QUEUE_POLL_INTERVAL = 0.5  # between checks of whether a queued run has started
STEP_POLL_INTERVAL = 0.2  # between checks of a job that is holding nodes for its step
REQUEUE_CLEANUP_TIMEOUT = 60  # for all nodes to remove what a job keeps for another life; srun may wait for a lost node
LOST_NODE_JOB_TIMEOUT = 30  # for a node that is only hanging or was cut off to end its part before the job ends
PREEMPTION_QUERY_TIMEOUT = 3.0  # for Slurm to report whether it is preempting the job; the supervisor waits for it
SLURM_SIGNAL_SPREAD = 1.0  # for the signal that ends a job to reach the supervisor after it has ended a rank
TIME_LIMIT_MARGIN = 90.0  # how long before its time limit a job may end: Slurm checks the limit once per minute
ALLOCATION_HOLD_TIMEOUT = 900.0  # how long a job holds nodes for a launch that checks them and copies code to them

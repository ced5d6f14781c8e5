#!/usr/bin/env bash
# Starts KERNEL, Linux in user mode, under the name of this script: a restart from inside runs again what it was started by, and leaves
# open what was open, so that the device of its network would be busy.
for open in /proc/self/fd/*; do
    number=${open##*/}
    ((number > 2)) && eval "exec $number>&-"
done
exec -a "$0" "$KERNEL" "$@"

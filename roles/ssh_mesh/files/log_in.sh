#!/bin/sh
# Log in at the node $1 as the programs of users do, without options of our own that would change the outcome. Silent where it works.
for pause in 1 2 3; do
    said=$(ssh -n -o BatchMode=yes -o ConnectTimeout=10 -o ClearAllForwardings=yes "$1" true 2>&1) && exit 0
    # sshd drops connections at random while ten or more wait for their login (MaxStartups).
    case $said in *kex_exchange_identification*) sleep "$pause" ;; *) break ;; esac
done
printf '%s: %s\n' "$1" "$(printf %s "$said" | tail -n 1)"

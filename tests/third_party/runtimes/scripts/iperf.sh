# As many bytes arrive as are sent: one way, the other, both, by four streams.
# (A client that comes before the server has seen the end of the one before is told that it is busy: hence the pauses.)
for more in "" "-R" "--bidir" "-P 4" "-Z" "-l 1000"; do
    iperf3 -c 127.0.0.1 -p "$1" -n 20M -J $more >told.json
    echo "$more: $? $(grep '"error"' told.json)"
    sleep 0.5
done
echo idle
read -r _
iperf3 -c 127.0.0.1 -p "$1" -n 1M >/dev/null
echo "done $?"

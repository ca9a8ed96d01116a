# Subscribers of each quality get what publishers send: small ones, one of 1 MB, and the will of one that dies.
port=$1
for quality in 0 1 2; do
    mosquitto_sub -p "$port" -t 'news/#' -q $quality -C 403 -i "sub$quality" >"sub$quality.out" &
    subscribers="$subscribers $!"
done
until [ "$(mosquitto_sub -p "$port" -t '$SYS/broker/clients/connected' -C 1)" -ge 3 ] 2>/dev/null; do sleep 0.3; done
seq 200 | mosquitto_pub -p "$port" -t news/lines -q 1 -l
seq 201 400 | $COUNTED mosquitto_pub -p "$port" -t news/lines -q 2 -l
head -c 1000000 /dev/zero | tr '\0' x | mosquitto_pub -p "$port" -t news/large -q 1 -s
mosquitto_pub -p "$port" -t news/kept -r -q 1 -m kept
mosquitto_sub -p "$port" -t nothing --will-topic news/will --will-payload gone --will-qos 1 -k 60 &
dies=$!
sleep 0.5
kill -9 $dies
echo idle
read -r _
for one in $subscribers; do wait "$one"; done
for quality in 0 1 2; do cksum <"sub$quality.out"; done
mosquitto_sub -p "$port" -t 'news/#' -C 1
echo done

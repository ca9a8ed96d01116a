# A tree there and back, by a daemon; then what has changed; then compressed.
from=rsync://127.0.0.1:$1/module
rm -rf tree back
mkdir -p tree/sub back
seq 400000 >tree/large
for n in $(seq 60); do seq "$n" >"tree/sub/$n"; done
rsync -a tree/ "$from/tree/" && rsync -a "$from/tree/" back/ && diff -r tree back && echo same
seq 200000 600000 >tree/large
rm tree/sub/7
rsync -az --delete tree/ "$from/tree/" && $COUNTED rsync -az --delete "$from/tree/" back/ && diff -r tree back && echo same
rsync -a --inplace --no-whole-file "$from/tree/large" back/again && cmp tree/large back/again && echo same
rsync "$from/nothing" 2>/dev/null
echo "status $?"
rsync --list-only "$from/tree/sub/" | wc -l
echo idle
read -r _
echo done

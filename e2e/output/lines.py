# Writes numbered lines, so many bytes of them, each with the time at which it was made: in
# another life of the sandbox the same number has another time. At the end it says in a file
# what it has written.
import hashlib, os, sys, time

size, record = int(sys.argv[1]), sys.argv[2]
n = written = 0
digest = hashlib.sha256()
while written < size:
    made = time.time_ns()
    text = "".join(f"{i} {made} some words that make the line longer\n" for i in range(n, n + 500)).encode()
    n += 500
    digest.update(text)
    written += len(text)
    while text:
        text = text[os.write(1, text):]
with open(record, "w") as f:
    f.write(f"{digest.hexdigest()} {written}")

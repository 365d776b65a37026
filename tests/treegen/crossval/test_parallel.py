"""Processes that fit, and an interrupt while they start."""

import os
import signal

from programs import start

PROGRAM = """
import os, signal, time
if __name__ == "__main__":
    from treegen.crossval.parallel import processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with processes(2) as run:
            run("sleep", time.sleep, [30, 30])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
else:
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(0.3)  # as imports take a while
    os.write(1, b"has started\\n")
"""


def test_an_interrupt_while_processes_start_prints_nothing_of_theirs(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with start("program.py", cwd=tmp_path, start_new_session=True) as process:
        os.kill(int(process.stdout.readline()), signal.SIGINT)  # a terminal's reach all
        while process.stdout.readline() != "has started\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out.endswith("interrupted\n") and not err

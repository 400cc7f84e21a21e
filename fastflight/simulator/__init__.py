"""The simulated board: a child process that behaves like a MicroPython board on a serial line.

Start it with `python -m fastflight.simulator` (see `__main__`); the transport for `sim:` URLs does. It speaks the real
wire protocol and executes what it is sent on a file tree of its own. It imports the standard library only, so that it
starts fast, and runs on every operating system.

It is a simulator: code runs on CPython with MicroPython's names, so nothing may be claimed for MicroPython that was
only seen here. What differs on purpose is said where it differs: `repl` (line editing, raw paste), `timers` (when
callbacks run), `files` (names that the host refuses), `runtime` (heap, dialect).

CPython does not keep code in: `sandbox` takes this process's rights away, as far as the system can.

::

    __main__    options, and what is wired to what
    board       power on, soft and hard reset
    repl        friendly REPL, raw REPL, raw paste       readline  the line editor
    runtime     executes code                            modules/  what it can import     trace  how errors look
    console     stdin, stdout, select.poll               timers    machine.Timer
    files       the file tree                            confine   refuses mistakes       samples  what is in it
    sandbox     what the process gives up                landlock, syscalls   how Linux takes it away
    uart        the UART, interrupts                     ring, pacer   its parts           line     the wire
    link        sockets to the host                      terminal  a serial port of this computer
    faults      what can go wrong                        control   asking for it while the board lives
"""

"""The simulated board: a child process that behaves like a MicroPython board on a serial line.

The transport for `sim:` URLs starts it with `python -m fastflight.simulator` (see `__main__`). It speaks the real wire
protocol and executes the code it receives on its own file tree. It imports only the standard library, so that it starts
fast, and it runs on every operating system.

It is a simulator: board code runs on CPython with MicroPython's names, so nothing may be claimed for MicroPython that
was only seen here. These modules document the deliberate differences: `repl` (line editing, raw paste), `timers` (when
callbacks run), `files` (names that the host refuses), `runtime` (heap, dialect).

CPython itself does not confine the code that it runs. `sandbox` takes rights away from this process, as far as the
system allows it.

::

    __main__    options and wiring
    board       power on, soft and hard reset
    repl        friendly REPL, raw REPL, raw paste       readline  the line editor
    runtime     executes code                            modules/  MicroPython's modules  trace  format of tracebacks
    values      repr, str and JSON of values
    console     stdin, stdout, select.poll               timers    machine.Timer
    files       the file tree                            mounts    file systems of board code    samples  initial files
    confine     guard against mistakes
    sandbox     the rights that the process gives up     landlock, syscalls   Linux mechanisms for that
    uart        the UART, interrupts                     pacer     its pace                line     the wire
    link        sockets to the host                      terminal  a pseudo-terminal of this computer
    faults      simulated faults                         control   adds faults while the board runs
"""

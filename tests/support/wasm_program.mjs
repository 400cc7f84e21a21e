// A program in MicroPython's WebAssembly build, as a board whose main.py is running:
//
//     node wasm_program.mjs PACKAGE_DIR PROGRAM [HEAP_BYTES]
//
// PROGRAM is a file with MicroPython code, which runs as top-level code in which `await` is allowed. Files beside it are
// on the board as well, in the root folder. Bytes read from descriptor 0 are the program's sys.stdin, descriptor 1 gets what
// it prints. The VM has no REPL here: only what the program offers answers. Ctrl-C is a byte like others.
//
// The VM's `select` cannot poll its standard input, and its asyncio has no StreamReader: SHIM gives both to programs.

import { constants, openSync, readFileSync, readSync, readdirSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [packageDirectory, program, heapBytes = "1048576"] = process.argv.slice(2);
const { loadMicroPython } = await import(pathToFileURL(join(packageDirectory, "micropython.mjs")).href);

// Bytes that have arrived and were not read yet.
let arrived = Buffer.alloc(0);
const piece = Buffer.alloc(65536);
// Opened again, so that reading does not block this process and leaves the other end of the line as it is.
const line = openSync("/dev/stdin", constants.O_RDONLY | constants.O_NONBLOCK);
const pause = new Int32Array(new SharedArrayBuffer(4));

function fill() {
    try {
        const count = readSync(line, piece);
        if (count === 0) process.exit(0);
        arrived = Buffer.concat([arrived, piece.subarray(0, count)]);
    } catch (error) {
        if (error.code === "EIO") process.exit(0);
        if (error.code !== "EAGAIN") throw error;
    }
}

// Whether a byte is there, after at most so many milliseconds.
function waits(milliseconds) {
    const end = performance.now() + milliseconds;
    for (;;) {
        if (arrived.length === 0) fill();
        if (arrived.length > 0 || performance.now() >= end) return arrived.length > 0;
        Atomics.wait(pause, 0, 0, 1);
    }
}

function take() {
    while (!waits(1000));
    const byte = arrived[0];
    arrived = arrived.subarray(1);
    return byte;
}

function write(data) {
    for (let done = 0; done < data.length; ) {
        try {
            done += writeSync(1, data, done, data.length - done);
        } catch (error) {
            if (error.code === "EPIPE" || error.code === "EIO") process.exit(0);
            if (error.code !== "EAGAIN") throw error;
            Atomics.wait(pause, 0, 0, 1);
        }
    }
}

const board = await loadMicroPython({
    heapsize: Number(heapBytes),
    linebuffer: false,
    stdin: take,
    stdout: write,
    stderr: write,
});
const output = board.FS.streams[1];
output.stream_ops = {
    ...output.stream_ops,
    write: (_stream, memory, offset, length) => {
        write(new Uint8Array(memory.buffer, memory.byteOffset + offset, length));
        return length;
    },
};
for (const name of readdirSync(dirname(program))) {
    board.FS.writeFile(`/${name}`, readFileSync(join(dirname(program), name)));
}
board.registerJsModule("line", { waits });
const SHIM = `
import sys, asyncio, line
sys.path.append("/")
class Poll:
    def register(self, stream, events=1):
        self.ready = [(stream, 1)]
    def poll(self, timeout=-1):
        return self.ready if line.waits(1e9 if timeout < 0 else timeout) else []
    ipoll = poll
class select:
    poll = Poll
    POLLIN = 1
sys.modules["select"] = select
class StreamReader:
    def __init__(self, stream):
        self.stream = stream
        self.reads = 0
    async def read(self, count):
        # Boards let other tasks run at each read. Here that takes a millisecond: not at each one.
        self.reads += 1
        if self.reads % 32 == 0:
            await asyncio.sleep_ms(0)
        while not line.waits(0):
            await asyncio.sleep_ms(1)
        return self.stream.read(count)
asyncio.StreamReader = StreamReader
`;
board.runPython(SHIM);
await board.runPythonAsync(readFileSync(program, "utf8"));
process.exit(0);

// MicroPython's WebAssembly build as a board on descriptors 0 and 1:
//
//     node wasm_board.mjs PACKAGE_DIR [HEAP_BYTES] [refuse-raw-paste | unknown-raw-paste]
//
// Bytes read from descriptor 0 go to the REPL, and to sys.stdin while code reads it; what the VM prints goes to
// descriptor 1. Neither is changed or cooked: on a PTY, set it raw before this starts. A soft reset (Ctrl-D with nothing
// typed, or SystemExit) starts the VM again and keeps its files, as flash does. Ends at the end of its input.
//
// The VM runs inside the call that hands it a byte, and nobody reads descriptor 0 meanwhile unless the code does:
// Ctrl-C reaches code neither while it computes nor while it reads, and stays in the line for whoever reads next.
//
// The VM answers a request for raw paste with a window and then never returns. With `refuse-raw-paste` the request does
// not reach it and is answered "R\0" (understood, not supported). With `unknown-raw-paste` it is answered as firmware before
// 1.15 does, by the raw REPL's banner: mpremote does not expect the prompt that MicroPython sends after "R\0".

import { readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// Ctrl-E A Ctrl-A, at an empty line of the raw REPL.
const RAW_PASTE_REQUEST = [5, 65, 1];
const RAW_PASTE_ANSWERS = { "refuse-raw-paste": "R\0>", "unknown-raw-paste": "raw REPL; CTRL-B to exit\r\n>" };
const RAW_PROMPT = ">".charCodeAt(0);

// One read of the line. A PTY gives at most 4 KiB at a time, a pipe up to 64 KiB.
const READ_BYTES = 65536;

const [packageDirectory, heapBytes = "1048576", rawPaste = ""] = process.argv.slice(2);
if (packageDirectory === undefined) {
    process.stderr.write("usage: node wasm_board.mjs PACKAGE_DIR [HEAP_BYTES] [refuse-raw-paste | unknown-raw-paste]\n");
    process.exit(2);
}
const { loadMicroPython } = await import(pathToFileURL(join(packageDirectory, "micropython.mjs")).href);

// The package's own default, and the flag that its REPL returns when the VM has to start again.
const PYSTACK_WORDS = 2048;
const FORCED_EXIT = 0x100;

const input = Buffer.alloc(READ_BYTES);
let inputStart = 0;
let inputEnd = 0;

// An errno as Node spells it: the other end of a PTY hung up, or of a pipe on Windows.
const HANG_UPS = new Set(["EIO", "EOF", "EPIPE"]);

function nextByte() {
    while (inputStart === inputEnd) {
        inputStart = 0;
        inputEnd = guarded(() => readSync(0, input));
        if (inputEnd === 0) process.exit(0);
    }
    return input[inputStart++];
}

// A line that the parent made non-blocking answers EAGAIN; there is nothing else to do than to ask again.
function guarded(operation) {
    for (;;) {
        try {
            return operation();
        } catch (error) {
            if (HANG_UPS.has(error.code)) process.exit(0);
            if (error.code !== "EAGAIN") throw error;
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
    }
}

// The last byte that went out, and whether the VM was handed any since: together they tell an empty line of the raw REPL.
let lastWritten = 0;
let typed = 0;

function write(data) {
    for (let done = 0; done < data.length; ) {
        done += guarded(() => writeSync(1, data, done, data.length - done));
    }
    if (data.length > 0) {
        lastWritten = data[data.length - 1];
        typed = 0;
    }
}

const board = await loadMicroPython({
    heapsize: Number(heapBytes),
    linebuffer: false,
    stdin: nextByte,
    stdout: write,
    stderr: write,
});

// The package prints byte by byte, each a system call. Take each write of the VM whole instead, at the stream below.
const output = board.FS.streams[1];
output.stream_ops = {
    ...output.stream_ops,
    write: (_stream, memory, offset, length) => {
        write(new Uint8Array(memory.buffer, memory.byteOffset + offset, length));
        return length;
    },
};

// What the package's loader does to start the VM, without a new module: the REPL's mode and the files stay.
function softReset() {
    write(Buffer.from("MPY: soft reboot\r\n"));
    board._module.ccall("mp_js_init", "null", ["number", "number"], [PYSTACK_WORDS, Number(heapBytes)]);
    board._module.ccall("proxy_c_init", "null", [], []);
    board.replInit();
}

function hand(byte) {
    typed += 1;
    if (board.replProcessChar(byte) & FORCED_EXIT) softReset();
}

board.replInit();
for (;;) {
    const byte = nextByte();
    if (!(rawPaste in RAW_PASTE_ANSWERS) || typed > 0 || lastWritten !== RAW_PROMPT || byte !== RAW_PASTE_REQUEST[0]) {
        hand(byte);
        continue;
    }
    const heard = [byte];
    while (heard.length < RAW_PASTE_REQUEST.length && heard.at(-1) === RAW_PASTE_REQUEST[heard.length - 1]) {
        heard.push(nextByte());
    }
    if (heard.every((value, index) => value === RAW_PASTE_REQUEST[index])) {
        write(Buffer.from(RAW_PASTE_ANSWERS[rawPaste]));
    } else {
        heard.forEach(hand);
    }
}

// How many bytes of heap a module takes in MicroPython's WebAssembly build, once it is imported:
//
//     node wasm_memory.mjs PACKAGE_DIR FILE
//
// The collector takes stray numbers on the stack for addresses, which makes the figure larger and never smaller. So the
// least of several figures is printed.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [packageDirectory, file] = process.argv.slice(2);
const { loadMicroPython } = await import(pathToFileURL(join(packageDirectory, "micropython.mjs")).href);
let printed = "";
const board = await loadMicroPython({
    heapsize: 1 << 20,
    linebuffer: false,
    stdin: () => null,
    stdout: (data) => (printed += Buffer.from(data).toString("latin1")),
});
board.FS.writeFile(`/${basename(file)}`, readFileSync(file));
board.FS.writeFile("/empty.py", "x = 1");
board.runPython(`
import sys, gc, select, time, io, asyncio, binascii, builtins
class Poll:
    def register(self, stream, events): pass
    def ipoll(self, timeout): return iter(())
class select:
    poll = Poll
sys.modules['select'] = select
sys.path.append('/')
import empty
`);
function used() {
    printed = "";
    board.runPython("gc.collect()\ngc.collect()\nprint(gc.mem_alloc())");
    return Number(printed);
}
function least() {
    const figures = [];
    for (let turn = 1; turn <= 6; turn++) {
        board.runPython(`def f(n):\n return [0] * n if n < 9 else f(n - 1)\nfor i in range(${7 * turn}): f(i)`);
        figures.push(used());
    }
    return Math.min(...figures);
}
least();
const before = least();
board.runPython(`import ${basename(file, ".py")}`);
process.stdout.write(`${least() - before}\n`);
process.exit(0);

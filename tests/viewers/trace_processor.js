// Run Perfetto's trace processor, built for the browser, under Node: requests on stdin, replies on stdout.
// argv[2] is the folder with engine_bundle.js and the .wasm files.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const node = process; // the bundle must not see it, or it takes Node's way of loading files
const folder = node.argv[2];
const read = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));

// What a web worker has and Node lacks. The .wasm is asked for with an XMLHttpRequest, and at once.
const self = Object.assign(globalThis, {
  self: globalThis,
  importScripts() {},
  location: { href: `file://${folder}/` },
  WorkerGlobalScope: function WorkerGlobalScope() {},
  XMLHttpRequest: class {
    open(_method, url) { this.url = url; }
    send() {
      this.status = 200;
      this.response = new Uint8Array(read(this.url)).buffer;
    }
  },
});
console.log = console.warn = console.error; // stdout is for replies alone
Object.defineProperty(self, 'process', { value: undefined });

const port = { onmessage: null, postMessage: reply };

function reply(bytes) {
  for (let at = 0; at < bytes.length;) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function listen() {
  node.stdin.on('data', (bytes) => port.onmessage({ data: new Uint8Array(bytes) }));
  node.stdin.on('end', () => node.exit(0));
}

vm.runInThisContext(read('engine_bundle.js').toString(), { filename: 'engine_bundle.js' });
self.onmessage({ data: port });
setTimeout(listen); // a start takes no more than the promises that are queued by now

// Drive a stdio server with the 1.x TypeScript SDK and print what was seen, as one JSON line.
//
//     node typescript_v1.mjs legacy COMMAND ARGS...
//
// This line knows only the handshake. The script judges nothing; tests/interop.rs does.

import { packages } from './packages.mjs';
import { report } from './story.mjs';

const { Client } = packages('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = packages('@modelcontextprotocol/sdk/client/stdio.js');

const [, command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'interop-typescript-v1', version: '1.0.0' });
const transport = new StdioClientTransport({ command, args, env: process.env });
// This SDK keeps the negotiated version to itself, but tells its transport.
let protocol = null;
transport.setProtocolVersion = version => { protocol = version; };
await client.connect(transport);
await report(client, protocol);

// Drive a stdio server with the 2.x TypeScript client and print what was seen, as one JSON line.
//
//     node typescript_v2.mjs legacy|auto|modern COMMAND ARGS...
//
// The script judges nothing; tests/interop.rs does.

import { packages } from './packages.mjs';
import { report } from './story.mjs';

const { Client } = packages('@modelcontextprotocol/client');
const { StdioClientTransport } = packages('@modelcontextprotocol/client/stdio');

const [era, command, ...args] = process.argv.slice(2);
const mode = era === 'modern' ? { pin: '2026-07-28' } : era;
const client = new Client({ name: 'interop-typescript-v2', version: '1.0.0' }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
await report(client, client.getNegotiatedProtocolVersion());

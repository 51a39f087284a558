// A server on the 1.x TypeScript SDK, over stdio: what no published server of the older family shows on demand.
//
// It grows a tool when told to, asks its client whatever it is told to ask, able or not, counts the calls that were
// taken back, and writes to the log.

import { packages } from '../packages.mjs';

const { McpServer } = packages('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = packages('@modelcontextprotocol/sdk/server/stdio.js');
const { ResultSchema } = packages('@modelcontextprotocol/sdk/types.js');
const { z } = packages('zod');

const server = new McpServer(
    { name: 'typescript-host', version: '1.0.0' },
    { capabilities: { logging: {} }, instructions: 'Tell it to grow.' },
);
const text = words => ({ content: [{ type: 'text', text: words }] });
let takenBack = 0;

server.registerTool('grow', {}, async () => {
    server.registerTool('grown', {}, async () => text('grown up'));
    return text('growing');
});

// Below the SDK's own look at what the client can do: the question goes on the wire, and the refusal comes from there.
const question = { method: z.string(), params: z.any() };
server.registerTool('ask', { inputSchema: question }, async ({ method, params }, extra) =>
    text(JSON.stringify(await extra.sendRequest({ method, params }, ResultSchema))),
);

server.registerTool('wait', {}, async extra => {
    const begun = { progressToken: extra._meta?.progressToken, progress: 1 };
    const left = new Promise(resolve => extra.signal.addEventListener('abort', resolve));
    await extra.sendNotification({ method: 'notifications/progress', params: begun });
    await left;
    takenBack += 1;
    return text('nobody reads this');
});

server.registerTool('taken_back', {}, async () => text(String(takenBack)));

server.registerTool('log', {}, async () => {
    await server.sendLoggingMessage({ level: 'debug', logger: 'quiet', data: 'below what was asked for' });
    await server.sendLoggingMessage({ level: 'warning', logger: 'loud', data: 'a word of warning ⚠' });
    return text('logged');
});

await server.connect(new StdioServerTransport());

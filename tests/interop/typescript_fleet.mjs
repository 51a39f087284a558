// Use many servers behind one stdio server with a TypeScript SDK and print what was seen, as one JSON line.
//
//     node typescript_fleet.mjs v1|v2 legacy|modern FOLDER COMMAND ARGS...
//
// The 1.x line knows only the older family. Each step is named on stderr before it begins, and has a deadline, so that
// what fails or hangs has a name. The script judges nothing; tests/interop/servers/behind.rs does.

import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';

import { packages } from './packages.mjs';

const SERVERS = ['every', 'files', 'git', 'memory', 'new', 'old', 'time', 'web'];
const STEP_WITHIN_MS = 60_000;
const LOOK_AGAIN_MS = 25;

const [line, era, folder, command, ...args] = process.argv.slice(2);
const isModern = era === 'modern';
const capabilities = { elicitation: {}, sampling: {}, roots: { listChanged: true } };
const roots = [{ uri: 'file:///first', name: 'the first root' }];
const heard = { logs: [], changed: new Set(), progress: [] };
const answers = {
    'elicitation/create': () => ({ action: 'accept', content: { name: 'Ada Löwe' } }),
    'sampling/createMessage': () => ({
        role: 'assistant', model: 'none', content: { type: 'text', text: 'a model’s words' },
    }),
    'roots/list': () => ({ roots }),
};
const notices = {
    'notifications/message': ({ params }) => heard.logs.push(params),
    'notifications/tools/list_changed': () => heard.changed.add('tools'),
    'notifications/resources/list_changed': () => heard.changed.add('resources'),
};

const seen = {};
let client = await step('connect', connected);
await step('list', list);
await step('call', callEachServer);
await step('progress', progress);
await step('resources', resources);
await step('prompts', prompts);
await step('completion', completion);
await step('cancel', cancel);
await step('list_changed', listChanged);
await step('asked', isModern ? refused : asked);
await step('asked by a modern server', askedByModern);
if (!isModern) {
    await step('log', log);
}
await step('close', () => client.close());
// What is told at the beginning is what the last run has learnt.
client = await step('connect again', connected);
seen.instructions = client.getInstructions() ?? null;
await step('close again', () => client.close());
console.log(JSON.stringify(seen));

async function connected() {
    const fresh = line === 'v1' ? firstLine() : secondLine();
    await fresh.client.connect(fresh.transport);
    const take = fresh.transport.onmessage;
    fresh.transport.onmessage = (message, ...rest) => {
        if (message.method === 'notifications/progress') {
            heard.progress.push(message.params.progress);
        }
        take(message, ...rest);
    };
    return fresh.client;
}

function firstLine() {
    const { Client } = packages('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = packages('@modelcontextprotocol/sdk/client/stdio.js');
    const types = packages('@modelcontextprotocol/sdk/types.js');
    const client = new Client({ name: 'interop-typescript-v1', version: '1.0.0' }, { capabilities });
    for (const schema of [types.ElicitRequestSchema, types.CreateMessageRequestSchema, types.ListRootsRequestSchema]) {
        client.setRequestHandler(schema, answers[schema.shape.method.value]);
    }
    for (const schema of [
        types.LoggingMessageNotificationSchema,
        types.ToolListChangedNotificationSchema,
        types.ResourceListChangedNotificationSchema,
    ]) {
        client.setNotificationHandler(schema, notices[schema.shape.method.value]);
    }
    return { client, transport: new StdioClientTransport({ command, args, env: process.env }) };
}

function secondLine() {
    const { Client } = packages('@modelcontextprotocol/client');
    const { StdioClientTransport } = packages('@modelcontextprotocol/client/stdio');
    const mode = isModern ? { pin: '2026-07-28' } : era;
    const client = new Client(
        { name: 'interop-typescript-v2', version: '1.0.0' },
        { capabilities, versionNegotiation: { mode } },
    );
    for (const [method, answer] of Object.entries(answers)) {
        client.setRequestHandler(method, answer);
    }
    for (const [method, notice] of Object.entries(notices)) {
        client.setNotificationHandler(method, notice);
    }
    return { client, transport: new StdioClientTransport({ command, args, env: process.env }) };
}

/** Servers come up one by one; a list that lacks one is asked for again. */
async function list() {
    seen.names = await until(async () => {
        const names = (await client.listTools()).tools.map(tool => tool.name);
        return SERVERS.every(server => names.some(name => name.startsWith(`${server}__`))) && names;
    });
}

async function callEachServer() {
    seen.echo = await call('every__echo', { message: 'hällo 🐦' });
    seen.web = await call('web__echo', { message: 'over HTTP' });
    seen.image = (await callTool('every__get-tiny-image', {})).content[1].type;
    seen.file = await call('files__read_text_file', { path: join(folder, 'note.txt') });
    seen.outside = await call('files__read_text_file', { path: '/etc/hostname' });
    seen.git = await call('git__git_status', { repo_path: folder });
    seen.memory = await call('memory__create_entities', {
        entities: [{ name: 'a', entityType: 'b', observations: [] }],
    });
    seen.time = await call('time__get_current_time', { timezone: 'UTC' });
    seen.nowhere = await call('time__get_current_time', { timezone: 'Nowhere' });
    seen.ping = await call('server_ping', {});
    seen.modern_echo = await call('new__echo', { text: 'from the newer family ✓' });
    seen.unknown = await call('every__no-such-tool', {});
}

/** The 1.x SDK drops what comes in one piece with the answer, also of a server without colibri: the wire has it all. */
async function progress() {
    const told = async (name, given) => {
        heard.progress.length = 0;
        const answer = await call(name, given, { onprogress: () => {} });
        return [answer, [...heard.progress]];
    };
    [seen.long, seen.progress] = await told('every__trigger-long-running-operation', { duration: 0.2, steps: 2 });
    [seen.modern_steps, seen.modern_progress] = await told('new__steps', { steps: 3 });
}

async function resources() {
    const read = async uri => (await client.readResource({ uri })).contents[0].text;
    seen.resources = (await client.listResources()).resources.map(resource => resource.uri);
    seen.templates = (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate);
    seen.document = await read('demo://resource/static/document/features.md');
    // Two servers have it; the second is reached by its alias.
    const alias = seen.resources.find(uri => uri.startsWith('colibri://web/') && uri.includes('features.md'));
    seen.alias = await read(alias);
    seen.made = await read('demo://resource/dynamic/text/7');
    seen.modern_resource = await read('note://one');
    seen.modern_made = await read('note://by-template');
    seen.no_resource = await refusal(() => read('demo://nowhere'));
}

async function prompts() {
    const get = async (name, given) =>
        (await client.getPrompt({ name, arguments: given })).messages[0].content.text;
    seen.prompts = (await client.listPrompts()).prompts.map(prompt => prompt.name);
    seen.prompt = await get('every__args-prompt', { city: 'Zürich' });
    seen.modern_prompt = await get('new__greet', { name: 'Ada' });
}

async function completion() {
    const complete = async (ref, name, value, context) =>
        (await client.complete({ ref, argument: { name, value }, ...(context && { context }) })).completion.values;
    const team = { type: 'ref/prompt', name: 'every__completable-prompt' };
    const template = { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' };
    seen.completion = await complete(team, 'department', 'E');
    seen.completion_narrowed = await complete(team, 'name', 'D', { arguments: { department: 'Sales' } });
    seen.completion_of_template = await complete(template, 'resourceId', '7');
    seen.modern_completion = await complete({ type: 'ref/prompt', name: 'new__greet' }, 'name', 'A');
}

/** The server itself counts what reached it. */
async function cancel() {
    for (const server of ['old', 'new']) {
        const leaving = new AbortController();
        // It says that it has begun: what is taken back earlier never reaches the server.
        const onprogress = () => leaving.abort('enough');
        seen[`left_${server}`] = await refusal(() =>
            callTool(`${server}__wait`, {}, { signal: leaving.signal, onprogress }),
        );
        seen[`taken_back_${server}`] = await until(async () => {
            const { text } = await call(`${server}__taken_back`, {});
            return text[0] !== '0' && text[0];
        });
    }
}

/** A modern client on stdio is told nothing here: it may keep no list, and asks again. */
async function listChanged() {
    heard.changed.clear();
    await call('old__grow', {});
    await until(async () => isModern || heard.changed.has('tools'));
    await until(async () => (await client.listTools()).tools.some(tool => tool.name === 'old__grown'));
    seen.changed = [...heard.changed];
    seen.grown = await call('old__grown', {});

    const uri = 'demo://resource/session/new.gz';
    const made = { name: 'new.gz', data: 'data:text/plain,a%20new%20resource', outputType: 'resourceLink' };
    await call('every__gzip-file-as-resource', made);
    await until(async () => isModern || heard.changed.has('resources'));
    await until(async () => (await client.listResources()).resources.some(resource => resource.uri === uri));
    seen.changed_resources = heard.changed.has('resources');
    const { blob } = (await client.readResource({ uri })).contents[0];
    seen.grown_resource = gunzipSync(Buffer.from(blob, 'base64')).toString();
}

/** Servers of the older family ask, over stdio and over HTTP. */
async function asked() {
    for (const server of ['every', 'web']) {
        const name = `${server}__trigger-elicitation-request`;
        await until(async () => (await client.listTools()).tools.some(tool => tool.name === name));
        seen[`elicited_${server}`] = await call(name, {});
        seen[`sampled_${server}`] = await call(`${server}__trigger-sampling-request`, { prompt: 'anything' });
        seen[`roots_${server}`] = await call(`${server}__get-roots-list`, {});
    }
    roots.push({ uri: 'file:///second', name: 'the second root' });
    await client.sendRootsListChanged();
    seen.roots_changed = await until(async () => {
        const listed = await call('every__get-roots-list', {});
        return listed.text[0].includes('the second root') && listed;
    });
}

/** Across families a server's own questions are refused, whatever this client could answer. */
async function refused() {
    for (const [method, params] of [
        ['elicitation/create', { message: 'Who?', requestedSchema: { type: 'object', properties: {} } }],
        ['sampling/createMessage', { messages: [], maxTokens: 1 }],
        ['roots/list', {}],
    ]) {
        seen[`refused_${method}`] = await call('old__ask', { method, params });
    }
    // It offers this only to those who can be asked.
    seen.not_offered = await call('every__trigger-sampling-request', { prompt: 'anything' });
    seen.after_refusals = await call('old__taken_back', {});
}

async function askedByModern() {
    seen.modern_asked = await call('new__ask', {});
    seen.modern_asked_all = await call('new__ask_all', {});
}

async function log() {
    await client.setLoggingLevel('warning');
    const loud = () => heard.logs.find(told => told.logger === 'old/loud');
    // Each server is told of the level on its own time; one that has not heard of it yet logs everything.
    await until(async () => {
        heard.logs.length = 0;
        await call('old__log', {});
        await until(async () => loud());
        return !heard.logs.some(told => told.logger === 'old/quiet');
    });
    seen.log = loud();
}

async function callTool(name, given, options) {
    const params = { name, arguments: given };
    return line === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function call(name, given, options) {
    const { isError = false, content, structuredContent } = await callTool(name, given, options);
    return { isError, text: content.map(part => part.text ?? null), code: structuredContent?.error?.code ?? null };
}

async function refusal(work) {
    return work().then(() => null, error => ({ code: error.code ?? null, message: String(error.message ?? error) }));
}

async function until(look) {
    for (;;) {
        const found = await look();
        if (found) {
            return found;
        }
        await pause(LOOK_AGAIN_MS);
    }
}

async function step(name, work) {
    console.error(`step: ${name}`);
    const late = setTimeout(() => {
        console.error(`step ${name}: no end within ${STEP_WITHIN_MS} ms; seen so far: ${JSON.stringify(seen)}`);
        process.exit(1);
    }, STEP_WITHIN_MS);
    return work().finally(() => clearTimeout(late));
}

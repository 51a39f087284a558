// What every TypeScript client does once it is connected: list, call well, call badly, call nothing.

export async function report(client, protocol) {
    const { tools } = await client.listTools();
    const call = (name, args) => client.callTool({ name, arguments: args });
    const unknown = await call('no_such_tool', {}).then(
        () => null,
        error => ({ code: error.code, message: error.message }),
    );
    const seen = {
        protocol,
        server: client.getServerVersion()?.name ?? null,
        tools: tools.map(tool => tool.name),
        ping: result(await call('server_ping', {})),
        bad: result(await call('server_ping', { pong: 1 })),
        unknown,
    };
    await client.close();
    console.log(JSON.stringify(seen));
}

function result({ isError = false, structuredContent, content }) {
    return { isError, structuredContent, content };
}

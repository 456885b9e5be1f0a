// What the clients in JavaScript have in common; the same programs as in ../calling.py.
//
//   node mastra_client.mjs mcpd serve --stdio server.py  < calls.json

import { text } from "node:stream/consumers";

const CALL_TIMEOUT = 30_000;

/** A call that failed in a way the framework does not throw; the message is what a model would read. */
export class ToolFailed extends Error {
  name = "ToolFailed";
}

/** What a model or a program looks at in a result of the protocol. */
export function content(result) {
  if (result.isError) throw new ToolFailed(result.content.map((block) => block.text ?? block.type).join("\n"));
  return { content: result.content, structured: result.structuredContent };
}

function say(record) {
  process.stdout.write(JSON.stringify(record) + "\n");
}

function late() {
  return new Promise((_, refuse) => setTimeout(() => refuse(new Error("no answer in time")), CALL_TIMEOUT).unref());
}

/** `opened({url, command})` gives {tools: {name: {call, facts}}, close}. */
export async function main(opened) {
  const words = process.argv.slice(2);
  const target = words[0].startsWith("http") ? { url: words[0] } : { command: words };
  const { calls, without } = JSON.parse(await text(process.stdin));
  const { tools, close } = await opened(target, without ?? []);
  for (const [tool, { facts }] of Object.entries(tools)) say({ tool, facts });
  for (const [call, [name, args]] of calls.entries()) {
    try {
      say({ call, result: (await Promise.race([tools[name].call(args), late()])) ?? null });
    } catch (error) {
      say({ call, error: `${error.name}: ${error.message}` });
    }
  }
  await close();
  process.exit(0); // a framework may keep timers
}

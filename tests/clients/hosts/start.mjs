// What a host makes of a manifest, by the code of the official tool: `start.mjs FOLDER ANSWERS` prints command, args, env.
import { readFileSync } from "node:fs";
import { getMcpConfigForManifest } from "@anthropic-ai/mcpb";

const [folder, answers] = process.argv.slice(2);
const config = await getMcpConfigForManifest({
  manifest: JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8")),
  extensionPath: folder,
  systemDirs: { HOME: process.env.HOME },
  userConfig: JSON.parse(answers),
  pathSeparator: "/",
});
console.log(JSON.stringify(config ?? null));

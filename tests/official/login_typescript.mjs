// Logs in with an official TypeScript client, and calls tools:
// `node login_typescript.mjs client|sdk ERA URL PYTHON APPROVE`.
//
// ERA is "legacy" or "2026-07-28", which `sdk` does not know. APPROVE is the program that is the user and the browser.
// The client is let in, calls `who`; calls `save`, for which it has to ask for more; and calls `who` once more when its
// token is not taken any longer. Prints what the tools said, and what the client asked for and got.

import { execFileSync } from 'node:child_process';
import { versionOf } from './scenario.mjs';

const [which, era, url, python, approve] = process.argv.slice(2);
const CALLBACK = 'http://127.0.0.1:1/callback';
const name = `@modelcontextprotocol/${which}`;
const isNew = which === 'client';
const { Client } = await import(isNew ? name : `${name}/client/index.js`);
const { StreamableHTTPClientTransport } = await import(isNew ? name : `${name}/client/streamableHttp.js`);
const { UnauthorizedError } = await import(isNew ? name : `${name}/client/auth.js`);

const kept = {};
const asked = [];
let back;
const authProvider = {
  redirectUrl: CALLBACK,
  clientMetadata: {
    client_name: 'official-typescript',
    redirect_uris: [CALLBACK],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
    application_type: 'native'
  },
  state: () => 'a-state-of-the-client',
  clientInformation: () => kept.client,
  saveClientInformation: client => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: tokens => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: verifier => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: state => void (kept.discovery = state),
  redirectToAuthorization: to => {
    asked.push((to.searchParams.get('scope') ?? '').split(' ').sort());
    back = new URL(execFileSync(python, [approve, '--print', String(to)], { encoding: 'utf8' }).trim());
  }
};

// These clients end a request that leads to a login: who uses them finishes it, and asks again.
async function loggingIn(transport, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(isNew ? back.searchParams : back.searchParams.get('code'));
    return undefined;
  }
}

const version = versionOf(name);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = () => new Client({ name: 'official-typescript', version }, isNew ? { versionNegotiation: { mode } } : {});
const transport = () => new StreamableHTTPClientTransport(new URL(url), { authProvider });

const refused = transport();
await loggingIn(refused, () => client().connect(refused));
const wire = transport();
// The older client keeps the negotiated version to itself; the transport is told it.
let protocol;
const told = wire.setProtocolVersion?.bind(wire);
wire.setProtocolVersion = said => {
  protocol = said;
  told?.(said);
};
const user = client();
await user.connect(wire);
const call = async tool => {
  const ask = () => user.callTool({ name: tool, arguments: {} });
  const result = (await loggingIn(wire, ask)) ?? (await ask());
  return JSON.parse(result.content[0].text);
};

const said = [await call('who')];
// The older client renews its token where it is told to ask for more, and gives up when that was not enough: a program
// that uses it has to forget what it could renew with.
if (!isNew) delete kept.tokens.refresh_token;
said.push(await call('save'));
kept.tokens = { ...kept.tokens, access_token: 'not-taken-any-longer' };
said.push(await call('who'));
await user.close();
console.log(
  JSON.stringify({
    client: `${name} ${version}`,
    protocol: user.getNegotiatedProtocolVersion?.() ?? protocol,
    said,
    asked,
    refreshed: kept.tokens.access_token !== 'not-taken-any-longer',
    state: back.searchParams.get('state')
  })
);

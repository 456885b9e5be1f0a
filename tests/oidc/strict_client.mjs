// A client that is as strict as the standards: `node strict_client.mjs URL PYTHON APPROVE`, by oauth4webapi.
//
// Reads the documents, registers, is let in with tokens that are bound to a key (DPoP), calls `who`, renews its tokens,
// calls again, tries what must be refused, and revokes. APPROVE is the program that is the user and the browser. Prints
// what was answered.
import { execFileSync } from "node:child_process";
import * as oauth from "oauth4webapi";

const [url, python, approve] = process.argv.slice(2);
const CALLBACK = "http://127.0.0.1:1/callback";
const insecure = { [oauth.allowInsecureRequests]: true };

const resourceAnswer = await oauth.resourceDiscoveryRequest(new URL(url), insecure);
const resource = await oauth.processResourceDiscoveryResponse(new URL(url), resourceAnswer);
const issuer = new URL(resource.authorization_servers[0]);
const found = await oauth.discoveryRequest(issuer, { ...insecure, algorithm: "oauth2" });
const server = await oauth.processDiscoveryResponse(issuer, found);

const registered = await oauth.dynamicClientRegistrationRequest(
  server,
  {
    client_name: "strict",
    redirect_uris: [CALLBACK],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
    dpop_bound_access_tokens: true,
  },
  insecure
);
const client = await oauth.processDynamicClientRegistrationResponse(registered);

const keys = await oauth.generateKeyPair("ES256");
const proofs = oauth.DPoP(client, keys);
const bound = { ...insecure, DPoP: proofs };

// The library tells of a nonce that it has to use, and has kept it: the request is made once more.
async function twice(request, read) {
  try {
    return await read(await request());
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error;
    nonces += 1;
    return read(await request());
  }
}
let nonces = 0;

const verifier = oauth.generateRandomCodeVerifier();
const state = oauth.generateRandomState();
const page = new URL(server.authorization_endpoint);
page.search = new URLSearchParams({
  client_id: client.client_id,
  response_type: "code",
  redirect_uri: CALLBACK,
  scope: "use",
  state,
  resource: resource.resource,
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: "S256",
});
const back = new URL(execFileSync(python, [approve, "--print", page.href], { encoding: "utf8" }).trim());
const said = oauth.validateAuthResponse(server, client, back, state);
const tokens = await twice(
  () => oauth.authorizationCodeGrantRequest(server, client, oauth.None(), said, CALLBACK, verifier, {
    ...bound, additionalParameters: { resource: resource.resource },
  }),
  (answer) => oauth.processAuthorizationCodeResponse(server, client, answer)
);

const headers = {
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
  "mcp-protocol-version": "2026-07-28",
  "mcp-method": "tools/call",
  "mcp-name": "who",
};
const meta = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
  "io.modelcontextprotocol/clientInfo": { name: "strict", version: "1" },
};
const params = { name: "who", arguments: {}, _meta: meta };
const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });

async function call(token) {
  return twice(
    () => oauth.protectedResourceRequest(token, "POST", new URL(url), new Headers(headers), body, bound),
    async (answer) => JSON.parse((await answer.json()).result.content[0].text)
  );
}

async function refused(authorization, dpop) {
  const more = dpop ? { authorization, dpop } : { authorization };
  const answer = await fetch(url, { method: "POST", headers: { ...headers, ...more }, body });
  return [answer.status, answer.headers.get("www-authenticate")];
}

const first = await call(tokens.access_token);
const renewed = await twice(
  () => oauth.refreshTokenGrantRequest(server, client, oauth.None(), tokens.refresh_token, bound),
  (answer) => oauth.processRefreshTokenResponse(server, client, answer)
);
const second = await call(renewed.access_token);

// What must be refused: the token alone, as Bearer and as DPoP, and with another's proof.
const theirs = oauth.DPoP(client, await oauth.generateKeyPair("ES256"));
const wrong = await oauth
  .protectedResourceRequest(renewed.access_token, "POST", new URL(url), new Headers(headers), body, {
    ...insecure, DPoP: theirs,
  })
  .then((answer) => [answer.status], (error) => [error.status, error.cause?.[0]?.parameters?.error]);
const bearer = await refused(`Bearer ${renewed.access_token}`);
const bare = await refused(`DPoP ${renewed.access_token}`);

await oauth.processRevocationResponse(
  await oauth.revocationRequest(server, client, oauth.None(), renewed.refresh_token, insecure)
);
const ended = await oauth
  .refreshTokenGrantRequest(server, client, oauth.None(), renewed.refresh_token, bound)
  .then((answer) => oauth.processRefreshTokenResponse(server, client, answer))
  .then(() => "renewed", (error) => error.error);
console.log(
  JSON.stringify({ said: [first, second], type: tokens.token_type, nonces, bearer, bare, wrong, ended, resource })
);

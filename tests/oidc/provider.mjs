// An authorization server of somebody else, which lets everybody in as ada and asks nobody: prints its issuer.
//
// `provider.mjs '{"resource": URL, "scopes": [NAME…]}'`, and with more members:
//   format        "jwt" (the default) or "opaque": what access tokens are
//   seconds       how long these live
//   nonce         whether proofs of DPoP need its nonce
//   clients       those that are registered beforehand
//   port          where it listens, else anywhere
//   documents     {URL: metadata document of a client}, which are found there without a network
// What it is asked for is a line each on stderr: the path, and of forms the type of grant.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const {
  resource, scopes, format = "jwt", seconds = 300, nonce = false, port = 0, clients = [], documents = {}
} = JSON.parse(process.argv[2]);
const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });
const server = createServer();
await new Promise((listening) => server.listen(port, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    { client_id: "server", client_secret: "s".repeat(32), redirect_uris: [], grant_types: [], response_types: [] },
    ...clients,
  ],
  // Else every registration fails: its default is RS256, and there is no such key.
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  jwks: { keys: [{ ...key, alg: "ES256", use: "sig" }] },
  cookies: { keys: ["c".repeat(32)] },
  scopes: ["openid", "offline_access", ...scopes],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  pkce: { required: () => true },
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  rotateRefreshToken: true,
  ttl: {
    AccessToken: seconds, ClientCredentials: seconds, DeviceCode: 300, Grant: 300, IdToken: 300, Interaction: 300,
    RefreshToken: 300, Session: 300,
  },
  fetch: async (url, options) => {
    const document = documents[String(url)];
    return document ? Response.json(document) : fetch(url, options);
  },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true, allowedPolicy: () => true },
    clientCredentials: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    deviceFlow: {
      enabled: true,
      userCodeInputSource: (context, form) => { context.body = form; },
      userCodeConfirmSource: (context, form) => { context.body = form; },
      successSource: (context) => { context.body = "done"; },
    },
    introspection: { enabled: true, allowedPolicy: () => true },
    dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 1), requireNonce: () => nonce },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, indicator) => {
        if (indicator !== resource) throw new Error("no such resource");
        return {
          scope: scopes.join(" "),
          audience: resource,
          accessTokenFormat: format,
          jwt: { sign: { alg: "ES256" } },
        };
      },
    },
  },
});

provider.on("server_error", (_, error) => console.error(error.stack));
provider.on("grant.error", (_, error) => console.error("refused", error.error, error.error_description, error.error_detail));
provider.on("authorization.error", (_, error) => console.error("refused", error.error, error.error_description, error.error_detail));
provider.on("registration_create.error", (_, error) => console.error("refused", error.error, error.error_description));
provider.on("grant.success", (context) => console.error("granted", context.oidc.params.grant_type));

const answer = provider.callback();
server.on("request", async (request, response) => {
  if (request.url === "/reg") {
    // Without the scopes of the first login, beyond which a registered client could never ask for more.
    const parts = [];
    for await (const part of request) parts.push(part);
    const { scope, ...others } = JSON.parse(Buffer.concat(parts));
    console.error("registers", others.client_name);
    request.body = others;
  }
  if (request.url.startsWith("/forget/")) {
    // One access token has expired; to revoke it would end its login.
    await (await provider.AccessToken.find(request.url.slice(8))).destroy();
    response.end();
    return;
  }
  if (!request.url.startsWith("/interaction/")) {
    answer(request, response);
    return;
  }
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  let result = { login: { accountId: "ada" } };
  if (prompt.name === "consent") {
    const grant = grantId
      ? await provider.Grant.find(grantId)
      : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(" "));
    for (const [indicator, missing] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
      grant.addResourceScope(indicator, missing.join(" "));
    }
    result = { consent: { grantId: await grant.save() } };
  }
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
});
console.log(JSON.stringify({ issuer }));

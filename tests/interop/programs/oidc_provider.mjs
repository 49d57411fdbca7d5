// oidc-provider on a free port: ES256 access tokens of the type at+jwt, for the client `client` with `secret`.
// Users log in with any name and password, and clients register themselves.
// Options: audience, `lifetime` of access tokens in seconds, and `redirects` of the client: then users log in for it, and
// it exchanges tokens (RFC 8693) for any resource but https://unknown.example. The user carol has to log in first.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

console.log = console.info = console.warn = console.error; // stdout is for the test

const { Provider, errors } = await import(pathToFileURL(process.env.OIDC_PROVIDER).href);
const { audience, lifetime = 600, redirects = [] } = JSON.parse(process.argv[2] ?? "{}");

const makeKey = (kid) => {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "ES256" };
};

const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const describe = (resource) => ({
  audience: resource,
  scope: "agents:run agents:read",
  accessTokenFormat: "jwt",
  accessTokenTTL: lifetime,
  jwt: { sign: { alg: "ES256" } },
});

// The tokens of this provider are JSON Web Tokens, which it does not store. The exchange reads their claims.
const exchange = (provider) => async (ctx) => {
  const { params, client } = ctx.oidc;
  if (params.resource === "https://unknown.example") throw new errors.InvalidTarget();
  const claims = JSON.parse(Buffer.from((params.subject_token ?? "").split(".")[1] ?? "", "base64url") || "null");
  if (claims?.iss !== provider.issuer || claims.sub === "carol") throw new errors.InvalidGrant();
  const token = new provider.AccessToken({ accountId: claims.sub, client, scope: params.scope, gty: "exchange" });
  token.resourceServer = new provider.ResourceServer(params.resource, describe(params.resource));
  ctx.body = {
    access_token: await token.save(),
    issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
    token_type: "Bearer",
    expires_in: token.expiration,
  };
};

let handle;
const server = createServer((request, response) => handle(request, response));
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    jwks: { keys: [makeKey("key-1")] },
    clients: [
      {
        client_id: "client",
        client_secret: "secret",
        grant_types: [
          "client_credentials",
          ...(redirects.length > 0 ? ["authorization_code", "refresh_token", EXCHANGE] : []),
        ],
        redirect_uris: redirects,
        response_types: redirects.length > 0 ? ["code"] : [],
        id_token_signed_response_alg: "ES256",
      },
    ],
    clientDefaults: { id_token_signed_response_alg: "ES256" },
    cookies: { keys: ["a key for tests"] },
    issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => describe(resource),
        defaultResource: () => audience,
      },
    },
    scopes: ["agents:run", "agents:read"],
  });
  const parameters = ["subject_token", "subject_token_type", "resource", "scope", "actor_token", "actor_token_type"];
  provider.registerGrantType(EXCHANGE, exchange(provider), parameters, ["resource"]);
  handle = provider.callback();
  process.stdout.write(`${JSON.stringify({ ready: issuer })}\n`);
});
process.stdin.on("end", () => process.exit(0)).resume();

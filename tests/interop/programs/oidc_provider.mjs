// oidc-provider on a free port: ES256 access tokens of the type at+jwt, for the client `client` with `secret`.
// Users log in with any name and password, and clients register themselves.
// Options: audience, and `lifetime` of access tokens in seconds.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

console.log = console.info = console.warn = console.error; // stdout is for the test

const { Provider } = await import(pathToFileURL(process.env.OIDC_PROVIDER).href);
const { audience, lifetime = 600 } = JSON.parse(process.argv[2] ?? "{}");

const makeKey = (kid) => {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "ES256" };
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
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
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
        getResourceServerInfo: (_, resource) => ({
          audience: resource,
          scope: "agents:run agents:read",
          accessTokenFormat: "jwt",
          accessTokenTTL: lifetime,
          jwt: { sign: { alg: "ES256" } },
        }),
        defaultResource: () => audience,
      },
    },
    scopes: ["agents:run", "agents:read"],
  });
  handle = provider.callback();
  process.stdout.write(`${JSON.stringify({ ready: issuer })}\n`);
});
process.stdin.on("end", () => process.exit(0)).resume();

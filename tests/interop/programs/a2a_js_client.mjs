// Signed cards in the official A2A 1.0 SDK of JavaScript, driven by JSON lines (see lines.py).

import { createInterface } from "node:readline";
import { createPrivateKey } from "node:crypto";

const { generateAgentCardSignature, verifyAgentCardSignature } = await import(`${process.env.A2A_JS}/index.js`);
const { DefaultAgentCardResolver } = await import(`${process.env.A2A_JS}/client/index.js`);

console.debug = () => {};

const calls = {
  // Return a card as the SDK's client gets it.
  async fetch({ url, path }) {
    const withVersion = (input, init) => fetch(input, { ...init, headers: { "A2A-Version": "1.0" } });
    return await new DefaultAgentCardResolver({ fetchImpl: withVersion }).resolve(url, path);
  },
  // Verify a card with a key set. Fails if no signature is valid.
  async verify({ card, keys }) {
    const verifier = verifyAgentCardSignature(async (kid) => {
      const key = keys.find((each) => each.kid === kid);
      if (!key) throw new Error(`no key ${kid}`);
      return key;
    });
    await verifier(card);
    return null;
  },
  // Return a card with a signature by a private key in PEM.
  async sign({ card, key, header }) {
    return await generateAgentCardSignature(createPrivateKey(key), header)(card);
  },
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  if (id === undefined) continue;
  try {
    say({ id, done: true, result: await calls[call](args) });
  } catch (error) {
    say({ id, error: { type: error.name, message: error.message, data: null } });
  }
}

// node client.js PORT: makes every call of Pyggpot with the client that protobuf-ts has generated from proto/, in both
// encodings, and ends with 0 if all of them answered as they should.
"use strict";

const assert = require("node:assert");
const { RpcError } = require("@protobuf-ts/runtime-rpc");
const { TwirpFetchTransport } = require("@protobuf-ts/twirp-transport");
const { PotClient } = require("./generated/pot.client");
const { CoinClient } = require("./generated/coin.client");
const { Coins_Kind: Kind } = require("./generated/coin");
const { Timestamp } = require("./generated/google/protobuf/timestamp");

const baseUrl = `http://127.0.0.1:${process.argv[2]}/twirp`;

function counts(response) {
	return Object.fromEntries(response.coins.map((entry) => [Kind[entry.kind], entry.count]));
}

async function refusal(call) {
	try {
		await call;
	} catch (error) {
		assert.ok(error instanceof RpcError, `${error}`);
		return error.code;
	}
	throw new Error("this call must be refused");
}

async function usePots(pots, name) {
	const made = await pots.createPot({ pot_name: name, max_coins: 100 }).response;
	assert.ok(made.pot_id > 0);
	assert.ok(Math.abs(Timestamp.toDate(made.create_time) - Date.now()) < 60000);
	assert.deepStrictEqual(await pots.viewPot({ pot_id: made.pot_id }).response, made);
	assert.deepStrictEqual(await pots.viewPotByName({ pot_name: name }).response, made);
	const list = await pots.listPots({ page: 1, limit: 100 }).response;
	assert.strictEqual(list.pots.length, list.total_pot_count);
	assert.deepStrictEqual({ ...list.request }, { page: 1, limit: 100 });
	assert.strictEqual(await refusal(pots.createPot({ pot_name: name, max_coins: 100 })), "already_exists");
	assert.strictEqual(await refusal(pots.createPot({ pot_name: "PP-", max_coins: 100 })), "invalid_argument");
	assert.strictEqual(await refusal(pots.viewPot({ pot_id: 2147483647 })), "not_found");
	return made.pot_id;
}

async function useCoins(coins, pot_id) {
	const added = [{ kind: Kind.GOLD, count: 30 }, { kind: Kind.BRONZE, count: 50 }];

	assert.deepStrictEqual(counts(await coins.addCoins({ pot_id, coins: added }).response), { BRONZE: 50, GOLD: 30 });
	assert.strictEqual(await refusal(coins.addCoins({ pot_id, coins: added })), "failed_precondition");
	const byKind = { pot_id, count: 0, coins: [{ kind: Kind.GOLD, count: 10 }, { kind: Kind.SILVER, count: 1 }] };
	assert.deepStrictEqual(counts(await coins.removeCoins(byKind).response), { GOLD: 10 });
	const options = { meta: { "Idempotency-Key": `node-${pot_id}` } };
	const draw = { pot_id, count: 20, coins: [] };
	const first = counts(await coins.removeCoins(draw, options).response);
	assert.deepStrictEqual(counts(await coins.removeCoins(draw, options).response), first);
	assert.strictEqual((first.BRONZE ?? 0) + (first.GOLD ?? 0), 20);
	const left = counts(await coins.listCoins({ pot_id }).response);
	assert.strictEqual((first.BRONZE ?? 0) + left.BRONZE, 50);
	assert.strictEqual((first.GOLD ?? 0) + left.GOLD, 20);
	assert.strictEqual(await refusal(coins.removeCoins({ pot_id, count: 0, coins: [] })), "invalid_argument");
}

async function main() {
	for (const sendJson of [false, true]) {
		const transport = new TwirpFetchTransport({ baseUrl, sendJson });
		const pot_id = await usePots(new PotClient(transport), sendJson ? "Node json" : "Node binary");

		await useCoins(new CoinClient(transport), pot_id);
		console.log(sendJson ? "json" : "protobuf", "ok");
	}
}

main().catch((error) => {
	console.error(error);
	process.exit(1);
});

// Runs the conformance vectors with the messages of the client; prints what it would publish.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const [, , dist, file] = process.argv;
const { decodeMessage, encodeRequest } = await import(`${dist}/messages.js`);
const { decodeNotification, encodeNotification } = await import(`${dist}/notifications.js`);
const { parseExact, Time, toHex } = await import(`${dist}/values.js`);
const vectors = JSON.parse(readFileSync(file, "utf8"));

const SPECIAL = { nan: NaN, inf: Infinity, "-inf": -Infinity };

function check([kind, text], value) {
  switch (kind) {
    case "null": return assert.equal(value, null);
    case "truth": return assert.equal(value, text === "true");
    case "text": return assert.equal(value, text);
    case "double": return assert.equal(value, SPECIAL[text] ?? Number(text));
    case "bytes": return assert.equal(toHex(value), text);
    case "time": return assert.ok(value instanceof Time) || assert.equal(String(value), text);
    case "integer":
      assert.equal(typeof value, Number.isSafeInteger(Number(text)) ? "number" : "bigint");
      return assert.equal(String(value), text);
    default: throw new Error(kind);
  }
}

for (const { name, json, values, body } of vectors.values) {
  const { attributes, ...rest } = decodeNotification(parseExact(json));
  assert.deepEqual(Object.keys(attributes).sort(), Object.keys(values).sort(), name);
  for (const [attribute, several] of Object.entries(values)) {
    const found = Array.isArray(attributes[attribute]) ? attributes[attribute] : [attributes[attribute]];
    assert.equal(found.length, several.length, name);
    several.forEach((expected, at) => check(expected, found[at]));
  }
  assert.equal(toHex(rest.body), body, name);
  const { publisher, sequence, ttlUs, priority, delivery } = rest.envelope;
  console.log(encodeNotification(attributes, {
    body: rest.body, contentType: rest.contentType, publisher, sequence, priority, delivery,
    ...(ttlUs !== undefined && { ttlS: Number(ttlUs) / 1e6 }),
  }));
}
for (const { request, answer } of vectors.exchanges) {
  const { type, status, error } = decodeMessage(JSON.stringify(answer));
  assert.deepEqual([type, status, error], [answer.type, answer.status ?? 0, answer.error ?? ""]);
  if (request.type === "dance" || request.position !== undefined) continue; // The client sends neither.
  if (request.notifications?.[0]?.filter) continue;
  const { notifications, ...plain } = request;
  const publications = notifications?.map(each => [decodeNotification(parseExact(JSON.stringify(each))).attributes]);
  const sent = JSON.parse(encodeRequest(publications ? { ...plain, publications } : plain));
  const names = each => each.notifications?.map(one => one.notification.attributes);
  assert.deepEqual({ ...sent, notifications: names(sent) }, { ...request, notifications: names(request) });
}
for (const delivery of vectors.deliveries) {
  const { type, id, position, notification, notifications } = decodeMessage(JSON.stringify(delivery));
  assert.deepEqual([type, id], [delivery.type, delivery.id]);
  assert.equal(position ?? 0, delivery.position ?? 0);
  for (const each of notifications ?? [notification]) assert.equal(each.envelope.publisher, "p");
}
const lost = decodeMessage('{"type": "dropped", "id": "s1", "dropped": {"queue full": 3}}');
assert.deepEqual(lost, { type: "dropped", id: "s1", dropped: { "queue full": 3 } });
assert.throws(() => decodeMessage('{"type": "dance"}'), /expected a message/);

// A text of many escapes, beside an integer that is read digit by digit.
for (const text of ["\n", '"', "\\", '\\"', "1234567890123456"].map(each => each.repeat(2e6))) {
  const found = parseExact(`{"${"\\\\"}":-9007199254740993,"text":${JSON.stringify(text)},"n":[1.5,12345678901234567e3]}`);
  assert.deepEqual(found["\\"], { $integer: "-9007199254740993" });
  assert.ok(found.text === text);
  assert.deepEqual(found.n, [1.5, 12345678901234567e3]);
}

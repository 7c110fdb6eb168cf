// Copyright (c) 2026, arcpro.b70 contributors
// SPDX-License-Identifier: GPL-3.0-or-later
// What is said to the frontdoor, and what comes back. No elements of the page.
import { createParser } from "eventsource-parser";

// A refusal of the frontdoor or the engine; `status` is 0 where nobody answered.
export class Trouble extends Error {
  constructor(status, message, retryAfterS = 0) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

async function ask(path, key, options = {}) {
  let answer;
  try {
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(0, "The frontdoor cannot be reached.");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  const message = told?.error?.message || `${path} answered ${answer.status}.`;
  throw new Trouble(answer.status, message, Number(answer.headers.get("Retry-After")) || 0);
}

// The models that can be asked: their id, title, and whether they see. Aliases are left out.
export async function models(key) {
  const { data } = await (await ask("/v1/models", key)).json();
  return data.filter((one) => !one.b70?.alias_of).map((one) => ({
    id: one.id,
    title: one.b70?.title || one.id,
    sees: (one.b70?.modalities || []).includes("image"),
  }));
}

// The text before, in and after the <think> block that some models write where the engine does not take it out.
export function split(text) {
  const open = text.match(/^\s*<think>/);
  if (!open) return { reasoning: "", answer: text };
  const rest = text.slice(open[0].length), end = rest.indexOf("</think>");
  return end < 0 ? { reasoning: rest, answer: "" } : { reasoning: rest.slice(0, end), answer: rest.slice(end + 8) };
}

const answered = (turn) => turn.role === "assistant" && Boolean(split(turn.text).answer.trim());

// The messages of a conversation in the API's words. Reasoning is not sent back: models are not trained to read it. A
// question without an answer is left out with it: templates want question and answer in turns.
export function request(model, turns, { system, temperature, maxTokens }) {
  const told = turns.filter((turn, i) => turn.role === "user" ? i === turns.length - 1 || answered(turns[i + 1]) : answered(turn));
  const messages = told.map((turn) => {
    if (turn.role === "assistant") return { role: "assistant", content: split(turn.text).answer };
    const images = turn.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return { role: "user", content: images.length ? [...images, { type: "text", text: turn.text }] : turn.text };
  });
  if (system.trim()) messages.unshift({ role: "system", content: system });
  const settings = {};
  if (temperature !== "") settings.temperature = Number(temperature);
  if (maxTokens !== "") settings.max_tokens = Number(maxTokens);
  return { model, messages, stream: true, stream_options: { include_usage: true }, ...settings };
}

// Streams an answer. `take` is given {text, reasoning} as they come; returns what is known at the end: seconds to the
// first token and from that to the last, the tokens that the engine counted (else null) and why it stopped.
export async function converse(body, key, signal, take) {
  const begun = performance.now();
  let first = 0, last = 0, tokens = null, reason = null, failed = null, done = false;
  const parser = createParser({
    onEvent({ data }) {
      if (data === "[DONE]") { done = true; return; }
      let chunk;
      try { chunk = JSON.parse(data); } catch { return; }
      if (chunk.error) { failed = new Trouble(502, chunk.error.message || "The answer was cut."); return; }
      tokens = chunk.usage?.completion_tokens ?? tokens;
      const choice = chunk.choices?.[0], delta = choice?.delta;
      reason = choice?.finish_reason || reason;
      const text = delta?.content || "", reasoning = delta?.reasoning_content || delta?.reasoning || "";
      if (!text && !reasoning) return;
      last = performance.now();
      first ||= last;
      take({ text, reasoning });
    },
  });
  const headers = { "Content-Type": "application/json" };
  const answer = await ask("/v1/chat/completions", key, { method: "POST", headers, body: JSON.stringify(body), signal });
  try {
    for (let reader = answer.body.getReader(), decoder = new TextDecoder(); ;) {
      const { done: ended, value } = await reader.read();
      if (ended) break;
      parser.feed(decoder.decode(value, { stream: true }));
    }
  } catch (error) {
    if (error.name !== "AbortError") failed = new Trouble(0, "The connection broke off.");
  }
  if (!failed && !done && !reason && !signal.aborted) failed = new Trouble(502, "The answer ended early.");
  return { firstS: first ? (first - begun) / 1000 : null, restS: (last - first) / 1000, tokens, reason, failed };
}

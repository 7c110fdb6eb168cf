// Copyright (c) 2026, arcpro.b70 contributors
// SPDX-License-Identifier: GPL-3.0-or-later
import { render } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import "./app.css";
import { html } from "./markdown.js";
import { converse, models, request, split } from "./talk.js";

const RETRY_S = 5;
const IMAGES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// What a person wants to know of an answer: how soon it began, and how fast it went on.
function numbers({ firstS, restS, tokens, reason }) {
  // less time than that is the network's
  const rate = tokens > 1 && restS > 0.05 ? (tokens - 1) / restS : null;
  return [
    firstS !== null && `TTFT ${fixed(firstS, 2)} s`,
    rate !== null && `${fixed(rate, 1)} tok/s`,
    tokens !== null && `${tokens} tokens`,
    reason === "length" && "cut at the limit of tokens",
  ].filter(Boolean).join(" · ");
}

function dataUrl(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // all that a browser has on a page without TLS
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function Copy({ text }) {
  const [copied, setCopied] = useState(null);
  return <button class="quiet copy" onClick={() => copy(text).then(() => setCopied(text))}>{copied === text ? "Copied" : "Copy"}</button>;
}

function Markdown({ text }) {
  const made = useMemo(() => html(text), [text]);
  return <div class="text" dangerouslySetInnerHTML={{ __html: made }} />;
}

function Answer({ turn, running, again }) {
  const { reasoning: inline, answer } = split(turn.text);
  const reasoning = (turn.reasoning + inline).trim();
  return (
    <article class="assistant" aria-busy={running}>
      {reasoning && (
        <details class="reasoning">
          <summary>{running && !answer ? "Thinking…" : "Reasoning"}</summary>
          <div class="plain">{reasoning}</div>
        </details>
      )}
      {answer && <Markdown text={answer} />}
      {running && !reasoning && !answer && <p class="soft">Waiting for the first token…</p>}
      {turn.error && <p class="error" role="alert">{turn.error}</p>}
      {turn.stopped && <p class="soft">Stopped.</p>}
      {turn.told && numbers(turn.told) && <p class="numbers">{numbers(turn.told)}</p>}
      {!running && <div class="row tools">
        {answer && <Copy text={answer.trim()} />}
        {again && <button id="again" class="quiet" onClick={again}>{turn.error ? "Try again" : "Regenerate"}</button>}
      </div>}
    </article>
  );
}

function Question({ turn }) {
  return (
    <article class="user">
      {turn.images.map((url) => <img src={url} alt="Your picture" />)}
      {turn.text && <div class="plain">{turn.text}</div>}
    </article>
  );
}

function AskKey({ wrong, give }) {
  const field = useRef();
  useEffect(() => field.current.focus(), []);
  return (
    <form class="key" onSubmit={(event) => { event.preventDefault(); give(field.current.value.trim()); }}>
      <label for="key">API key</label>
      <input id="key" ref={field} type="password" autocomplete="off" required />
      <button>Use</button>
      <p class="soft">{wrong ? "That API key is not known here." : "This frontdoor wants an API key. The page forgets it when it is closed or loaded again."}</p>
    </form>
  );
}

function Settings({ settings, change }) {
  const set = (name) => (event) => change({ ...settings, [name]: event.currentTarget.value });
  return (
    <details class="settings">
      <summary>Settings</summary>
      <label>System prompt <textarea id="system" rows="2" value={settings.system} onInput={set("system")} /></label>
      <label>Temperature <input id="temperature" type="number" min="0" max="2" step="0.1" placeholder="the model's" value={settings.temperature} onInput={set("temperature")} /></label>
      <label>Most tokens <input id="max-tokens" type="number" min="1" step="1" placeholder="the profile's" value={settings.maxTokens} onInput={set("maxTokens")} /></label>
    </details>
  );
}

function Composer({ sees, running, ready, send, stop }) {
  const [text, setText] = useState(""), [images, setImages] = useState([]), [refused, setRefused] = useState("");
  const field = useRef(), chooser = useRef();
  useEffect(() => { if (!sees) setImages([]); }, [sees]);

  async function add(files) {
    const known = [...files].filter((file) => IMAGES.includes(file.type));
    setRefused(known.length < files.length ? "Only PNG, JPEG, WebP and GIF pictures can be sent." : "");
    const urls = await Promise.all(known.map(dataUrl));
    setImages((before) => [...before, ...urls]);
  }
  function submit(event) {
    event.preventDefault();
    if (running || !ready || !(text.trim() || images.length)) return;
    send(text.trim(), images);
    setText("");
    setImages([]);
    field.current.focus();
  }
  function pressed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  }
  function taken(event, files) {
    if (sees && files?.length) { event.preventDefault(); add(files); }
  }
  return (
    <form class="composer" onSubmit={submit} onDragOver={(event) => sees && event.preventDefault()} onDrop={(event) => taken(event, event.dataTransfer.files)}>
      {refused && <p class="error" role="alert">{refused}</p>}
      {images.length > 0 && (
        <div class="pictures">
          {images.map((url, index) => (
            <button type="button" title="Remove this picture" onClick={() => setImages(images.filter((_, i) => i !== index))}><img src={url} alt={`Picture ${index + 1}: remove it`} /></button>
          ))}
        </div>
      )}
      <div class="row">
        {sees && (
          <>
            <input ref={chooser} id="images" type="file" accept={IMAGES.join()} multiple hidden onChange={(event) => { add(event.currentTarget.files); event.currentTarget.value = ""; }} />
            <button id="attach" type="button" class="quiet" onClick={() => chooser.current.click()}>Add picture</button>
          </>
        )}
        <textarea id="text" ref={field} rows="1" aria-label="Message" placeholder="Message" value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} onPaste={(event) => taken(event, event.clipboardData.files)} />
        {running ? <button id="stop" type="button" onClick={stop}>Stop</button> : <button id="send" disabled={!ready}>Send</button>}
      </div>
    </form>
  );
}

function App() {
  // the key is kept nowhere else
  const [key, setKey] = useState(""), [locked, setLocked] = useState(false);
  const [served, setServed] = useState([]), [model, setModel] = useState(""), [trouble, setTrouble] = useState("");
  const [turns, setTurns] = useState([]), [running, setRunning] = useState(false);
  const [settings, setSettings] = useState({ system: "", temperature: "", maxTokens: "" });
  const aborter = useRef(null), log = useRef(), follow = useRef(true);
  const chosen = served.find((one) => one.id === model) || served[0];

  const look = useCallback(async () => {
    try {
      setServed(await models(key));
      setLocked(false);
      setTrouble("");
    } catch (error) {
      setLocked(error.status === 401);
      setTrouble(error.status === 401 ? "" : error.message || String(error));
    }
  }, [key]);
  useEffect(() => { look(); }, [look]);
  useEffect(() => {
    if (!trouble) return undefined;
    const timer = setTimeout(look, RETRY_S * 1000);
    return () => clearTimeout(timer);
  }, [trouble, look]);
  useEffect(() => {
    if (follow.current) log.current?.scrollTo(0, log.current.scrollHeight);
  }, [turns, running]);
  useEffect(() => { document.title = chosen ? `Chat: ${chosen.title}` : "Chat"; }, [chosen?.title]);

  async function send(text, images, before = turns) {
    const asked = [...before, { role: "user", text, images }];
    const answer = { role: "assistant", text: "", reasoning: "" };
    // a page draws sixty times a second, and engines may be faster
    let due = 0;
    const show = () => { due = 0; setTurns([...asked, { ...answer }]); };
    const take = (part) => {
      answer.text += part.text;
      answer.reasoning += part.reasoning;
      due ||= requestAnimationFrame(show);
    };
    follow.current = true;
    aborter.current = new AbortController();
    setRunning(true);
    show();
    try {
      answer.told = await converse(request(chosen.id, asked, settings), key, aborter.current.signal, take);
      answer.error = answer.told.failed?.message;
    } catch (error) {
      if (error.name !== "AbortError") {
        answer.error = error.message + (error.retryAfterS ? ` Try again in ${error.retryAfterS} s.` : "");
        if (error.status === 401) setLocked(true);
        else look();
      }
    }
    answer.stopped = aborter.current.signal.aborted;
    cancelAnimationFrame(due);
    show();
    setRunning(false);
  }
  const again = () => send(turns.at(-2).text, turns.at(-2).images, turns.slice(0, -2));
  const watchScroll = ({ currentTarget: box }) => { follow.current = box.scrollHeight - box.scrollTop - box.clientHeight < 40; };

  return (
    <>
      <header>
        {served.length > 1
          ? <select id="model" aria-label="Model" value={chosen.id} onChange={(event) => setModel(event.currentTarget.value)}>{served.map((one) => <option value={one.id}>{one.title}</option>)}</select>
          : <h1 id="model">{chosen?.title || "Chat"}</h1>}
        <span class="space" />
        <button id="new" class="quiet" disabled={running || !turns.length} onClick={() => setTurns([])}>New chat</button>
        <a href="/">Status</a>
      </header>
      <main ref={log} id="log" role="log" aria-label="Conversation" onScroll={watchScroll}>
        {locked && <AskKey key={key} wrong={Boolean(key)} give={(given) => { setKey(given); if (given === key) look(); }} />}
        {trouble && <p id="trouble" class="error" role="alert">{trouble}</p>}
        {!locked && !trouble && !turns.length && <p class="soft">Nothing of a conversation is kept: it is gone when this page is closed.</p>}
        {turns.map((turn, index) => {
          const last = index === turns.length - 1;
          return turn.role === "user" ? <Question turn={turn} /> : <Answer turn={turn} running={running && last} again={last && !running && chosen && again} />;
        })}
      </main>
      <footer>
        <Settings settings={settings} change={setSettings} />
        <Composer sees={Boolean(chosen?.sees)} running={running} ready={Boolean(chosen) && !locked} send={send} stop={() => aborter.current?.abort()} />
      </footer>
    </>
  );
}

render(<App />, document.getElementById("app"));

// Copyright (c) 2026, arcpro.b70 contributors
// SPDX-License-Identifier: GPL-3.0-or-later
// Bundles the page: node build.mjs FOLDER writes app.js, app.css, chat.html and licenses.txt there.
import { createHash } from "node:crypto";
import { copyFile, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";

const folder = process.argv[2];
const { dependencies } = JSON.parse(await readFile("package.json", "utf8"));
const names = Object.keys(dependencies).sort();
// tells, without Node, whether the bundle is older than its sources: tests/checks/test_chat_page.py
const digest = createHash("sha256");
const sources = (await readdir("src")).sort().map((name) => `src/${name}`);
for (const file of ["build.mjs", "package-lock.json", "package.json", ...sources]) digest.update(await readFile(file));
const banner = `/* Copyright (c) 2026, arcpro.b70 contributors; GPL-3.0-or-later. Built from roles/frontdoor/files/chat by \`make chat\`.
   Contains ${names.map((name) => `${name} ${dependencies[name]}`).join(", ")}: see licenses.txt.
   Sources: sha256:${digest.digest("hex")} */`;

await build({
  entryPoints: { app: "src/app.jsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  banner: { js: banner, css: banner },
  outdir: folder,
  logLevel: "warning",
});
await copyFile("src/chat.html", join(folder, "chat.html"));
const texts = names.map(async (name) => {
  const text = await readFile(join("node_modules", name, "LICENSE"), "utf8");
  // Plain quotes, as in every file of the collection.
  const plain = text.replace(/[ \t]+$/gm, "").replace(/[\u2018\u2019]/g, "'").replace(/[\u201c\u201d]/g, '"');
  return `${name} ${dependencies[name]}\n\n${plain.trim()}\n`;
});
await writeFile(join(folder, "licenses.txt"), (await Promise.all(texts)).join(`\n${"-".repeat(80)}\n\n`));

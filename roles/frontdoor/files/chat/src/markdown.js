// Copyright (c) 2026, arcpro.b70 contributors
// SPDX-License-Identifier: GPL-3.0-or-later
// Markdown of a model as HTML that loads nothing, submits nothing and runs nothing.
import DOMPurify from "dompurify";
import { marked } from "marked";

const FORBID_TAGS = ["img", "picture", "source", "video", "audio", "svg", "math", "form", "input", "button", "textarea", "select", "style"];
const FORBID_ATTR = ["style", "class", "id", "name"];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
});

const escaped = (text) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

// HTML is shown as the text that it is, but for line breaks, which models write into tables; pictures become links.
marked.use({
  renderer: {
    html: ({ text }) => /^\s*<br *\/?>\s*$/i.test(text) ? "<br>" : escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  },
});

// Returns TrustedHTML where the browser knows it: the page's policy allows nothing else.
export function html(text) {
  const made = marked.parse(text, { breaks: true, gfm: true });
  return DOMPurify.sanitize(made, { USE_PROFILES: { html: true }, FORBID_TAGS, FORBID_ATTR, RETURN_TRUSTED_TYPE: true });
}
